//! A lock that ends before its command does.

use std::time::Instant;

use rustix::process::Signal;
use turnlock_testkit::{RedisServer, eventually};

use super::signals::until_signal;
use crate::program::{between, runs};
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    who_stood_still_for_longer_than_the_lease_is_ended_on_waking,
    a_fixed_lease_ends_its_command_in_time,
    a_command_that_stays_is_killed_when_its_lock_ends,
    a_command_that_is_to_be_killed_hears_nothing_before,
    a_command_that_may_go_on_goes_on,
    a_lock_that_is_taken_away_ends_its_command,
    permits_end_their_command_as_well,
    descendants_go_too,
    a_renewed_lock_outlives_its_lease,
];

pub(crate) const REDIS_CASES: &[Case] =
    cases![a_store_that_is_gone_ends_the_command_in_time, who_is_in_a_hurry_is_not_told_what_nobody_knows];

const LOST: i32 = 79;

async fn who_stood_still_for_longer_than_the_lease_is_ended_on_waking(rig: Rig) {
    let mut program = rig.script(&["--watchdog", "600ms", "--json"], "trap '' TERM; echo $$; exec cat");
    let pid = program.number().await;
    program.signal(Signal::STOP);
    // On a store that several machines share, somebody else has it now; on one machine, what stands still is not dead.
    tokio::time::sleep(ms(700)).await;
    assert!(runs(pid), "nobody could end it");
    program.signal(Signal::CONT);
    program.event_named("killed").await;
    assert_eq!(program.code().await, LOST);
    assert!(!runs(pid));
}

async fn a_fixed_lease_ends_its_command_in_time(rig: Rig) {
    // At most a third of the lease before its end; later for one that needs less time.
    for (flags, told) in
        [(vec![], ms(1_800)..ms(2_970)), (vec!["--kill-after", "500ms"], ms(2_300)..ms(2_970))]
    {
        let flags = [&["--json", "--lease", "3s"], &flags[..]].concat();
        let mut program = rig.script(&flags, &until_signal("TERM", "echo told; exit 5"));
        program.expect("ready").await;
        let acquired = program.event_named("acquired").await;
        let losing = program.event_named("losing").await;
        assert!(told.contains(&between(&acquired, &losing)), "{flags:?}: {acquired} {losing}");
        program.expect("told").await;
        assert_eq!(program.code().await, LOST);
        assert!(rig.is_free(&[]).await);
    }
    let (code, words) = rig.run(&["--lease", "500ms"], &["sleep", "60"]).finish().await;
    assert_eq!(code, LOST);
    assert!(words.contains("about to be lost"), "{words}");
    // One that is done sooner has its own exit code.
    assert_eq!(rig.script(&["--lease", "10s"], "exit 5").finish().await, (5, String::new()));
}

async fn a_command_that_stays_is_killed_when_its_lock_ends(rig: Rig) {
    let mut program = rig.script(&["--lease", "1500ms", "--json"], "trap '' TERM; echo $$; exec cat");
    let pid = program.number().await;
    let acquired = program.event_named("acquired").await;
    program.event_named("losing").await;
    assert!(runs(pid));
    let killed = program.event_named("killed").await;
    // The time of the lock is counted from before it was asked for.
    let time = between(&acquired, &killed);
    assert!((ms(1_200)..ms(2_000)).contains(&time), "{time:?}");
    assert_eq!(program.code().await, LOST);
    assert!(!runs(pid));
}

async fn a_command_that_is_to_be_killed_hears_nothing_before(rig: Rig) {
    let flags = ["--lease", "500ms", "--on-lost", "kill"];
    let mut program = rig.script(&flags, &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    let output = program.output().await;
    assert_eq!((output.status.code(), output.stdout), (Some(LOST), vec![]));
}

async fn a_command_that_may_go_on_goes_on(rig: Rig) {
    let mut program =
        rig.script(&["--lease", "300ms", "--on-lost", "warn", "--json"], "echo $$; cat; exit 5");
    let pid = program.number().await;
    program.event_named("warning").await;
    eventually("somebody else has it", ms(5_000), async || rig.is_free(&[]).await).await;
    assert!(runs(pid));
    let (code, words) = program.finish().await;
    assert_eq!(code, 5, "{words}");
}

async fn a_lock_that_is_taken_away_ends_its_command(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name);
    let mut program = rig.script(&["--watchdog", "900ms"], &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    assert!(lock.force_unlock().await.unwrap());
    program.expect("told").await;
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST);
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

async fn permits_end_their_command_as_well(rig: Rig) {
    let flags = ["--permits", "1", "--lease", "2s"];
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
    let mut program = rig.script(&["--lease", "900ms"], &script);
    let pid = program.number().await;
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST, "{words}");
    assert!(start.elapsed() > ms(850), "{:?}: it had until the end", start.elapsed());
    eventually("the descendant ends", ms(2_000), async || !runs(pid)).await;
}

async fn a_renewed_lock_outlives_its_lease(rig: Rig) {
    let program = rig.hold(&["--watchdog", "1s"]).await;
    tokio::time::sleep(ms(2_000)).await;
    assert!(!rig.is_free(&[]).await);
    assert_eq!(program.finish().await, (0, String::new()));
}

async fn a_store_that_is_gone_ends_the_command_in_time(rig: Rig) {
    let mut server = RedisServer::start().await;
    let rig = rig.on(server.url());
    let mut program = rig.script(&["--watchdog", "1500ms"], &until_signal("TERM", "echo told; exit 5"));
    program.expect("ready").await;
    server.stop().await;
    let start = Instant::now();
    program.expect("told").await;
    assert!(start.elapsed() < ms(1_200), "{:?}", start.elapsed());
    let (code, words) = program.finish().await;
    assert_eq!(code, LOST, "{words}");
    // One that ends while the store is away keeps its exit code: the lock ends by itself.
    server.restart().await;
    let mut program = rig.script(&["--watchdog", "1500ms"], "echo ready; cat; exit 5");
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
