//! What a run reports if the lock is held, or if its name is in use as another kind of lock.

use std::time::Instant;

use serde_json::Value;
use turnlock_testkit::{FaultProxy, RedisServer, eventually, in_time, within};

use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    events_of_a_conflict_have_the_holders_as_show_prints_them,
    verbose_reports_each_step,
    a_conflict_prints_nothing_without_a_terminal,
    kinds_in_conflict_are_named_by_their_flags,
];

pub(crate) const TERMINAL_CASES: &[Case] = cases![a_conflict_on_a_terminal_names_the_holder];

pub(crate) const REDIS_CASES: &[Case] =
    cases![a_store_that_hangs_does_not_delay_a_conflict, only_a_conflict_costs_a_query_of_the_holders];

/// Starts a run that holds the lock, and waits until the store knows who holds it since when, and in which task: from then on,
/// what is shown of the holder does not change.
async fn identified_holder(fixture: &Fixture, flags: &[&str]) -> Program {
    let holder = fixture.hold(flags).await;
    let client = fixture.client().await;
    eventually("the holder is identified and its hold announced", ms(20_000), async || {
        let Some(found) = client.inspect(&fixture.name).await.unwrap() else { return false };
        let owners: Vec<_> = found.holders.iter().map(|holder| holder.owner.clone()).collect();
        let identities = client.identities(&owners).await.unwrap();
        found.holders.iter().zip(identities).any(|(holder, identity)| {
            let since = identity.and_then(|identity| identity.since_of(&holder.owner));
            since.is_some() && holder.task.is_some()
        })
    })
    .await;
    holder
}

async fn events_of_a_conflict_have_the_holders_as_show_prints_them(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let holder = identified_holder(&fixture, &["--label", "backup"]).await;
    let shown = Program::start(fixture.turnlock(&["show", "--json", &fixture.name])).output().await;
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let pid = holder.pid.as_raw_nonzero().get();
    assert_eq!((&shown["holders"][0]["pid"], &shown["holders"][0]["label"]), (&pid.into(), &"backup".into()));

    let mut refused = fixture.run(&["-n", "--json"], &["true"]);
    let gave_up = refused.event_named("gave_up").await;
    assert_eq!(gave_up["holders"], shown["holders"], "{gave_up}");
    assert_eq!(refused.code().await, 1);

    let mut waiter = fixture.run(&["--json"], &["true"]);
    let waiting = waiter.event_named("waiting").await;
    assert_eq!(waiting["holders"], shown["holders"], "{waiting}");
    assert_eq!((holder.code().await, waiter.code().await), (0, 0));
}

async fn verbose_reports_each_step(fixture: Fixture) {
    let mut holder = identified_holder(&fixture, &["--label", "backup"]).await;
    let mut waiter = fixture.script(&["--verbose"], "exit 3");
    let waiting = waiter.stderr_line().await;
    let pid = holder.pid.as_raw_nonzero().get();
    let prefix = format!("turnlock: {:?}: ", fixture.name);
    assert!(waiting.starts_with(&format!("{prefix}waiting, held by ")), "{waiting}");
    assert!(waiting.contains(&format!(":{pid} (backup) for ")), "{waiting}");
    holder.close();
    let (code, stderr) = waiter.finish().await;
    assert_eq!(code, 3);
    let steps = ["acquired after ", "started the command, pid ", "the command exited with 3", "released"];
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), steps.len(), "{stderr}");
    for (line, step) in lines.iter().zip(steps) {
        assert!(line.starts_with(&format!("{prefix}{step}")), "{step:?}: {line}");
    }
    let (_, stderr) = fixture.run(&["-v", "--at-least", "20s"], &["true"]).finish().await;
    assert!(stderr.contains("stays held for 19s (--at-least)"), "{stderr}");
    let (code, stderr) = fixture.run(&["-v", "-n"], &["true"]).finish().await;
    assert_eq!(code, 1);
    assert!(stderr.starts_with(&format!("{prefix}not acquired (-n), kept until ")), "{stderr}");
}

async fn a_conflict_prints_nothing_without_a_terminal(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let _holder = fixture.hold(&[]).await;
    for flags in [&["-n"][..], &["-n", "-q"], &["-w", "200ms"], &["-w", "0"]] {
        assert_eq!(fixture.run(flags, &["true"]).finish().await, (1, String::new()), "{flags:?}");
    }
}

async fn a_conflict_on_a_terminal_names_the_holder(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let holder = identified_holder(&fixture, &["--label", "the \x1b[2Jbackup"]).await;
    let name = &fixture.name;
    let address = format!(":{} (the ", holder.pid.as_raw_nonzero());
    for (flags, expected) in [
        (&["-n"][..], format!("turnlock: {name:?}: not acquired (-n), held by ")),
        (&["-w", "1s"], format!("turnlock: {name:?}: not acquired after 1s (-w), held by ")),
    ] {
        let mut terminal = Terminal::start(&fixture, &[flags, &[name, "true"]].concat());
        terminal.shows(&expected).await;
        let text = terminal.shows(" for ").await.to_owned();
        let line = text.split(&expected).nth(1).unwrap();
        assert!(line.contains(&address) && !text.contains("\x1b[2J"), "{text:?}");
        assert_eq!(terminal.code().await, 1);
    }
    // Quiet, and nothing to report.
    let mut terminal = Terminal::start(&fixture, &["-q", "-n", name, "true"]);
    assert_eq!(terminal.rest().await, "");
    assert_eq!(holder.code().await, 0);
}

async fn kinds_in_conflict_are_named_by_their_flags(fixture: Fixture) {
    let kinds: [&[&str]; 6] = [&[], &["-s"], &["-x"], &["--fair"], &["--plain"], &["--permits", "2"]];
    for (number, held) in kinds.iter().enumerate() {
        let name = format!("{}-{number}", fixture.name);
        let arguments = [held, &[&name, "sh", "-c", "echo held; exec cat"][..]].concat();
        let mut holder = Program::start(fixture.command(&arguments));
        holder.expect("held").await;
        for requested in kinds {
            let arguments = [requested, &["-n", "-E", "99", &name, "true"]].concat();
            let (code, stderr) = Program::start(fixture.command(&arguments)).finish().await;
            if code != 65 {
                // The same kind, or kinds that the store does not tell apart and that exclude each other.
                assert!(matches!(code, 0 | 99), "{held:?} {requested:?}: {code} {stderr}");
                continue;
            }
            let flag = requested.first().copied().unwrap_or("a lock");
            let (in_use, asked_for) =
                (format!("turnlock: {name:?} is in use as a "), format!("; {flag} was asked for. "));
            assert!(
                stderr.starts_with(&in_use) && stderr.contains(&asked_for),
                "{held:?} {requested:?}: {stderr}"
            );
            let advice = match held.first() {
                Some(&("-s" | "-x")) => "give -s or -x here".to_owned(),
                // Redis does not tell a fair lock without a queue from a lock.
                Some(&"--fair") if stderr.contains("as a lock; ") => format!("leave {flag} out here"),
                Some(held) => format!("give {held} here"),
                None => format!("leave {flag} out here"),
            };
            assert!(stderr.contains(&advice), "{held:?} {requested:?}: {stderr}");
            assert!(stderr.contains(", or use another name"), "{held:?} {requested:?}: {stderr}");
        }
        assert_eq!(holder.code().await, 0);
    }
}

async fn a_store_that_hangs_does_not_delay_a_conflict(fixture: Fixture) {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let fixture = fixture.on(server.url());
    let holder = identified_holder(&fixture, &[]).await;
    let fixture = fixture.on(format!("{}?connect_timeout=1m&response_timeout=50s", proxy.url()));
    // The key of the record of the holder.
    proxy.hold_request(b"turnlock_client:");
    let start = Instant::now();
    let mut refused = fixture.run(&["-n", "-E", "9", "--json", "--watchdog", "3m"], &["true"]);
    let gave_up = refused.event_named("gave_up").await;
    within(ms(20_000), "the holders are queried", proxy.fired()).await;
    assert_eq!(gave_up["holders"], Value::Null, "{gave_up}");
    assert_eq!(refused.code().await, 9);
    // The request itself would time out after 50 s.
    in_time("the run ends", start, ms(25_000));
    assert_eq!(holder.code().await, 0);
}

async fn only_a_conflict_costs_a_query_of_the_holders(fixture: Fixture) {
    let server = RedisServer::start().await;
    let fixture = fixture.on(server.url()).with_long_connect_timeout();
    for flags in [&[][..], &["--json"], &["-v"], &["-n"]] {
        assert_eq!(fixture.run(flags, &["true"]).code().await, 0, "{flags:?}");
    }
    let _holder = fixture.hold(&[]).await;
    // Nothing of this is printed.
    for flags in [&["-n"][..], &["-q", "-n"], &["-w", "300ms"]] {
        assert_eq!(fixture.run(flags, &["true"]).code().await, 1, "{flags:?}");
    }
    let queries = async || server.calls().await.of("getrange");
    assert_eq!(queries().await, 0);
    assert_eq!(fixture.run(&["-n", "-v"], &["true"]).code().await, 1);
    assert_eq!(queries().await, 1);
}
