//! `status` of one store, and of several.

use std::time::{Duration, Instant};

use serde_json::Value;
use turnlock_testkit::{FaultProxy, TempDir};
use unicode_width::UnicodeWidthStr;

use crate::fixture::Fixture;
use crate::program::{Ended, Program};
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_store_has_a_line_with_performance_data,
    a_lock_that_is_held_for_too_long_decides_the_state,
    status_fits_eighty_columns,
    several_stores_have_a_line_each_and_the_worst_exit_code,
    a_missing_file_is_unknown_and_not_created,
];

pub(crate) const CASES_ON_REDIS: &[Case] = cases![
    a_missing_server_is_critical,
    a_wrong_password_is_critical_and_not_printed,
    a_password_of_the_url_takes_precedence,
    a_hung_server_is_critical_within_the_time_out,
    the_worst_finding_of_doctor_decides_the_state,
    an_incomplete_count_is_a_lower_limit,
    locks_that_may_not_be_listed_are_unknown_only_if_their_age_matters,
];

/// Findings that depend on the machine, or on how the tests start their servers.
pub(crate) const IGNORED: [&str; 4] = ["--ignore", "persistence", "--ignore", "latency"];

async fn status(fixture: &Fixture, arguments: &[&str]) -> Ended {
    fixture.run(&[&["status"], arguments].concat()).await
}

async fn a_store_has_a_line_with_performance_data(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = [client.lock("a").await.unwrap(), client.lock("b").await.unwrap()];
    let ended = status(&fixture, &IGNORED).await;
    assert_eq!((ended.code, ended.err.as_str(), ended.out.lines().count()), (Some(0), "", 1), "{ended:?}");
    let (text, data) = ended.out.split_once(" | ").expect("performance data");
    let start = format!("OK: {}: ", fixture.url());
    assert!(text.starts_with(&start) && text.contains(" ms, 2 locks held"), "{ended:?}");
    let is_redis = fixture.url().starts_with("redis:");
    let expected = if is_redis { ", primary, 0 replicas, " } else { "SQLite 3." };
    assert!(text.contains(expected) && text.contains("doctor: fine") == is_redis, "{ended:?}");
    let (latency, rest) = data.split_once("ms;;;0 ").expect("a latency");
    assert!(latency.strip_prefix("latency=").unwrap().parse::<f64>().unwrap() > 0.0, "{ended:?}");
    assert!(rest.starts_with("locks=2;;;0"), "{ended:?}");
}

async fn a_lock_that_is_held_for_too_long_decides_the_state(fixture: Fixture) {
    let holder = fixture.holding("night|ly").await;
    let known = fixture.status_with_age(&IGNORED).await;
    assert_eq!((&known["state"], &known["oldest"]["name"]), (&"ok".into(), &"night|ly".into()), "{known}");
    assert_eq!(known["oldest"]["holder"]["pid"], holder.id().unwrap(), "{known}");
    for (limits, code, state, data) in [
        (&["--warn-older-than", "1h"][..], 0, "OK: ", ";3600;;0"),
        (&["--warn-older-than", "0s", "--crit-older-than", "1h"], 1, "WARNING: ", ";0;3600;0"),
        (&["--warn-older-than", "0s", "--crit-older-than", "1ms"], 2, "CRITICAL: ", ";0;0.001;0"),
    ] {
        let ended = status(&fixture, &[&IGNORED[..], limits].concat()).await;
        assert!(ended.code == Some(code) && ended.out.starts_with(state), "{ended:?}");
        // The `|` of the name does not begin the performance data.
        let (text, numbers) = ended.out.trim_end().split_once('|').unwrap();
        let named = format!(":{} (sleep) ", holder.id().unwrap());
        assert!(text.contains("oldest night\\u{7c}ly held for ") && text.contains(&named), "{ended:?}");
        assert!(numbers.contains(" oldest=") && numbers.ends_with(data), "{ended:?}");
        // What is wrong comes first.
        let start = format!("{state}{}: oldest ", fixture.url());
        assert_eq!(text.starts_with(&start), code != 0, "{ended:?}");
    }
}

async fn status_fits_eighty_columns(fixture: Fixture) {
    let _holder = fixture.holding(&"name-".repeat(40)).await;
    fixture.status_with_age(&[]).await;
    let missing = "redis://127.0.0.1:1";
    for (arguments, code) in [(&IGNORED[..], 0), (&[missing], 2)] {
        let program = fixture.program(&[&["status"], arguments].concat()).with_env("NO_COLOR", "1");
        let (ended, text) = Terminal::start(program, 80).end().await;
        assert!(ended == Some(code) && !text.contains('|'), "{text}");
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.width() <= 80), "{text}");
    }
}

async fn several_stores_have_a_line_each_and_the_worst_exit_code(fixture: Fixture) {
    let _client = fixture.client("holder").await;
    let missing = "redis://127.0.0.1:1";
    let unknown = "redis://u:secret-word@h:x";
    let all = [&IGNORED[..], &[fixture.url(), missing, unknown, "memory:"]].concat();
    let ended = status(&fixture, &all).await;
    let states: Vec<_> = ended.out.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    assert_eq!(states, ["OK", "CRITICAL", "UNKNOWN", "UNKNOWN"], "{ended:?}");
    assert!(ended.code == Some(2) && !ended.out.contains('|') && !ended.out.contains("secret"), "{ended:?}");
    let ended = status(&fixture, &[&all[..], &["--json"]].concat()).await;
    let objects: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((ended.code, objects.len()), (Some(2), 4), "{ended:?}");
    assert_eq!((&objects[1]["state"], &objects[1]["store"]), (&"critical".into(), &missing.into()));
    assert_eq!((&objects[1]["locks"], &objects[0]["locks"]), (&Value::Null, &0.into()), "{objects:?}");
    let ended = status(&fixture, &[&IGNORED[..], &[fixture.url(), unknown]].concat()).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

async fn a_missing_file_is_unknown_and_not_created(_: Fixture) {
    let directory = TempDir::new();
    let path = directory.path().join("locks");
    let ended = Program::new(&["status", &format!("file:{}", path.display())]).run().await;
    let expected = format!("the store {} does not exist: check the path", path.display());
    assert!(ended.code == Some(3) && ended.out.contains(&expected), "{ended:?}");
    assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none(), "something was created");
}

async fn a_missing_server_is_critical(mut fixture: Fixture) {
    fixture.server().stop().await;
    let ended = status(&fixture, &[]).await;
    assert_eq!((ended.code, ended.out.lines().count()), (Some(2), 1), "{ended:?}");
    assert!(ended.out.starts_with("CRITICAL: redis://") && ended.out.contains("refused"), "{ended:?}");
}

async fn a_wrong_password_is_critical_and_not_printed(mut fixture: Fixture) {
    let _: String = fixture.server().query(&["CONFIG", "SET", "requirepass", "right-word"]).await.unwrap();
    let run = |password: &str| {
        let arguments = [&["status", "--ignore", "server"], &IGNORED[..]].concat();
        fixture.program(&arguments).with_env("TURNLOCK_PASSWORD", password)
    };
    let ended = run("wrong-word").run().await;
    assert!(ended.code == Some(2) && ended.out.contains("WRONGPASS"), "{ended:?}");
    assert!(!ended.out.contains("wrong-word"), "{ended:?}");
    assert_eq!(run("right-word").run().await.code, Some(0));
}

async fn a_password_of_the_url_takes_precedence(mut fixture: Fixture) {
    let _: String = fixture.server().query(&["CONFIG", "SET", "requirepass", "right-word"]).await.unwrap();
    let url = fixture.url().replace("redis://", "redis://:right-word@");
    let arguments = [&["status", url.as_str(), fixture.url()], &IGNORED[..]].concat();
    let ended = Program::new(&arguments).with_env("TURNLOCK_PASSWORD", "wrong-word").run().await;
    let states: Vec<_> = ended.out.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    assert_eq!(states, ["OK", "CRITICAL"], "{ended:?}");
    assert!(!ended.out.contains("-word"), "{ended:?}");
}

async fn a_hung_server_is_critical_within_the_time_out(mut fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    proxy.black_hole();
    let url = proxy.url();
    for (timeout, reason) in [("500ms", "no reply within 500ms"), ("8s", "127.0.0.1")] {
        let start = Instant::now();
        let ended = status(&fixture, &["--timeout", timeout, &url]).await;
        assert!(ended.code == Some(2) && ended.out.contains(reason), "{ended:?}");
        assert!(ended.out.starts_with(&format!("CRITICAL: {url}: ")), "{ended:?}");
        assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    }
    // The others are shown all the same.
    let arguments = [&IGNORED[..], &["--timeout", "15s", &url, fixture.url()]].concat();
    let ended = status(&fixture, &arguments).await;
    assert!(ended.code == Some(2) && ended.out.lines().last().unwrap().starts_with("OK: "), "{ended:?}");
}

async fn the_worst_finding_of_doctor_decides_the_state(mut fixture: Fixture) {
    let ended = status(&fixture, &["--ignore", "latency"]).await;
    assert!(ended.code == Some(2) && ended.out.contains("doctor: danger (persistence), "), "{ended:?}");
    for (setting, value) in [("appendonly", "yes"), ("appendfsync", "no"), ("timeout", "5")] {
        let _: String = fixture.server().query(&["CONFIG", "SET", setting, value]).await.unwrap();
    }
    let ended = status(&fixture, &["--ignore", "latency"]).await;
    let expected = "doctor: warning (persistence) and 1 more, ";
    assert!(ended.code == Some(1) && ended.out.contains(expected), "{ended:?}");
    let ended = status(&fixture, &[&IGNORED[..], &["--ignore", "connections"]].concat()).await;
    assert!(ended.code == Some(0) && ended.out.contains("doctor: fine"), "{ended:?}");
}

async fn an_incomplete_count_is_a_lower_limit(mut fixture: Fixture) {
    let script = "for i = 1, 1200 do
        redis.call('hset', 'lock' .. i, '3f2a9c10-5b1e-4c7a-9d0e-6b6c4d1e7f11:1', 1)
        redis.call('pexpire', 'lock' .. i, 100000)
    end
    return 'done'";
    let _: String = fixture.server().query(&["EVAL", script, "0"]).await.unwrap();
    let arguments = [&["--timeout", "50s"], &IGNORED[..]].concat();
    let ended = status(&fixture, &arguments).await;
    assert!(ended.code == Some(0) && ended.out.contains(", at least 1000 locks held"), "{ended:?}");
    let ended = status(&fixture, &[&arguments[..], &["--json"]].concat()).await;
    let object: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&object["locks"], &object["locks_complete"]), (&1_000.into(), &false.into()), "{ended:?}");
}

async fn locks_that_may_not_be_listed_are_unknown_only_if_their_age_matters(mut fixture: Fixture) {
    let rule = ["ACL", "SETUSER", "monitor", "on", ">word", "~*", "&*", "+@all", "-scan"];
    let _: String = fixture.server().query(&rule).await.unwrap();
    let url = fixture.url().replace("redis://", "redis://monitor:word@");
    let arguments = [&IGNORED[..], &[url.as_str()]].concat();
    let ended = status(&fixture, &arguments).await;
    assert!(ended.code == Some(0) && ended.out.contains("locks not counted: "), "{ended:?}");
    let ended = status(&fixture, &[&arguments[..], &["--crit-older-than", "1h"]].concat()).await;
    assert!(ended.code == Some(3) && ended.out.starts_with("UNKNOWN: "), "{ended:?}");
}
