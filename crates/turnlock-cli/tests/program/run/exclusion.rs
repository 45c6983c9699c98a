//! Who excludes whom, and who waits how long.

use std::time::Instant;

use turnlock_testkit::{eventually, in_time};

use crate::program::{Program, between};
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    fifty_processes_lose_no_increment,
    a_waiter_goes_on_at_once,
    who_will_not_wait_is_told,
    who_waits_so_long_is_told_then,
    readers_share_and_writers_do_not,
    fair_turns_go_by_arrival,
    every_kind_excludes_itself,
    permits_let_so_many_in,
    a_name_is_taken_as_it_is,
];

async fn fifty_processes_lose_no_increment(rig: Rig) {
    let rig = rig.patient();
    let file = rig.file("counter");
    std::fs::write(&file, "0\n").unwrap();
    let script = format!("read n <{0}; echo $((n + 1)) >{0}", file.display());
    let programs: Vec<Program> = (0..50).map(|_| rig.script(&[], &script)).collect();
    for program in programs {
        assert_eq!(program.finish().await, (0, String::new()));
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "50\n");
}

async fn a_waiter_goes_on_at_once(rig: Rig) {
    let mut fastest = ms(10_000);
    for _ in 0..5 {
        let mut holder = rig.hold(&["--json"]).await;
        let mut waiter = rig.script(&["--json"], "echo mine");
        waiter.event_named("waiting").await;
        holder.close();
        let exited = holder.event_named("exited").await;
        let acquired = waiter.event_named("acquired").await;
        fastest = fastest.min(between(&exited, &acquired));
        waiter.expect("mine").await;
        assert_eq!((holder.code().await, waiter.code().await), (0, 0));
    }
    // Each has looked just before, and looks again after a second: the fastest was told.
    assert!(fastest < ms(700), "{fastest:?}");
}

async fn who_will_not_wait_is_told(rig: Rig) {
    let _holder = rig.hold(&[]).await;
    for (flags, code) in
        [(vec!["-n"], 1), (vec!["--nb"], 1), (vec!["-n", "-E", "44"], 44), (vec!["--nonblock", "-w0"], 64)]
    {
        let start = Instant::now();
        let program = rig.script(&flags, "echo no; exit 3");
        let output = program.output().await;
        assert_eq!(output.status.code(), Some(code), "{flags:?}");
        assert_eq!(output.stdout, b"", "{flags:?}");
        in_time("it does not wait", start, ms(15_000));
    }
}

async fn who_waits_so_long_is_told_then(rig: Rig) {
    let rig = rig.patient();
    let mut holder = rig.hold(&[]).await;
    for (flags, code) in
        [(vec!["-w", "400ms"], 1), (vec!["--timeout", "0.4", "--conflict-exit-code", "0"], 0)]
    {
        let start = Instant::now();
        let (found, words) = rig.script(&flags, "exit 3").finish().await;
        assert_eq!((found, words.as_str()), (code, ""), "{flags:?}");
        assert!(start.elapsed() >= ms(380), "{flags:?}: {:?}", start.elapsed());
        in_time("it waits no longer", start, ms(15_000));
    }
    let mut patient = rig.script(&["-w", "1m", "--json"], "exit 3");
    patient.event_named("waiting").await;
    holder.close();
    assert_eq!(patient.code().await, 3);
}

async fn readers_share_and_writers_do_not(rig: Rig) {
    let mut one = rig.hold(&["-s"]).await;
    let two = rig.hold(&["--shared"]).await;
    assert!(rig.is_free(&["--read"]).await);
    assert!(!rig.is_free(&["-x"]).await);
    one.close();
    assert_eq!(one.code().await, 0);
    assert!(!rig.is_free(&["--exclusive"]).await);
    assert_eq!(two.code().await, 0);
    let writer = rig.hold(&["--write"]).await;
    assert!(!rig.is_free(&["-s"]).await);
    assert!(!rig.is_free(&["-x"]).await);
    assert_eq!(writer.code().await, 0);
}

async fn fair_turns_go_by_arrival(rig: Rig) {
    let lock = rig.client().await.fair_lock(&rig.name);
    let file = rig.file("order");
    let holder = rig.hold(&["--fair"]).await;
    let mut waiters = Vec::new();
    for number in 1..=4 {
        waiters.push(rig.script(&["--fair"], &format!("echo {number} >>{}", file.display())));
        let queued = async || lock.inspect().await.unwrap().queue.len() == number;
        eventually("it stands in the queue", ms(10_000), queued).await;
    }
    assert_eq!(holder.code().await, 0);
    for waiter in waiters {
        assert_eq!(waiter.code().await, 0);
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "1\n2\n3\n4\n");
}

async fn every_kind_excludes_itself(rig: Rig) {
    for (number, kind) in ["--fair", "--fenced", "--plain", "--write"].iter().enumerate() {
        let name = format!("{}-{number}", rig.name);
        let mut holder = Program::start(rig.command(&[kind, &name, "sh", "-c", "echo held; exec cat"]));
        holder.expect("held").await;
        let refused = Program::start(rig.command(&[kind, "-n", &name, "true"]));
        assert_eq!(refused.code().await, 1, "{kind}");
        assert_eq!(holder.code().await, 0, "{kind}");
        let next = Program::start(rig.command(&[kind, "-n", &name, "true"]));
        assert_eq!(next.code().await, 0, "{kind}");
    }
}

async fn permits_let_so_many_in(rig: Rig) {
    let one = rig.hold(&["--permits", "2"]).await;
    let two = rig.hold(&["--permits", "2"]).await;
    assert!(!rig.is_free(&["--permits", "2"]).await);
    let (code, words) = rig.run(&["-n", "--permits", "3"], &["true"]).finish().await;
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("there were 2 permits and now there are 3"), "{words}");
    let (code, words) = rig.run(&["-q", "-n", "--permits", "1"], &["true"]).finish().await;
    assert_eq!((code, words.as_str()), (1, ""));
    assert_eq!((one.code().await, two.code().await), (0, 0));
    assert!(rig.is_free(&["--permits", "1"]).await);
}

async fn a_name_is_taken_as_it_is(rig: Rig) {
    let long = "x".repeat(4_000);
    let hostile = ["a b", "a\nb", "\x1b[2J", "*", "a*", "?", "{a}", "$(false)", "-", "ü", "..", &long];
    let mut holders = Vec::new();
    for name in hostile {
        let name = format!("{}{name}", rig.name);
        let script = r#"printf %s "$TURNLOCK_NAME" | wc -c; exec cat"#;
        let mut holder = Program::start(rig.command(&["-n", &name, "sh", "-c", script]));
        assert_eq!(usize::try_from(holder.number().await), Ok(name.len()), "{name:?}");
        holders.push((name, holder));
    }
    for (name, holder) in holders {
        assert_eq!(Program::start(rig.command(&["-n", &name, "true"])).code().await, 1, "{name:?}");
        assert_eq!(holder.code().await, 0, "{name:?}");
    }
}
