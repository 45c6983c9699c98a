//! Locks that are lost before the command exits.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::Value;
use turnlock::{Client, Lock};
use turnlock_testkit::{FaultProxy, RedisServer, StallMonitor, eventually, in_time};

use super::signals::until_signal;
use super::successor::{CommandExit, Successor, repeat_if_inconclusive};
use crate::fixture::{Fixture, ms};
use crate::program::{Program, between, can_execute, is_running, time_of};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_program_stopped_past_its_lease_kills_the_command_when_continued,
    a_fixed_lease_sends_term_before_it_ends,
    a_command_that_ignores_term_is_dead_before_the_next_grant,
    on_lost_kill_sends_no_term,
    on_lost_warn_lets_the_command_continue,
    a_forced_unlock_ends_the_command,
    a_forced_unlock_is_reported_once_with_its_cause,
    the_end_of_a_lease_is_reported_with_its_cause,
    a_forced_unlock_of_a_fixed_lease_ends_the_command,
    an_expired_permit_ends_the_command,
    descendants_are_killed_too,
    a_lock_is_renewed_past_its_lease,
];

pub(crate) const REDIS_CASES: &[Case] = cases![
    an_unavailable_store_sends_term_before_the_lease_ends,
    a_command_cut_off_from_the_store_is_dead_before_the_next_grant,
    a_frozen_store_delays_the_program_at_most_by_the_lease,
    a_restart_without_data_is_reported_with_its_cause,
    a_signal_during_the_release_reports_it_as_unconfirmed
];

pub(crate) const FILE_CASES: &[Case] = cases![a_removed_file_is_reported_with_its_cause];

const LOST: i32 = 79;

async fn a_program_stopped_past_its_lease_kills_the_command_when_continued(fixture: Fixture) {
    let mut program = fixture.script(&["--watchdog", "3s", "--json"], "trap '' TERM; echo $$; exec cat");
    let pid = program.number().await;
    program.signal(Signal::STOP);
    // Redis has expired the lock by now; on a file, a stopped process keeps it.
    tokio::time::sleep(ms(3_100)).await;
    assert!(is_running(pid), "the stopped program cannot end its command");
    program.signal(Signal::CONT);
    program.event_named("killed").await;
    assert_eq!(program.code().await, LOST);
    assert!(!is_running(pid));
}

async fn a_fixed_lease_sends_term_before_it_ends(fixture: Fixture) {
    // TERM is sent a tenth of the lease, or --kill-after, before the end. The lease starts before `acquired`.
    for (lease, flags, grace) in [(20_000, vec![], 2_000), (9_000, vec!["--kill-after", "5s"], 5_000)] {
        let time = format!("{lease}ms");
        let flags = [&["--json", "--lease", &time], &flags[..]].concat();
        let mut program = fixture.script(&flags, &until_signal("TERM", "echo term; exit 5"));
        program.expect("ready").await;
        let acquired = program.event_named("acquired").await;
        let losing = program.event_named("losing").await;
        let end = lease * 99 / 100;
        let expected = ms(end - 1_500 - grace)..ms(end);
        assert!(expected.contains(&between(&acquired, &losing)), "{flags:?}: {acquired} {losing}");
        assert!(losing["left_ms"].as_u64().is_some_and(|left| left <= grace), "{flags:?}: {losing}");
        program.expect("term").await;
        assert_eq!(program.code().await, LOST);
        assert!(fixture.is_free(&[]).await);
    }
    let (code, stderr) =
        fixture.run(&["--lease", "3s", "--kill-after", "2s"], &["sleep", "60"]).finish().await;
    assert_eq!(code, LOST);
    assert!(stderr.contains("about to be lost"), "{stderr}");
    // A command that exits before the end of the lease sets the exit code.
    assert_eq!(fixture.script(&["--lease", "10s"], "exit 5").finish().await, (5, String::new()));
}

/// With a lease of ten seconds, KILL is sent a tenth of a second before the store can grant the lock again, TERM much earlier.
const LONG_LEASE: Duration = ms(10_000);
const EARLY_TERM: [&str; 3] = ["--json", "--kill-after", "3s"];

async fn a_command_that_ignores_term_is_dead_before_the_next_grant(fixture: Fixture) {
    let client = fixture.client().await;
    repeat_if_inconclusive("a command that ignores TERM", async || {
        let flags = [&EARLY_TERM[..], &["--lease", "10s"]].concat();
        let program = fixture.script(&flags, "trap '' TERM; echo $$; exec cat");
        is_dead_before_the_next_grant(program, client.lock(&fixture.name)).await
    })
    .await;
}

async fn a_command_cut_off_from_the_store_is_dead_before_the_next_grant(fixture: Fixture) {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let client = Client::connect(&server.url()).await.unwrap();
    let fixture = fixture.on(proxy.url());
    repeat_if_inconclusive("a command cut off from the store", async || {
        proxy.pass();
        let flags = [&EARLY_TERM[..], &["--watchdog", "10s"]].concat();
        let mut program = fixture.script(&flags, "trap '' TERM; echo $$; exec cat");
        program.event_named("started").await;
        proxy.black_hole();
        is_dead_before_the_next_grant(program, client.lock(&fixture.name)).await
    })
    .await;
}

/// The command ignores TERM, and is dead by the time that another client gets the lock.
async fn is_dead_before_the_next_grant(mut program: Program, lock: Lock) -> CommandExit {
    let pid = program.number().await;
    let successor = Successor::start(pid, lock, LONG_LEASE).await;
    let losing = program.event_named("losing").await;
    let left = losing["left_ms"].as_u64().expect("a time");
    assert!(left <= 3_000, "{losing}");
    let killed_at = time_of(&losing) + ms(left);
    assert!(can_execute(pid) || SystemTime::now() >= killed_at, "it was killed early: {losing}");
    let exit = successor.check_exit().await;
    let (code, stderr) = program.finish().await;
    let exit = exit.unwrap_or_else(|late| panic!("{late}: {stderr}"));
    assert_eq!(code, LOST, "{stderr}");
    assert!(stderr.contains("\"killed\""), "{stderr}");
    exit
}

async fn on_lost_kill_sends_no_term(fixture: Fixture) {
    let flags = ["--lease", "3s", "--on-lost", "kill"];
    let mut program = fixture.script(&flags, &until_signal("TERM", "echo term; exit 5"));
    program.expect("ready").await;
    let output = program.output().await;
    assert_eq!((output.status.code(), output.stdout), (Some(LOST), vec![]));
}

async fn on_lost_warn_lets_the_command_continue(fixture: Fixture) {
    let mut program =
        fixture.script(&["--lease", "3s", "--on-lost", "warn", "--json"], "echo $$; cat; exit 5");
    let pid = program.number().await;
    program.event_named("warning").await;
    eventually("another run gets the lock", ms(10_000), async || fixture.is_free(&[]).await).await;
    assert!(is_running(pid));
    let (code, stderr) = program.finish().await;
    assert_eq!(code, 5, "{stderr}");
}

/// Unlocks a run by force, and returns its standard error.
async fn stderr_of_a_forced_unlock(fixture: &Fixture, flags: &[&str]) -> String {
    let mut program = fixture.script(flags, &until_signal("TERM", "echo term; exit 5"));
    program.expect("ready").await;
    assert!(fixture.client().await.lock(&fixture.name).force_unlock().await.unwrap());
    program.expect("term").await;
    let (code, stderr) = program.finish().await;
    assert_eq!(code, LOST);
    stderr
}

async fn a_forced_unlock_ends_the_command(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name);
    let stderr = stderr_of_a_forced_unlock(&fixture, &["--watchdog", "6s", "--kill-after", "2s"]).await;
    assert!(stderr.contains("released by force"), "{stderr}");
    // The loss is detected at the release.
    let mut program = fixture.script(&[], "echo ready; cat; exit 5");
    program.expect("ready").await;
    assert!(lock.force_unlock().await.unwrap());
    let (code, stderr) = program.finish().await;
    assert_eq!(code, LOST);
    assert!(stderr.contains("released by force"), "{stderr}");
    let mut program = fixture.script(&["--on-lost", "warn"], "echo ready; cat; exit 5");
    program.expect("ready").await;
    assert!(lock.force_unlock().await.unwrap());
    let (code, stderr) = program.finish().await;
    assert_eq!(code, 5);
    assert!(stderr.contains("released by force"), "{stderr}");
}

/// The events among the lines of standard error.
fn events_in(stderr: &str) -> Vec<Value> {
    let lines = stderr.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("an event")).collect()
}

/// The names of the events, without those that depend on timing: `waiting`, and `killed` after TERM.
fn names_of(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["event"].as_str().unwrap());
    names.filter(|name| !["waiting", "killed"].contains(name)).collect()
}

/// The expected report of a lost lock.
struct Report {
    /// The events with `--json`, in order.
    events: &'static [&'static str],
    cause: &'static str,
    reason: &'static str,
}

impl Report {
    /// Starts a run whose command exits on TERM.
    async fn start(fixture: &Fixture, flags: &[&str], json: bool) -> Program {
        let json: &[&str] = if json { &["--json"] } else { &[] };
        let mut program = fixture.script(&[flags, json].concat(), &until_signal("TERM", "exit 5"));
        program.expect("ready").await;
        program
    }

    async fn check(&self, program: Program, json: bool) {
        let (code, stderr) = program.finish().await;
        assert_eq!(code, LOST, "{stderr}");
        assert!(stderr.contains(self.reason), "{stderr}");
        if !json {
            let lost = stderr.split_once("the lock is lost").map_or("", |(_, later)| later);
            assert!(!lost.contains("is lost") && !lost.contains("be lost"), "{stderr}");
            return;
        }
        let events = events_in(&stderr);
        assert_eq!(names_of(&events), self.events, "{stderr}");
        let is_loss = |event: &&Value| event["event"] == "lost" || event["event"] == "losing";
        for event in events.iter().filter(is_loss) {
            assert_eq!(event["cause"], self.cause, "{event}");
            assert!(event["reason"].as_str().is_some_and(|text| text.contains(self.reason)), "{event}");
        }
    }
}

async fn a_forced_unlock_is_reported_once_with_its_cause(fixture: Fixture) {
    let report = Report {
        events: &["acquired", "started", "lost", "exited"],
        cause: "taken",
        reason: "released by force, or its key was deleted",
    };
    let lock = fixture.client().await.lock(&fixture.name);
    for json in [false, true] {
        let program = Report::start(&fixture, &["--watchdog", "6s"], json).await;
        assert!(lock.force_unlock().await.unwrap());
        report.check(program, json).await;
        let program = Report::start(&fixture, &["--watchdog", "6s"], json).await;
        let unlock = fixture.turnlock(&["unlock", "--force", "--yes", &fixture.name]);
        assert_eq!(Program::start(unlock).code().await, 0);
        report.check(program, json).await;
    }
}

async fn the_end_of_a_lease_is_reported_with_its_cause(fixture: Fixture) {
    let report = Report {
        events: &["acquired", "started", "losing", "exited", "released"],
        cause: "lease_ended",
        reason: "its lease ends",
    };
    for json in [false, true] {
        let program = Report::start(&fixture, &["--lease", "8s", "--kill-after", "4s"], json).await;
        report.check(program, json).await;
    }
}

const DATA_LOST: Report = Report {
    events: &["acquired", "started", "lost", "exited"],
    cause: "gone_after_reconnect",
    reason: "the store lost its data",
};

async fn a_restart_without_data_is_reported_with_its_cause(fixture: Fixture) {
    let mut server = RedisServer::start().await;
    let fixture = fixture.on(server.url());
    for json in [false, true] {
        let program = Report::start(&fixture, &["--watchdog", "9s"], json).await;
        server.restart().await;
        DATA_LOST.check(program, json).await;
    }
}

async fn a_removed_file_is_reported_with_its_cause(fixture: Fixture) {
    for json in [false, true] {
        let program = Report::start(&fixture, &["--watchdog", "6s"], json).await;
        std::fs::remove_file(fixture.file("locks")).unwrap();
        DATA_LOST.check(program, json).await;
    }
}

async fn a_frozen_store_delays_the_program_at_most_by_the_lease(fixture: Fixture) {
    let server = RedisServer::start().await;
    let fixture = fixture.on(server.url());
    let pauses = StallMonitor::watch();
    for json in [false, true] {
        let flags = ["--watchdog", "6s", "--kill-after", "2s", if json { "--json" } else { "--fenced" }];
        let mut program = fixture.script(&flags, &until_signal("TERM", "exit 5"));
        program.expect("ready").await;
        server.pause();
        let start = Instant::now();
        let (code, stderr) = program.finish().await;
        let end = Instant::now();
        server.resume();
        assert_eq!(code, LOST, "{stderr}");
        assert_ended_with_the_lease(&pauses, start, end, &stderr).await;
        if json {
            let events = events_in(&stderr);
            assert_eq!(names_of(&events), ["acquired", "started", "losing", "exited", "lost"], "{stderr}");
            let causes = events.iter().filter_map(|event| event["cause"].as_str());
            assert_eq!(causes.collect::<Vec<_>>(), ["not_renewed"; 2], "{stderr}");
        }
        assert_eq!(stderr.matches("the store confirmed no renewal for ").count(), 2, "{stderr}");
        let [losing, lost] = ["about to be lost", "is lost"].map(|text| stderr.find(text));
        assert!(losing <= lost && losing.is_some() != json, "{stderr}");
    }
    // A command that exits by itself: the program waits for the release at most until the lease ends.
    let mut program = fixture.script(&["--watchdog", "6s"], "echo ready; cat; exit 5");
    program.expect("ready").await;
    server.pause();
    let start = Instant::now();
    let (code, stderr) = program.finish().await;
    let end = Instant::now();
    server.resume();
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("not confirmed"), "{stderr}");
    assert_ended_with_the_lease(&pauses, start, end, &stderr).await;
}

/// Checks that a program with a lease of six seconds, last renewed before `start`, had ended with its lease at `end`.
async fn assert_ended_with_the_lease(pauses: &StallMonitor, start: Instant, end: Instant, stderr: &str) {
    const LEASE: Duration = ms(6_000);
    // Time for a busy machine to end a command and a program.
    const SLACK: Duration = ms(1_500);
    let stalled = pauses.between(start + LEASE, end).await;
    let time = end - start;
    assert!(
        time < LEASE + SLACK + stalled,
        "{time:?}, of which the machine stalled for {stalled:?}: {stderr}"
    );
}

/// The lock is checked every third of a fixed lease, so the loss is detected long before the lease ends.
async fn a_forced_unlock_of_a_fixed_lease_ends_the_command(fixture: Fixture) {
    let stderr = stderr_of_a_forced_unlock(&fixture, &["--lease", "9s", "--kill-after", "3s"]).await;
    assert!(stderr.lines().next().is_some_and(|first| first.contains("released by force")), "{stderr}");
}

async fn an_expired_permit_ends_the_command(fixture: Fixture) {
    let flags = ["--permits", "1", "--lease", "6s", "--kill-after", "3s"];
    let mut program = fixture.script(&flags, &until_signal("TERM", "echo term; exit 5"));
    program.expect("ready").await;
    program.expect("term").await;
    assert_eq!(program.code().await, LOST);
}

async fn descendants_are_killed_too(fixture: Fixture) {
    // The child ignores TERM, and is orphaned when the command exits.
    let child = "trap '' TERM; echo $$; exec sleep 60 >/dev/null 2>&1";
    let script = format!("sh -c \"{}\" & trap 'exit 5' TERM; wait", child.replace('$', "\\$"));
    let start = Instant::now();
    let mut program = fixture.script(&["--lease", "3s"], &script);
    let pid = program.number().await;
    let (code, stderr) = program.finish().await;
    assert_eq!(code, LOST, "{stderr}");
    assert!(start.elapsed() > ms(2_900), "{:?}: killed before the end of the lease", start.elapsed());
    eventually("the descendant ends", ms(10_000), async || !is_running(pid)).await;
}

async fn a_lock_is_renewed_past_its_lease(fixture: Fixture) {
    let program = fixture.hold(&["--watchdog", "3s"]).await;
    tokio::time::sleep(ms(5_000)).await;
    assert!(!fixture.is_free(&[]).await);
    assert_eq!(program.finish().await, (0, String::new()));
}

async fn an_unavailable_store_sends_term_before_the_lease_ends(fixture: Fixture) {
    let mut server = RedisServer::start().await;
    let fixture = fixture.on(server.url());
    let mut program = fixture
        .script(&["--watchdog", "9s", "--kill-after", "3s"], &until_signal("TERM", "echo term; exit 5"));
    program.expect("ready").await;
    server.stop().await;
    let start = Instant::now();
    program.expect("term").await;
    in_time("TERM is sent before the lease ends", start, ms(9_000));
    let (code, stderr) = program.finish().await;
    assert_eq!(code, LOST, "{stderr}");
    // A command that exits while the store is down sets the exit code: the lock ends with its lease.
    server.restart().await;
    let mut program = fixture.script(&["--watchdog", "6s"], "echo ready; cat; exit 5");
    program.expect("ready").await;
    server.stop().await;
    let (code, stderr) = program.finish().await;
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("not confirmed"), "{stderr}");
}

async fn a_signal_during_the_release_reports_it_as_unconfirmed(fixture: Fixture) {
    let server = RedisServer::start().await;
    let fixture = fixture.on(server.url());
    for flags in [&[][..], &["--at-least", "1m"]] {
        let mut program = fixture.script(&[flags, &["--json"]].concat(), "echo ready; cat; exit 5");
        program.expect("ready").await;
        program.event_named("started").await;
        server.pause();
        program.close();
        program.event_named("exited").await;
        program.signal(Signal::TERM);
        let (code, stderr) = program.finish().await;
        server.resume();
        assert_eq!(code, 5, "{stderr}");
        assert!(stderr.contains("not confirmed in time"), "{stderr}");
        assert!(!stderr.contains("\"released\"") && !stderr.contains("\"kept\""), "{stderr}");
        // The request that was sent takes effect later.
        let free = flags.is_empty();
        eventually("the store has processed the request", ms(10_000), async || {
            fixture.is_free(&[]).await == free
        })
        .await;
    }
}
