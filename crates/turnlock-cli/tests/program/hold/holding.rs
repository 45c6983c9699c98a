//! Acquiring the lock, and what is printed.

use std::time::Instant;

use serde_json::Value;
use turnlock_testkit::{eventually, in_time};

use super::start_hold;
use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_held_lock_is_printed_with_its_owner,
    a_fenced_lock_is_printed_with_its_token,
    json_has_the_owner_the_token_and_the_lease,
    a_held_lock_is_refused_without_waiting,
    a_wait_ends_with_the_lock_or_after_its_time,
    at_most_so_many_permits_are_held,
    a_hold_and_a_run_exclude_each_other,
    errors_have_the_exit_codes_of_run,
];

async fn a_held_lock_is_printed_with_its_owner(fixture: Fixture) {
    let (program, words) = start_hold(&fixture, &["--label", "nightly script"]).await;
    let client = fixture.client().await;
    let found = client.lock(&fixture.name).inspect().await.unwrap();
    assert_eq!(words, [found.holders[0].owner.to_string()]);
    let owner = found.holders[0].owner.clone();
    let identified = async || {
        let identities = client.identities(std::slice::from_ref(&owner)).await.unwrap();
        let identity = identities[0].as_ref();
        identity
            .is_some_and(|identity| identity.label == "nightly script" && identity.since_of(&owner).is_some())
    };
    eventually("the hold announces its label and since when it holds the lock", ms(10_000), identified).await;
    assert_eq!(program.finish().await, (0, String::new()));
}

async fn a_fenced_lock_is_printed_with_its_token(fixture: Fixture) {
    let mut last = 0;
    for _ in 0..3 {
        let (program, words) = start_hold(&fixture, &["--fenced"]).await;
        let [_owner, token] = &words[..] else { panic!("{words:?}") };
        let token: u64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        let found = fixture.client().await.fenced_lock(&fixture.name).inspect().await.unwrap();
        assert_eq!(found.token, Some(token));
        assert_eq!(program.code().await, 0);
    }
}

async fn json_has_the_owner_the_token_and_the_lease(fixture: Fixture) {
    for (flags, lease_ms, renewed) in [
        (&["--json", "--fenced", "--watchdog", "20s"][..], 20_000, true),
        (&["--json", "--lease", "15s"], 15_000, false),
    ] {
        let mut program = Program::start(fixture.hold_command(flags));
        let line: Value = serde_json::from_str(&program.line().await).unwrap();
        let acquired = program.event_named("acquired").await;
        assert_eq!(line["name"], fixture.name);
        assert_eq!((&line["owner"], &line["token"]), (&acquired["owner"], &acquired["token"]));
        assert_eq!((line["lease_ms"].as_u64(), line["renewed"].as_bool()), (Some(lease_ms), Some(renewed)));
        let valid_until = humantime::parse_rfc3339(line["valid_until"].as_str().unwrap()).unwrap();
        let acquired = crate::program::time_of(&acquired);
        let left = valid_until.duration_since(acquired).unwrap();
        assert!(left > ms(lease_ms / 2) && left < ms(lease_ms), "{line}: {left:?}");
        program.close();
        program.event_named("released").await;
        assert_eq!(program.code().await, 0);
    }
}

async fn a_held_lock_is_refused_without_waiting(fixture: Fixture) {
    let (holder, _) = start_hold(&fixture, &[]).await;
    for (flags, expected) in [(&["-n"][..], 1), (&["-n", "-E", "9"], 9), (&["-n", "-q"], 1)] {
        let output = Program::start(fixture.hold_command(flags)).output_with_open_stdin().await;
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(expected), &b""[..]), "{flags:?}");
    }
    assert_eq!(holder.code().await, 0);
}

async fn a_wait_ends_with_the_lock_or_after_its_time(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let (mut holder, _) = start_hold(&fixture, &[]).await;
    let start = Instant::now();
    let output = Program::start(fixture.hold_command(&["-w", "300ms"])).output_with_open_stdin().await;
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
    assert!(start.elapsed() >= ms(300));
    let mut waiter = Program::start(fixture.hold_command(&["--json"]));
    waiter.event_named("waiting").await;
    holder.close();
    waiter.event_named("acquired").await;
    assert_eq!(holder.code().await, 0);
    assert_eq!(waiter.code().await, 0);
}

async fn at_most_so_many_permits_are_held(fixture: Fixture) {
    let flags = ["--permits", "2"];
    let (first, first_words) = start_hold(&fixture, &flags).await;
    let (second, second_words) = start_hold(&fixture, &flags).await;
    assert_ne!(first_words, second_words);
    let third = || Program::start(fixture.hold_command(&[&flags[..], &["-n"]].concat()));
    assert_eq!(third().output_with_open_stdin().await.status.code(), Some(1));
    assert_eq!(first.code().await, 0);
    let (third, _) = start_hold(&fixture, &[&flags[..], &["-n"]].concat()).await;
    assert_eq!((second.code().await, third.code().await), (0, 0));
}

async fn a_hold_and_a_run_exclude_each_other(fixture: Fixture) {
    let (holder, _) = start_hold(&fixture, &["-x"]).await;
    assert!(!fixture.is_free(&["-x"]).await && !fixture.is_free(&["-s"]).await);
    assert_eq!(holder.code().await, 0);
    let run = fixture.hold(&["-s"]).await;
    let (reader, _) = start_hold(&fixture, &["-s", "-n"]).await;
    let writer = Program::start(fixture.hold_command(&["-x", "-n"]));
    assert_eq!(writer.output_with_open_stdin().await.status.code(), Some(1));
    assert_eq!((run.code().await, reader.code().await), (0, 0));
}

async fn errors_have_the_exit_codes_of_run(fixture: Fixture) {
    for (arguments, expected) in [
        (vec!["hold"], "<NAME>"),
        (vec!["hold", "--for", "1s", "--lease", "1s", "name"], "cannot be used with"),
        (vec!["hold", "--on-lost", "kill", "name"], "--on-lost"),
        (vec!["hold", "--for", "soon", "name"], "500ms"),
        (vec!["hold", "--at-least", "11y", "name"], "ten years"),
        (vec!["hold", "name", "command"], "command"),
        (vec!["--store", "memory://", "hold", "name"], "excludes no other process"),
    ] {
        let (code, stderr) = Program::start(fixture.turnlock(&arguments)).finish().await;
        assert_eq!(code, 64, "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    // No server listens on this port.
    let unreachable = fixture.turnlock(&["--store", "redis://127.0.0.1:1", "hold", "name"]);
    let start = Instant::now();
    let output = Program::start(unreachable).output_with_open_stdin().await;
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(69), &b""[..]));
    in_time("the hold fails", start, ms(10_000));
}
