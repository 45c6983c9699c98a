//! Mutual exclusion and waiting.

use std::time::Instant;

use turnlock_testkit::{eventually, in_time};

use crate::fixture::{Fixture, ms};
use crate::program::{Program, between};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    fifty_processes_lose_no_increment,
    a_waiter_is_woken_by_the_release,
    nonblock_exits_with_the_conflict_code,
    wait_exits_with_the_conflict_code_after_its_limit,
    readers_share_and_writers_do_not,
    fair_locks_are_granted_in_order_of_arrival,
    every_kind_excludes_itself,
    permits_limit_the_number_of_commands,
    names_are_used_verbatim,
];

async fn fifty_processes_lose_no_increment(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let file = fixture.file("counter");
    std::fs::write(&file, "0\n").unwrap();
    let script = format!("read n <{0}; echo $((n + 1)) >{0}", file.display());
    let programs: Vec<Program> = (0..50).map(|_| fixture.script(&[], &script)).collect();
    for program in programs {
        assert_eq!(program.finish().await, (0, String::new()));
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "50\n");
}

async fn a_waiter_is_woken_by_the_release(fixture: Fixture) {
    let mut fastest = ms(10_000);
    for _ in 0..5 {
        let mut holder = fixture.hold(&["--json"]).await;
        let mut waiter = fixture.script(&["--json"], "echo mine");
        waiter.event_named("waiting").await;
        holder.close();
        let exited = holder.event_named("exited").await;
        let acquired = waiter.event_named("acquired").await;
        fastest = fastest.min(between(&exited, &acquired));
        waiter.expect("mine").await;
        assert_eq!((holder.code().await, waiter.code().await), (0, 0));
    }
    // Each waiter has just polled and would poll again after a second: the fastest was woken by a notification.
    assert!(fastest < ms(700), "{fastest:?}");
}

async fn nonblock_exits_with_the_conflict_code(fixture: Fixture) {
    let _holder = fixture.hold(&[]).await;
    for (flags, code) in
        [(vec!["-n"], 1), (vec!["--nb"], 1), (vec!["-n", "-E", "44"], 44), (vec!["--nonblock", "-w0"], 64)]
    {
        let start = Instant::now();
        let program = fixture.script(&flags, "echo no; exit 3");
        let output = program.output().await;
        assert_eq!(output.status.code(), Some(code), "{flags:?}");
        assert_eq!(output.stdout, b"", "{flags:?}");
        in_time("a run with --nonblock ends at once", start, ms(15_000));
    }
}

async fn wait_exits_with_the_conflict_code_after_its_limit(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let mut holder = fixture.hold(&[]).await;
    for (flags, code) in
        [(vec!["-w", "400ms"], 1), (vec!["--timeout", "0.4", "--conflict-exit-code", "0"], 0)]
    {
        let start = Instant::now();
        let (found, stderr) = fixture.script(&flags, "exit 3").finish().await;
        assert_eq!((found, stderr.as_str()), (code, ""), "{flags:?}");
        assert!(start.elapsed() >= ms(380), "{flags:?}: {:?}", start.elapsed());
        in_time("a run with --wait ends after its limit", start, ms(15_000));
    }
    let mut waiter = fixture.script(&["-w", "1m", "--json"], "exit 3");
    waiter.event_named("waiting").await;
    holder.close();
    assert_eq!(waiter.code().await, 3);
}

async fn readers_share_and_writers_do_not(fixture: Fixture) {
    let mut one = fixture.hold(&["-s"]).await;
    let two = fixture.hold(&["--shared"]).await;
    assert!(fixture.is_free(&["--read"]).await);
    assert!(!fixture.is_free(&["-x"]).await);
    one.close();
    assert_eq!(one.code().await, 0);
    assert!(!fixture.is_free(&["--exclusive"]).await);
    assert_eq!(two.code().await, 0);
    let writer = fixture.hold(&["--write"]).await;
    assert!(!fixture.is_free(&["-s"]).await);
    assert!(!fixture.is_free(&["-x"]).await);
    assert_eq!(writer.code().await, 0);
}

async fn fair_locks_are_granted_in_order_of_arrival(fixture: Fixture) {
    let lock = fixture.client().await.fair_lock(&fixture.name);
    let file = fixture.file("order");
    let holder = fixture.hold(&["--fair"]).await;
    let mut waiters = Vec::new();
    for number in 1..=4 {
        waiters.push(fixture.script(&["--fair"], &format!("echo {number} >>{}", file.display())));
        let queued = async || lock.inspect().await.unwrap().queue.len() == number;
        eventually("the run is in the queue", ms(10_000), queued).await;
    }
    assert_eq!(holder.code().await, 0);
    for waiter in waiters {
        assert_eq!(waiter.code().await, 0);
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "1\n2\n3\n4\n");
}

async fn every_kind_excludes_itself(fixture: Fixture) {
    for (number, kind) in ["--fair", "--fenced", "--plain", "--write"].iter().enumerate() {
        let name = format!("{}-{number}", fixture.name);
        let mut holder = Program::start(fixture.command(&[kind, &name, "sh", "-c", "echo held; exec cat"]));
        holder.expect("held").await;
        let rejected = Program::start(fixture.command(&[kind, "-n", &name, "true"]));
        assert_eq!(rejected.code().await, 1, "{kind}");
        assert_eq!(holder.code().await, 0, "{kind}");
        let next = Program::start(fixture.command(&[kind, "-n", &name, "true"]));
        assert_eq!(next.code().await, 0, "{kind}");
    }
}

async fn permits_limit_the_number_of_commands(fixture: Fixture) {
    let one = fixture.hold(&["--permits", "2"]).await;
    let two = fixture.hold(&["--permits", "2"]).await;
    assert!(!fixture.is_free(&["--permits", "2"]).await);
    let (code, stderr) = fixture.run(&["-n", "--permits", "3"], &["true"]).finish().await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("the number of permits was changed from 2 to 3"), "{stderr}");
    let (code, stderr) = fixture.run(&["-q", "-n", "--permits", "1"], &["true"]).finish().await;
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert_eq!((one.code().await, two.code().await), (0, 0));
    assert!(fixture.is_free(&["--permits", "1"]).await);
}

async fn names_are_used_verbatim(fixture: Fixture) {
    let long = "x".repeat(4_000);
    let hostile = ["a b", "a\nb", "\x1b[2J", "*", "a*", "?", "{a}", "$(false)", "-", "ü", "..", &long];
    let mut holders = Vec::new();
    for name in hostile {
        let name = format!("{}{name}", fixture.name);
        let script = r#"printf %s "$TURNLOCK_NAME" | wc -c; exec cat"#;
        let mut holder = Program::start(fixture.command(&["-n", &name, "sh", "-c", script]));
        assert_eq!(usize::try_from(holder.number().await), Ok(name.len()), "{name:?}");
        holders.push((name, holder));
    }
    for (name, holder) in holders {
        assert_eq!(Program::start(fixture.command(&["-n", &name, "true"])).code().await, 1, "{name:?}");
        assert_eq!(holder.code().await, 0, "{name:?}");
    }
}
