//! A lock that ends before its command does.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use serde_json::Value;
use turnlock::{Client, Lock};
use turnlock_testkit::{FaultProxy, Pauses, RedisServer, eventually, in_time};

use super::gone_first::{Gone, Successor, is_shown};
use super::signals::until_signal;
use crate::program::{Program, between, can_act, runs};
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    who_stood_still_for_longer_than_the_lease_is_ended_on_waking,
    a_fixed_lease_ends_its_command_in_time,
    a_command_that_stays_is_dead_before_another_has_the_lock,
    a_command_that_is_to_be_killed_hears_nothing_before,
    a_command_that_may_go_on_goes_on,
    a_lock_that_is_taken_away_ends_its_command,
    a_forced_unlock_is_named_and_told_once,
    the_end_of_a_lease_is_named,
    a_fixed_lease_that_is_taken_away_ends_its_command,
    permits_end_their_command_as_well,
    descendants_go_too,
    a_renewed_lock_outlives_its_lease,
];

pub(crate) const REDIS_CASES: &[Case] = cases![
    a_store_that_is_gone_ends_the_command_in_time,
    a_command_without_its_store_is_dead_before_another_has_the_lock,
    a_frozen_store_holds_the_program_up_no_longer_than_the_lease,
    a_restart_without_data_is_named,
    who_is_in_a_hurry_is_not_told_what_nobody_knows
];

pub(crate) const FILE_CASES: &[Case] = cases![a_removed_file_is_named];

const LOST: i32 = 79;

async fn who_stood_still_for_longer_than_the_lease_is_ended_on_waking(rig: Rig) {
    let mut program = rig.script(&["--watchdog", "3s", "--json"], "trap '' TERM; echo $$; exec cat");
    let pid = program.number().await;
    program.signal(Signal::STOP);
    // On a store that several machines share, somebody else has it now; on one machine, what stands still is not dead.
    tokio::time::sleep(ms(3_100)).await;
    assert!(runs(pid), "nobody could end it");
    program.signal(Signal::CONT);
    program.event_named("killed").await;
    assert_eq!(program.code().await, LOST);
    assert!(!runs(pid));
}

async fn a_fixed_lease_ends_its_command_in_time(rig: Rig) {
    // A tenth of the lease before its end, or as long as was asked for. The lease counts from before `acquired`.
    for (lease, flags, grace) in [(20_000, vec![], 2_000), (9_000, vec!["--kill-after", "5s"], 5_000)] {
        let time = format!("{lease}ms");
        let flags = [&["--json", "--lease", &time], &flags[..]].concat();
        let mut program = rig.script(&flags, &until_signal("TERM", "echo told; exit 5"));
        program.expect("ready").await;
        let acquired = program.event_named("acquired").await;
        let losing = program.event_named("losing").await;
        let end = lease * 99 / 100;
        let told = ms(end - 1_500 - grace)..ms(end);
        assert!(told.contains(&between(&acquired, &losing)), "{flags:?}: {acquired} {losing}");
        assert!(losing["left_ms"].as_u64().is_some_and(|left| left <= grace), "{flags:?}: {losing}");
        program.expect("told").await;
        assert_eq!(program.code().await, LOST);
        assert!(rig.is_free(&[]).await);
    }
    let (code, words) = rig.run(&["--lease", "3s", "--kill-after", "2s"], &["sleep", "60"]).finish().await;
    assert_eq!(code, LOST);
    assert!(words.contains("about to be lost"), "{words}");
    // One that is done sooner has its own exit code.
    assert_eq!(rig.script(&["--lease", "10s"], "exit 5").finish().await, (5, String::new()));
}

/// With a lease of ten seconds, KILL comes a tenth of a second before the store can hand the lock on. TERM comes long before that.
const LONG: Duration = ms(10_000);
const TERM_EARLY: [&str; 3] = ["--json", "--kill-after", "3s"];

async fn a_command_that_stays_is_dead_before_another_has_the_lock(rig: Rig) {
    let client = rig.client().await;
    is_shown("a command that stays", async || {
        let flags = [&TERM_EARLY[..], &["--lease", "10s"]].concat();
        let program = rig.script(&flags, "trap '' TERM; echo $$; exec cat");
        is_dead_before_another_has_the_lock(program, client.lock(&rig.name)).await
    })
    .await;
}

async fn a_command_without_its_store_is_dead_before_another_has_the_lock(rig: Rig) {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let client = Client::connect(&server.url()).await.unwrap();
    let rig = rig.on(proxy.url());
    is_shown("a command without its store", async || {
        proxy.pass();
        let flags = [&TERM_EARLY[..], &["--watchdog", "10s"]].concat();
        let mut program = rig.script(&flags, "trap '' TERM; echo $$; exec cat");
        program.event_named("started").await;
        proxy.black_hole();
        is_dead_before_another_has_the_lock(program, client.lock(&rig.name)).await
    })
    .await;
}

/// The command ignores TERM, has been told to end, and is dead by the time that another client gets the lock.
async fn is_dead_before_another_has_the_lock(mut program: Program, lock: Lock) -> Gone {
    let pid = program.number().await;
    let successor = Successor::of(pid, lock, LONG).await;
    let losing = program.event_named("losing").await;
    let left = losing["left_ms"].as_u64().expect("a time");
    assert!(left <= 3_000, "{losing}");
    let killed_at = SystemTime::UNIX_EPOCH + ms(losing["time"].as_u64().expect("a time") + left);
    assert!(can_act(pid) || SystemTime::now() >= killed_at, "it has time left: {losing}");
    let gone = successor.sees_it_gone().await;
    let (code, words) = program.finish().await;
    let gone = gone.unwrap_or_else(|late| panic!("{late}: {words}"));
    assert_eq!(code, LOST, "{words}");
    assert!(words.contains("\"killed\""), "{words}");
    gone
}

async fn a_command_that_is_to_be_killed_hears_nothing_before(rig: Rig) {
    let flags = ["--lease", "3s", "--on-lost", "kill"];
    let mut program = rig.script(&flags, &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    let output = program.output().await;
    assert_eq!((output.status.code(), output.stdout), (Some(LOST), vec![]));
}

async fn a_command_that_may_go_on_goes_on(rig: Rig) {
    let mut program = rig.script(&["--lease", "3s", "--on-lost", "warn", "--json"], "echo $$; cat; exit 5");
    let pid = program.number().await;
    program.event_named("warning").await;
    eventually("somebody else has it", ms(10_000), async || rig.is_free(&[]).await).await;
    assert!(runs(pid));
    let (code, words) = program.finish().await;
    assert_eq!(code, 5, "{words}");
}

/// What a program says whose lock is taken away, and which ends its command for it.
async fn words_of_a_lock_taken_away(rig: &Rig, flags: &[&str]) -> String {
    let mut program = rig.script(flags, &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    assert!(rig.client().await.lock(&rig.name).force_unlock().await.unwrap());
    program.expect("told").await;
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST);
    words
}

async fn a_lock_that_is_taken_away_ends_its_command(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name);
    let words = words_of_a_lock_taken_away(&rig, &["--watchdog", "6s", "--kill-after", "2s"]).await;
    assert!(words.contains("taken away"), "{words}");
    // Found out only when it is given back.
    let mut program = rig.script(&[], "echo ready; cat; exit 5");
    program.expect("ready").await;
    assert!(lock.force_unlock().await.unwrap());
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST);
    assert!(words.contains("taken away"), "{words}");
    let mut program = rig.script(&["--on-lost", "warn"], "echo ready; cat; exit 5");
    program.expect("ready").await;
    assert!(lock.force_unlock().await.unwrap());
    let (code, words) = program.finish().await;
    assert_eq!(code, 5);
    assert!(words.contains("taken away"), "{words}");
}

/// The events that a run reported, among what its command wrote.
fn events_in(words: &str) -> Vec<Value> {
    let lines = words.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("an event")).collect()
}

/// The names of events, without those that depend on the speed of the machine: a wait for the lock, and KILL after TERM.
fn names_of(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["event"].as_str().unwrap());
    names.filter(|name| !["waiting", "killed"].contains(name)).collect()
}

/// What is reported of a lost lock.
struct Report {
    /// The events that `--json` tells, in their order.
    events: &'static [&'static str],
    cause: &'static str,
    reason: &'static str,
}

impl Report {
    /// A command that ends on TERM, and reports as text or as JSON.
    async fn start(rig: &Rig, flags: &[&str], json: bool) -> Program {
        let json: &[&str] = if json { &["--json"] } else { &[] };
        let mut program = rig.script(&[flags, json].concat(), &until_signal("TERM", "exit 5"));
        program.expect("ready").await;
        program
    }

    async fn check(&self, program: Program, json: bool) {
        let (code, words) = program.finish().await;
        assert_eq!(code, LOST, "{words}");
        assert!(words.contains(self.reason), "{words}");
        if !json {
            let lost = words.split_once("the lock is lost").map_or("", |(_, later)| later);
            assert!(!lost.contains("is lost") && !lost.contains("be lost"), "{words}");
            return;
        }
        let told = events_in(&words);
        assert_eq!(names_of(&told), self.events, "{words}");
        let is_loss = |event: &&Value| event["event"] == "lost" || event["event"] == "losing";
        for event in told.iter().filter(is_loss) {
            assert_eq!(event["cause"], self.cause, "{event}");
            assert!(event["reason"].as_str().is_some_and(|text| text.contains(self.reason)), "{event}");
        }
    }
}

async fn a_forced_unlock_is_named_and_told_once(rig: Rig) {
    let report = Report {
        events: &["acquired", "started", "lost", "exited"],
        cause: "taken",
        reason: "taken away by force, or its key was removed",
    };
    let lock = rig.client().await.lock(&rig.name);
    for json in [false, true] {
        let program = Report::start(&rig, &["--watchdog", "6s"], json).await;
        assert!(lock.force_unlock().await.unwrap());
        report.check(program, json).await;
        let program = Report::start(&rig, &["--watchdog", "6s"], json).await;
        let unlock = rig.turnlock(&["unlock", "--force", "--yes", &rig.name]);
        assert_eq!(Program::start(unlock).code().await, 0);
        report.check(program, json).await;
    }
}

async fn the_end_of_a_lease_is_named(rig: Rig) {
    let report = Report {
        events: &["acquired", "started", "losing", "exited", "released"],
        cause: "lease_ended",
        reason: "its lease ends",
    };
    for json in [false, true] {
        let program = Report::start(&rig, &["--lease", "8s", "--kill-after", "4s"], json).await;
        report.check(program, json).await;
    }
}

const DATA_LOST: Report = Report {
    events: &["acquired", "started", "lost", "exited"],
    cause: "gone_after_reconnect",
    reason: "the store lost its data",
};

async fn a_restart_without_data_is_named(rig: Rig) {
    let mut server = RedisServer::start().await;
    let rig = rig.on(server.url());
    for json in [false, true] {
        let program = Report::start(&rig, &["--watchdog", "9s"], json).await;
        server.restart().await;
        DATA_LOST.check(program, json).await;
    }
}

async fn a_removed_file_is_named(rig: Rig) {
    for json in [false, true] {
        let program = Report::start(&rig, &["--watchdog", "6s"], json).await;
        std::fs::remove_file(rig.file("locks")).unwrap();
        DATA_LOST.check(program, json).await;
    }
}

async fn a_frozen_store_holds_the_program_up_no_longer_than_the_lease(rig: Rig) {
    let server = RedisServer::start().await;
    let rig = rig.on(server.url());
    let pauses = Pauses::watch();
    for json in [false, true] {
        let flags = ["--watchdog", "6s", "--kill-after", "2s", if json { "--json" } else { "--fenced" }];
        let mut program = rig.script(&flags, &until_signal("TERM", "exit 5"));
        program.expect("ready").await;
        server.pause();
        let start = Instant::now();
        let (code, words) = program.finish().await;
        let end = Instant::now();
        server.resume();
        assert_eq!(code, LOST, "{words}");
        ended_with_the_lease(&pauses, start, end, &words).await;
        if json {
            let told = events_in(&words);
            assert_eq!(names_of(&told), ["acquired", "started", "losing", "exited", "lost"], "{words}");
            let causes = told.iter().filter_map(|event| event["cause"].as_str());
            assert_eq!(causes.collect::<Vec<_>>(), ["not_renewed"; 2], "{words}");
        }
        assert_eq!(words.matches("no renewal was confirmed by the store for ").count(), 2, "{words}");
        let [losing, lost] = ["about to be lost", "is lost"].map(|text| words.find(text));
        assert!(losing <= lost && losing.is_some() != json, "{words}");
    }
    // A command that ends by itself: the release is waited for, and no longer than the lease.
    let mut program = rig.script(&["--watchdog", "6s"], "echo ready; cat; exit 5");
    program.expect("ready").await;
    server.pause();
    let start = Instant::now();
    let (code, words) = program.finish().await;
    let end = Instant::now();
    server.resume();
    assert_eq!(code, 5, "{words}");
    assert!(words.contains("not confirmed"), "{words}");
    ended_with_the_lease(&pauses, start, end, &words).await;
}

/// A program whose last renewal was before `start`, and which ended at `end`, did so with its lease of six seconds.
async fn ended_with_the_lease(pauses: &Pauses, start: Instant, end: Instant, words: &str) {
    const LEASE: Duration = ms(6_000);
    // What a loaded machine takes to end a command and a program.
    const SOON: Duration = ms(1_500);
    let stood_still = pauses.between(start + LEASE, end).await;
    let time = end - start;
    assert!(time < LEASE + SOON + stood_still, "{time:?}, and it stood still for {stood_still:?}: {words}");
}

/// Long before its lease ends: it is looked at once in a third of it.
async fn a_fixed_lease_that_is_taken_away_ends_its_command(rig: Rig) {
    let words = words_of_a_lock_taken_away(&rig, &["--lease", "9s", "--kill-after", "3s"]).await;
    assert!(words.lines().next().is_some_and(|first| first.contains("taken away")), "{words}");
}

async fn permits_end_their_command_as_well(rig: Rig) {
    let flags = ["--permits", "1", "--lease", "6s", "--kill-after", "3s"];
    let mut program = rig.script(&flags, &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    program.expect("told").await;
    assert_eq!(program.code().await, LOST);
}

async fn descendants_go_too(rig: Rig) {
    // Its child is deaf, and is left alone when it ends.
    let deaf = "trap '' TERM; echo $$; exec sleep 60 >/dev/null 2>&1";
    let script = format!("sh -c \"{}\" & trap 'exit 5' TERM; wait", deaf.replace('$', "\\$"));
    let start = Instant::now();
    let mut program = rig.script(&["--lease", "3s"], &script);
    let pid = program.number().await;
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST, "{words}");
    assert!(start.elapsed() > ms(2_900), "{:?}: it had until the end", start.elapsed());
    eventually("the descendant ends", ms(10_000), async || !runs(pid)).await;
}

async fn a_renewed_lock_outlives_its_lease(rig: Rig) {
    let program = rig.hold(&["--watchdog", "3s"]).await;
    tokio::time::sleep(ms(5_000)).await;
    assert!(!rig.is_free(&[]).await);
    assert_eq!(program.finish().await, (0, String::new()));
}

async fn a_store_that_is_gone_ends_the_command_in_time(rig: Rig) {
    let mut server = RedisServer::start().await;
    let rig = rig.on(server.url());
    let mut program =
        rig.script(&["--watchdog", "9s", "--kill-after", "3s"], &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    server.stop().await;
    let start = Instant::now();
    program.expect("told").await;
    in_time("it is told before the lease ends", start, ms(9_000));
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST, "{words}");
    // One that ends while the store is away keeps its exit code: the lock ends by itself.
    server.restart().await;
    let mut program = rig.script(&["--watchdog", "6s"], "echo ready; cat; exit 5");
    program.expect("ready").await;
    server.stop().await;
    let (code, words) = program.finish().await;
    assert_eq!(code, 5, "{words}");
    assert!(words.contains("not confirmed"), "{words}");
}

async fn who_is_in_a_hurry_is_not_told_what_nobody_knows(rig: Rig) {
    let server = RedisServer::start().await;
    let rig = rig.on(server.url());
    for flags in [&[][..], &["--at-least", "1m"]] {
        let mut program = rig.script(&[flags, &["--json"]].concat(), "echo ready; cat; exit 5");
        program.expect("ready").await;
        program.event_named("started").await;
        server.pause();
        program.close();
        program.event_named("exited").await;
        program.signal(Signal::TERM);
        let (code, words) = program.finish().await;
        server.resume();
        assert_eq!(code, 5, "{words}");
        assert!(words.contains("not confirmed in time"), "{words}");
        assert!(!words.contains("\"released\"") && !words.contains("\"kept\""), "{words}");
        // What was sent arrives after all.
        let free = flags.is_empty();
        eventually("the store goes on", ms(10_000), async || rig.is_free(&[]).await == free).await;
    }
}
