//! Signals, times and lost locks that end a hold.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use turnlock::Client;
use turnlock_testkit::{FaultProxy, RedisServer, eventually, in_time};

use super::{is_renewed_past, start_hold};
use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::run::successor::{CommandExit, Successor, repeat_if_inconclusive};
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_signal_releases_the_lock,
    a_signal_ends_the_wait_with_its_number,
    for_releases_the_lock_after_its_time,
    at_least_outlasts_the_hold,
    a_forced_unlock_exits_with_79,
    a_hold_stopped_past_its_lease_exits_with_79,
    a_fixed_lease_exits_before_its_end_and_is_held_until_then,
    a_lock_is_renewed_past_its_lease,
];

pub(crate) const REDIS_CASES: &[Case] = cases![
    a_hold_cut_off_from_the_store_exits_before_the_next_grant,
    a_release_that_is_not_confirmed_is_a_warning,
];

pub(crate) const TERMINAL_CASES: &[Case] = cases![ctrl_c_on_a_terminal_releases_the_lock];

const LOST: i32 = 79;

async fn a_signal_releases_the_lock(fixture: Fixture) {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        let mut program = Program::start(fixture.hold_command(&["--json"]));
        program.event_named("acquired").await;
        program.line().await;
        program.signal(signal);
        let event = program.event_named("signal").await;
        assert_eq!((event["signal"].as_str(), event["forwarded"].as_bool()), (Some(name), Some(false)));
        program.event_named("released").await;
        assert_eq!(program.output_with_open_stdin().await.status.code(), Some(0), "{name}");
        assert!(fixture.is_free(&[]).await, "{name}");
    }
}

async fn a_signal_ends_the_wait_with_its_number(fixture: Fixture) {
    let (holder, _) = start_hold(&fixture, &[]).await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut waiter = Program::start(fixture.hold_command(&["--json"]));
        waiter.event_named("waiting").await;
        waiter.signal(signal);
        let output = waiter.output_with_open_stdin().await;
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(128 + signal.as_raw()), &b""[..]));
    }
    assert_eq!(holder.code().await, 0);
}

async fn ctrl_c_on_a_terminal_releases_the_lock(fixture: Fixture) {
    let mut terminal = Terminal::run(&fixture, &fixture.hold_command(&["--json"]));
    terminal.shows(r#""valid_until""#).await;
    // The end of input of a terminal ends nothing: in the background, reading it would stop the program.
    terminal.press("\x04").await;
    assert!(!fixture.is_free(&[]).await);
    terminal.press("\x03").await;
    terminal.shows(r#""event":"released""#).await;
    assert_eq!(terminal.code().await, 0);
    assert!(fixture.is_free(&[]).await);
}

async fn for_releases_the_lock_after_its_time(fixture: Fixture) {
    let start = Instant::now();
    let (program, _) = start_hold(&fixture, &["--for", "2s"]).await;
    let output = program.output_with_open_stdin().await;
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    assert!(start.elapsed() >= ms(2_000), "{:?}", start.elapsed());
    in_time("the hold ends", start, ms(15_000));
    assert!(fixture.is_free(&[]).await);
    // A signal comes first.
    let (program, _) = start_hold(&fixture, &["--for", "1h"]).await;
    program.signal(Signal::TERM);
    assert_eq!(program.output_with_open_stdin().await.status.code(), Some(0));
}

async fn at_least_outlasts_the_hold(fixture: Fixture) {
    let mut program = Program::start(fixture.hold_command(&["--json", "--at-least", "5s"]));
    let start = Instant::now();
    program.line().await;
    program.close();
    let kept = program.event_named("kept").await;
    assert!(kept["for_ms"].as_u64().is_some_and(|time| time <= 5_000), "{kept}");
    assert_eq!(program.code().await, 0);
    assert!(!fixture.is_free(&[]).await || start.elapsed() > ms(4_900));
    eventually("the store releases the lock", ms(15_000), async || fixture.is_free(&[]).await).await;
    assert!(start.elapsed() >= ms(4_900), "{:?}", start.elapsed());
}

async fn a_forced_unlock_exits_with_79(fixture: Fixture) {
    let (program, _) = start_hold(&fixture, &["--watchdog", "6s"]).await;
    assert!(fixture.client().await.lock(&fixture.name).force_unlock().await.unwrap());
    let output = program.output_with_open_stdin().await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(LOST), "{stderr}");
    assert!(stderr.contains("the lock is lost: released by force"), "{stderr}");
    // The loss is detected at the release.
    let (program, _) = start_hold(&fixture, &[]).await;
    assert!(fixture.client().await.lock(&fixture.name).force_unlock().await.unwrap());
    let (code, stderr) = program.finish().await;
    assert_eq!(code, LOST);
    assert_eq!(stderr.matches("released by force").count(), 1, "{stderr}");
}

async fn a_hold_stopped_past_its_lease_exits_with_79(fixture: Fixture) {
    let (program, _) = start_hold(&fixture, &["--watchdog", "3s"]).await;
    program.signal(Signal::STOP);
    tokio::time::sleep(ms(3_100)).await;
    program.signal(Signal::CONT);
    let output = program.output_with_open_stdin().await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(LOST), "{stderr}");
    assert!(stderr.contains("the lock is lost: "), "{stderr}");
}

async fn a_fixed_lease_exits_before_its_end_and_is_held_until_then(fixture: Fixture) {
    const LEASE: Duration = ms(15_000);
    let lock = fixture.client().await.lock(&fixture.name);
    repeat_if_inconclusive("a fixed lease of a hold", async || {
        let start = Instant::now();
        let (program, _) = start_hold(&fixture, &["--lease", "15s"]).await;
        let output = program.output_with_open_stdin().await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(LOST), "{stderr}");
        assert!(stderr.contains("about to be lost: its lease ends; it ends in "), "{stderr}");
        // A process that has ended holds nothing on a file after a second.
        tokio::time::sleep(ms(1_000)).await;
        let is_held = lock.is_locked().await.unwrap();
        if start.elapsed() > LEASE * 98 / 100 {
            eventually("the lease ends", ms(10_000), async || !lock.is_locked().await.unwrap()).await;
            return CommandExit::Inconclusive;
        }
        assert!(is_held, "free after {:?}", start.elapsed());
        eventually("the lease ends", ms(10_000), async || !lock.is_locked().await.unwrap()).await;
        assert!(start.elapsed() >= LEASE * 98 / 100, "free after {:?}", start.elapsed());
        CommandExit::InTime
    })
    .await;
}

async fn a_lock_is_renewed_past_its_lease(fixture: Fixture) {
    let (program, _) = start_hold(&fixture, &["--watchdog", "3s"]).await;
    is_renewed_past(&fixture, ms(3_000)).await;
    assert_eq!(program.finish().await, (0, String::new()));
}

async fn a_hold_cut_off_from_the_store_exits_before_the_next_grant(fixture: Fixture) {
    const LEASE: Duration = ms(10_000);
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let client = Client::connect(&server.url()).await.unwrap();
    let fixture = fixture.on(proxy.url());
    repeat_if_inconclusive("a hold cut off from the store", async || {
        proxy.pass();
        let (program, _) = start_hold(&fixture, &["--watchdog", "10s"]).await;
        proxy.black_hole();
        let pid = program.pid.as_raw_nonzero().get();
        let successor = Successor::start(pid, client.lock(&fixture.name), LEASE).await;
        let (exit, output) = tokio::join!(successor.check_exit(), program.output_with_open_stdin());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(LOST), "{stderr}");
        assert!(stderr.contains("about to be lost: the store confirmed no renewal for "), "{stderr}");
        exit.unwrap_or_else(|late| panic!("{late}: {stderr}"))
    })
    .await;
}

async fn a_release_that_is_not_confirmed_is_a_warning(fixture: Fixture) {
    let server = RedisServer::start().await;
    let fixture = fixture.on(server.url());
    let (program, _) = start_hold(&fixture, &["--watchdog", "6s"]).await;
    server.pause();
    let (code, stderr) = program.finish().await;
    server.resume();
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("not confirmed in time"), "{stderr}");
}
