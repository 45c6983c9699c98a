//! What cannot be.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use turnlock_testkit::{RedisServer, in_time};

use crate::program::Program;
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    wrong_usage_is_told,
    a_store_in_memory_is_refused,
    a_password_is_for_stores_that_take_one,
    a_store_that_is_not_there_is_told,
    something_else_under_the_name_is_told,
];

async fn wrong_usage_is_told(rig: Rig) {
    let long = "x".repeat(5_000);
    for (words, advice) in [
        (vec![], "<NAME>"),
        (vec!["name"], "<COMMAND>"),
        (vec!["--no-such-flag", "name", "true"], "--no-such-flag"),
        (vec!["-n", "-w", "1s", "name", "true"], "cannot be used with"),
        (vec!["-s", "-x", "name", "true"], "cannot be used with"),
        (vec!["--fair", "--permits", "2", "name", "true"], "cannot be used with"),
        (vec!["--lease", "1s", "--watchdog", "1s", "name", "true"], "cannot be used with"),
        (vec!["--json", "-q", "name", "true"], "cannot be used with"),
        (vec!["-w", "soon", "name", "true"], "500ms"),
        (vec!["-E", "256", "name", "true"], "0..=255"),
        (vec!["--on-lost", "cry", "name", "true"], "term, kill, warn"),
        (vec!["--lease", "1ms", "name", "true"], "at least 10ms"),
        (vec!["--lease", "3s", "--kill-after", "3s", "name", "true"], "does not fit in --lease 3s"),
        (vec!["--kill-after", "11s", "name", "true"], "does not fit in --watchdog 30s"),
        (vec!["--watchdog", "3s", "--kill-after", "1.1", "name", "true"], "at most a third"),
        (vec!["--at-least", "11y", "name", "true"], "ten years"),
        (vec!["--permits", "0", "name", "true"], "from 1"),
        (vec!["--watchdog", "0", "name", "true"], "watchdog"),
        (vec!["", "true"], "a lock needs a name"),
        (vec![&long, "true"], "4096"),
    ] {
        let (code, told) = Program::start(rig.command(&words)).finish().await;
        assert_eq!(code, 64, "{words:?}: {told}");
        assert!(told.contains(advice), "{words:?}: {told}");
    }
    // It has to fit only where TERM comes before the end.
    for on_lost in ["kill", "warn"] {
        let flags = ["--on-lost", on_lost, "--kill-after", "1h"];
        assert_eq!(rig.run(&flags, &["true"]).finish().await, (0, String::new()));
    }
    let mut command = rig.command(&[]);
    command.arg(OsStr::from_bytes(b"\xff")).arg("true");
    let (code, told) = Program::start(command).finish().await;
    assert_eq!(code, 64, "{told}");
    assert!(told.contains("not UTF-8"), "{told}");
}

async fn a_store_in_memory_is_refused(rig: Rig) {
    let mut rig = rig;
    for url in ["memory://x", "Memory://", " memory://"] {
        rig = rig.on(url.to_owned());
        let (code, told) = rig.run(&[], &["true"]).finish().await;
        assert_eq!(code, 64, "{url:?}");
        assert!(told.contains("exclude nobody"), "{url:?}: {told}");
    }
}

async fn a_password_is_for_stores_that_take_one(rig: Rig) {
    let server = RedisServer::start().await;
    let _: String = server.ask(&["CONFIG", "SET", "requirepass", "word"]).await.unwrap();
    let rig = rig.on(server.url());
    // The command inherits the variable, and uses a store of its own.
    let file = format!("file:{}", rig.file("locks").display());
    let inner = ["--store", &file, "run", "inner", "--", "sh", "-c", "exit 5"];
    let outer = [&[&rig.name, "--", env!("CARGO_BIN_EXE_turnlock")], &inner[..]].concat();
    let mut command = rig.command(&outer);
    command.env("TURNLOCK_PASSWORD", "word");
    assert_eq!(Program::start(command).finish().await, (5, String::new()));
    // Who names a password for a file is mistaken.
    let password = rig.file("password");
    std::fs::write(&password, "word").unwrap();
    let words = ["--store", &file, "--password-file", password.to_str().unwrap(), "run", "inner", "true"];
    let (code, told) = Program::start(rig.turnlock(&words)).finish().await;
    assert_eq!(code, 64, "{told}");
    assert!(told.contains("password"), "{told}");
}

async fn a_store_that_is_not_there_is_told(rig: Rig) {
    // Nobody listens on this port.
    let rig = rig.on("redis://127.0.0.1:1".to_owned());
    for flags in [vec![], vec!["-n"], vec!["-w", "200ms"], vec!["-q"]] {
        let start = Instant::now();
        let (code, told) = rig.run(&flags, &["true"]).finish().await;
        assert_eq!(code, 69, "{flags:?}: {told}");
        assert!(told.contains("127.0.0.1:1"), "{flags:?}: {told}");
        assert_eq!(told.matches("refused").count(), 1, "said once: {told}");
        in_time("it is told", start, ms(10_000));
    }
    let (_, told) = rig.run(&["--json"], &["true"]).finish().await;
    let event: serde_json::Value = serde_json::from_str(&told).expect("an event");
    assert_eq!(event["event"], "error", "{told}");
    // One that does not answer.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rig = rig.on(format!("redis://{}", listener.local_addr().unwrap()));
    let start = Instant::now();
    assert_eq!(rig.run(&["-w", "300ms"], &["true"]).code().await, 69);
    in_time("it is told", start, ms(10_000));
}

async fn something_else_under_the_name_is_told(rig: Rig) {
    let client = rig.client().await;
    client.semaphore(&rig.name).try_set_permits(1).await.unwrap();
    let (code, told) = rig.run(&[], &["true"]).finish().await;
    assert_eq!(code, 65, "{told}");
    assert!(told.contains("left as it is"), "{told}");
    // A hash of another program looks like a lock, but never becomes free.
    let server = RedisServer::start().await;
    let _: i64 = server.ask(&["HSET", &rig.name, "f", "v"]).await.unwrap();
    let rig = rig.on(server.url());
    for flags in [vec![], vec!["-n"], vec!["-w", "60s"], vec!["--fair"], vec!["--fenced"], vec!["-s"]] {
        let start = Instant::now();
        let (code, told) = rig.run(&flags, &["true"]).finish().await;
        assert_eq!(code, 65, "{flags:?}: {told}");
        assert!(told.contains("left as it is"), "{flags:?}: {told}");
        assert!(start.elapsed() < ms(20_000), "{flags:?}");
    }
}
