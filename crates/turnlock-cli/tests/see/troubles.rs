//! Servers that are away, refuse, or are set up badly.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use turnlock_testkit::within;

use crate::ground::Ground;
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_watch_outlives_an_outage,
    a_store_that_is_away_is_exit_69,
    a_wrong_password_is_exit_77_and_never_shown,
    a_key_that_is_no_lock_is_not_taken_for_one,
    the_doctor_says_what_is_wrong,
];

async fn a_watch_outlives_an_outage(mut ground: Ground) {
    let client = ground.client("holder").await;
    let guard = client.lock("before").lock().await.unwrap();
    let arguments = ["watch", "--json", "--interval", "50ms"];
    let mut child = ground.program(&arguments).printing_to(Stdio::piped(), Stdio::piped()).start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let limit = Duration::from_secs(20);
    within(limit, "the first line", lines.next_line()).await.unwrap().unwrap();
    ground.server().stop().await;
    let error = within(limit, "a word about the outage", errors.next_line()).await.unwrap().unwrap();
    assert!(error.contains("going on"), "{error}");
    drop(guard);
    ground.server().restart().await;
    let error = within(limit, "a word about its end", errors.next_line()).await.unwrap().unwrap();
    assert!(error.contains("answers again"), "once an outage: {error}");
    let _guard = ground.client("holder").await.lock("after").lock().await.unwrap();
    let after = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            let seen: Value = serde_json::from_str(&line).unwrap();
            if seen["name"] == "after" {
                break;
            }
        }
    };
    within(limit, "what was locked after the outage", after).await;
}

async fn a_store_that_is_away_is_exit_69(mut ground: Ground) {
    ground.server().stop().await;
    for arguments in [
        &["ls"][..],
        &["show", "a"],
        &["watch"],
        &["unlock", "--force", "--yes", "a"],
        &["doctor"],
        &["bench"],
    ] {
        let ended = ground.run(arguments).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(69), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("turnlock: ") && ended.err.lines().count() == 1, "{ended:?}");
    }
}

async fn a_wrong_password_is_exit_77_and_never_shown(mut ground: Ground) {
    let _: String = ground.server().ask(&["CONFIG", "SET", "requirepass", "right-word"]).await.unwrap();
    let wrong = ground.program(&["ls"]).with("TURNLOCK_PASSWORD", "wrong-word").run().await;
    assert_eq!(wrong.code, Some(77), "{wrong:?}");
    assert!(!wrong.err.contains("wrong-word"), "{wrong:?}");
    let right = ground.program(&["ls"]).with("TURNLOCK_PASSWORD", "right-word").run().await;
    assert_eq!(right.code, Some(0), "{right:?}");
    let url = ground.url().replace("redis://", "redis://:wrong-word@");
    let ended = Program::new(&["--store", &url, "ls"]).run().await;
    assert!(ended.code == Some(77) && !ended.err.contains("wrong-word"), "{ended:?}");
}

async fn a_key_that_is_no_lock_is_not_taken_for_one(mut ground: Ground) {
    let server = ground.server();
    let _: i64 = server.ask(&["RPUSH", "a-list", "1"]).await.unwrap();
    let _: i64 = server.ask(&["HSET", "a-hash", "field", "value"]).await.unwrap();
    let _: String = server.ask(&["SET", "a-text", "text"]).await.unwrap();
    let _: String = server.ask(&["SET", "a-number", "3"]).await.unwrap();
    assert_eq!(ground.run(&["ls"]).await.out, "");
    let number = ground.objects(&["show", "--json", "a-number"]).await;
    assert_eq!((&number[0]["kind"], &number[0]["available"]), (&"semaphore".into(), &3.into()), "{number:?}");
    let ended = ground.run(&["unlock", "--force", "--yes", "a-number"]).await;
    assert!(ended.code == Some(1) && ended.err.contains("a number"), "{ended:?}");
    for name in ["a-list", "a-hash", "a-text"] {
        let ended = ground.run(&["unlock", "--force", "--yes", name]).await;
        assert!(matches!(ended.code, Some(1 | 65)), "{ended:?}");
        let is_there: i64 = ground.server().ask(&["EXISTS", name]).await.unwrap();
        assert_eq!(is_there, 1, "{name} is left as it is");
    }
}

async fn the_doctor_says_what_is_wrong(mut ground: Ground) {
    let ended = ground.run(&["doctor"]).await;
    assert_eq!(ended.code, Some(1), "nothing is kept on disk: {ended:?}");
    assert!(ended.out.starts_with("DANGER: persistence"), "{ended:?}");
    let ended = ground.run(&["doctor", "--json"]).await;
    let first: Value = serde_json::from_str(ended.out.lines().next().unwrap()).unwrap();
    assert_eq!((&first["level"], &first["topic"]), (&"danger".into(), &"persistence".into()), "{first}");
    for (setting, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
        let _: String = ground.server().ask(&["CONFIG", "SET", setting, value]).await.unwrap();
    }
    let ended = ground.run(&["doctor", "--json", "--names", "orders:"]).await;
    let findings = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let troubles: Vec<Value> =
        findings.filter(|finding| finding["level"] == "warning" || finding["level"] == "danger").collect();
    assert_eq!(ended.code, Some(i32::from(!troubles.is_empty())), "{ended:?}");
    // A reply that is late on a busy machine is trouble by itself.
    assert!(troubles.iter().all(|trouble| trouble["topic"] == "latency"), "{ended:?}");
}
