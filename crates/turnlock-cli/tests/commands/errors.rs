//! Servers that are unavailable, deny access, or are badly configured.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use turnlock_testkit::within;

use crate::fixture::Fixture;
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    watch_continues_after_an_outage,
    an_unavailable_store_exits_with_69,
    a_wrong_password_exits_with_77_and_is_not_printed,
    a_key_that_is_not_a_lock_is_not_listed_or_unlocked,
    doctor_reports_problems,
];

async fn watch_continues_after_an_outage(mut fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guard = client.lock("before").lock().await.unwrap();
    let arguments = ["watch", "--json", "--interval", "50ms"];
    let mut child = fixture.program(&arguments).printing_to(Stdio::piped(), Stdio::piped()).start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let limit = Duration::from_secs(20);
    within(limit, "the first line", lines.next_line()).await.unwrap().unwrap();
    fixture.server().stop().await;
    let error = within(limit, "a report of the outage", errors.next_line()).await.unwrap().unwrap();
    assert!(error.contains("will retry"), "{error}");
    drop(guard);
    fixture.server().restart().await;
    let error = within(limit, "a report of its end", errors.next_line()).await.unwrap().unwrap();
    assert!(error.contains("available again"), "one report per outage: {error}");
    let _guard = fixture.client("holder").await.lock("after").lock().await.unwrap();
    let after = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            let seen: Value = serde_json::from_str(&line).unwrap();
            if seen["name"] == "after" {
                break;
            }
        }
    };
    within(limit, "a lock acquired after the outage", after).await;
}

async fn an_unavailable_store_exits_with_69(mut fixture: Fixture) {
    fixture.server().stop().await;
    for arguments in [
        &["ls"][..],
        &["show", "a"],
        &["watch"],
        &["unlock", "--force", "--yes", "a"],
        &["doctor"],
        &["bench"],
    ] {
        let ended = fixture.run(arguments).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(69), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("turnlock: ") && ended.err.lines().count() == 1, "{ended:?}");
    }
}

async fn a_wrong_password_exits_with_77_and_is_not_printed(mut fixture: Fixture) {
    let _: String = fixture.server().query(&["CONFIG", "SET", "requirepass", "right-word"]).await.unwrap();
    let wrong = fixture.program(&["ls"]).with_env("TURNLOCK_PASSWORD", "wrong-word").run().await;
    assert_eq!(wrong.code, Some(77), "{wrong:?}");
    assert!(!wrong.err.contains("wrong-word"), "{wrong:?}");
    let right = fixture.program(&["ls"]).with_env("TURNLOCK_PASSWORD", "right-word").run().await;
    assert_eq!(right.code, Some(0), "{right:?}");
    let url = fixture.url().replace("redis://", "redis://:wrong-word@");
    let ended = Program::new(&["--store", &url, "ls"]).run().await;
    assert!(ended.code == Some(77) && !ended.err.contains("wrong-word"), "{ended:?}");
}

async fn a_key_that_is_not_a_lock_is_not_listed_or_unlocked(mut fixture: Fixture) {
    let server = fixture.server();
    let _: i64 = server.query(&["RPUSH", "a-list", "1"]).await.unwrap();
    let _: i64 = server.query(&["HSET", "a-hash", "field", "value"]).await.unwrap();
    let _: String = server.query(&["SET", "a-text", "text"]).await.unwrap();
    let _: String = server.query(&["SET", "a-number", "3"]).await.unwrap();
    assert_eq!(fixture.run(&["ls"]).await.out, "");
    let number = fixture.objects(&["show", "--json", "a-number"]).await;
    assert_eq!((&number[0]["kind"], &number[0]["available"]), (&"semaphore".into(), &3.into()), "{number:?}");
    let ended = fixture.run(&["unlock", "--force", "--yes", "a-number"]).await;
    assert!(ended.code == Some(1) && ended.err.contains("has no holders"), "{ended:?}");
    for name in ["a-list", "a-hash", "a-text"] {
        let ended = fixture.run(&["unlock", "--force", "--yes", name]).await;
        assert!(matches!(ended.code, Some(1 | 65)), "{ended:?}");
        let exists: i64 = fixture.server().query(&["EXISTS", name]).await.unwrap();
        assert_eq!(exists, 1, "{name} is unchanged");
    }
}

async fn doctor_reports_problems(mut fixture: Fixture) {
    let ended = fixture.run(&["doctor"]).await;
    assert_eq!(ended.code, Some(1), "persistence is off: {ended:?}");
    assert!(ended.out.starts_with("DANGER: persistence"), "{ended:?}");
    let ended = fixture.run(&["doctor", "--json"]).await;
    let first: Value = serde_json::from_str(ended.out.lines().next().unwrap()).unwrap();
    assert_eq!((&first["level"], &first["topic"]), (&"danger".into(), &"persistence".into()), "{first}");
    for (setting, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
        let _: String = fixture.server().query(&["CONFIG", "SET", setting, value]).await.unwrap();
    }
    let ended = fixture.run(&["doctor", "--json", "--names", "orders:"]).await;
    let findings = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let problems: Vec<Value> =
        findings.filter(|finding| finding["level"] == "warning" || finding["level"] == "danger").collect();
    assert_eq!(ended.code, Some(i32::from(!problems.is_empty())), "{ended:?}");
    // On a busy machine, a late reply is reported as a latency problem.
    assert!(problems.iter().all(|problem| problem["topic"] == "latency"), "{ended:?}");
}
