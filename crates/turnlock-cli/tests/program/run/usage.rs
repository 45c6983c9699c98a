//! Usage errors and stores that cannot be used.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use turnlock_testkit::{RedisServer, in_time};

use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    usage_errors_exit_with_64,
    an_error_in_a_value_names_its_option,
    a_memory_store_is_rejected,
    the_password_variable_is_ignored_for_a_file,
    an_unreachable_store_exits_with_69,
    a_key_that_is_not_a_lock_exits_with_65,
];

async fn usage_errors_exit_with_64(fixture: Fixture) {
    let long = "x".repeat(5_000);
    for (arguments, expected) in [
        (vec![], "<NAME>"),
        (vec!["name"], "the command is missing"),
        (vec!["--no-such-flag", "name", "true"], "--no-such-flag"),
        (vec!["-n", "-w", "1s", "name", "true"], "cannot be used with"),
        (vec!["-s", "-x", "name", "true"], "cannot be used with"),
        (vec!["--fair", "--permits", "2", "name", "true"], "cannot be used with"),
        (vec!["--lease", "1s", "--watchdog", "1s", "name", "true"], "cannot be used with"),
        (vec!["--json", "-q", "name", "true"], "cannot be used with"),
        (vec!["-w", "soon", "name", "true"], "500ms"),
        (vec!["-E", "256", "name", "true"], "from 0 to 255"),
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
        let (code, stderr) = Program::start(fixture.command(&arguments)).finish().await;
        assert_eq!(code, 64, "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    // --kill-after has to fit in the lease only if TERM is sent.
    for on_lost in ["kill", "warn"] {
        let flags = ["--on-lost", on_lost, "--kill-after", "1h"];
        assert_eq!(fixture.run(&flags, &["true"]).finish().await, (0, String::new()));
    }
    let mut command = fixture.command(&[]);
    command.arg(OsStr::from_bytes(b"\xff")).arg("true");
    let (code, stderr) = Program::start(command).finish().await;
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("not UTF-8"), "{stderr}");
}

async fn an_error_in_a_value_names_its_option(fixture: Fixture) {
    for (option, values, advice) in [
        ("--permits", &["0", "-1", "x", "2147483648"][..], "give a number from 1 to 2147483647"),
        ("--conflict-exit-code", &["256", "-1", "x"], "give a number from 0 to 255"),
        ("--wait", &["-1", "x", "1e400", "2 parsecs"], "write for example 500ms, 2s or 1m"),
        ("--lease", &["-1", "soon"], "write for example 500ms, 2s or 1m"),
        ("--lease", &["0", "1ms"], "give at least 10ms"),
        ("--lease", &["11y"], "give at most ten years"),
        ("--watchdog", &["0", "1ms"], "give at least 10ms"),
        ("--watchdog", &["11y"], "give at most ten years"),
        ("--at-least", &["-1", "x"], "write for example 500ms, 2s or 1m"),
        ("--at-least", &["11y"], "give at most ten years"),
        ("--kill-after", &["-1", "x"], "write for example 500ms, 2s or 1m"),
        ("--on-lost", &["x"], "term, kill, warn"),
    ] {
        for value in values {
            let (code, stderr) =
                Program::start(fixture.command(&[option, value, "name", "true"])).finish().await;
            assert_eq!(code, 64, "{option} {value}: {stderr}");
            assert!(stderr.contains(option) && stderr.contains(advice), "{option} {value}: {stderr}");
        }
    }
    let mut command = fixture.command(&["--label"]);
    command.arg(OsStr::from_bytes(b"\xff")).args(["name", "true"]);
    let (code, stderr) = Program::start(command).finish().await;
    assert!(code == 64 && stderr.contains("--label") && stderr.contains("not UTF-8"), "{stderr}");
}

async fn a_memory_store_is_rejected(fixture: Fixture) {
    let mut fixture = fixture;
    for url in ["memory://x", "Memory://", " memory://"] {
        fixture = fixture.on(url.to_owned());
        let (code, stderr) = fixture.run(&[], &["true"]).finish().await;
        assert_eq!(code, 64, "{url:?}");
        assert!(stderr.contains("excludes no other process"), "{url:?}: {stderr}");
    }
}

async fn the_password_variable_is_ignored_for_a_file(fixture: Fixture) {
    let server = RedisServer::start().await;
    let _: String = server.query(&["CONFIG", "SET", "requirepass", "word"]).await.unwrap();
    let fixture = fixture.on(server.url());
    // The command inherits the variable, and uses a file.
    let file = format!("file:{}", fixture.file("locks").display());
    let inner = ["--store", &file, "run", "inner", "--", "sh", "-c", "exit 5"];
    let outer = [&[&fixture.name, "--", env!("CARGO_BIN_EXE_turnlock")], &inner[..]].concat();
    let mut command = fixture.command(&outer);
    command.env("TURNLOCK_PASSWORD", "word");
    assert_eq!(Program::start(command).finish().await, (5, String::new()));
    // An explicit password for a file is an error.
    let password = fixture.file("password");
    std::fs::write(&password, "word").unwrap();
    let arguments = ["--store", &file, "--password-file", password.to_str().unwrap(), "run", "inner", "true"];
    let (code, stderr) = Program::start(fixture.turnlock(&arguments)).finish().await;
    assert_eq!(code, 64, "{stderr}");
    assert!(stderr.contains("password"), "{stderr}");
}

async fn an_unreachable_store_exits_with_69(fixture: Fixture) {
    // No server listens on this port.
    let fixture = fixture.on("redis://127.0.0.1:1".to_owned());
    for flags in [vec![], vec!["-n"], vec!["-w", "200ms"], vec!["-q"]] {
        let start = Instant::now();
        let (code, stderr) = fixture.run(&flags, &["true"]).finish().await;
        assert_eq!(code, 69, "{flags:?}: {stderr}");
        assert!(stderr.contains("127.0.0.1:1"), "{flags:?}: {stderr}");
        assert_eq!(stderr.matches("refused").count(), 1, "the cause is printed once: {stderr}");
        in_time("the run fails", start, ms(10_000));
    }
    let (_, stderr) = fixture.run(&["--json"], &["true"]).finish().await;
    let event: serde_json::Value = serde_json::from_str(&stderr).expect("an event");
    assert_eq!(event["event"], "error", "{stderr}");
    // A server that does not reply.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fixture = fixture.on(format!("redis://{}", listener.local_addr().unwrap()));
    let start = Instant::now();
    assert_eq!(fixture.run(&["-w", "300ms"], &["true"]).code().await, 69);
    in_time("the run fails", start, ms(10_000));
}

async fn a_key_that_is_not_a_lock_exits_with_65(fixture: Fixture) {
    let client = fixture.client().await;
    client.semaphore(&fixture.name).try_set_permits(1).await.unwrap();
    let (code, stderr) = fixture.run(&[], &["true"]).finish().await;
    assert_eq!(code, 65, "{stderr}");
    // On Redis a semaphore is a plain number.
    let is_named = stderr.contains("is not a lock") || stderr.contains("is in use as a semaphore");
    assert!(is_named, "{stderr}");
    // A hash of another program looks like a lock that is never released.
    let server = RedisServer::start().await;
    let _: i64 = server.query(&["HSET", &fixture.name, "f", "v"]).await.unwrap();
    let fixture = fixture.on(server.url());
    for flags in [vec![], vec!["-n"], vec!["-w", "60s"], vec!["--fair"], vec!["--fenced"], vec!["-s"]] {
        let start = Instant::now();
        let (code, stderr) = fixture.run(&flags, &["true"]).finish().await;
        assert_eq!(code, 65, "{flags:?}: {stderr}");
        assert!(stderr.contains("is not a lock"), "{flags:?}: {stderr}");
        assert!(start.elapsed() < ms(20_000), "{flags:?}");
    }
}
