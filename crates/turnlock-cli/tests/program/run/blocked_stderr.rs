//! Standard error is full and not read, as with a stuck log collector or a terminal after Ctrl-S.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use turnlock_testkit::eventually;

use super::successor::{Successor, repeat_if_inconclusive};
use crate::fixture::{Fixture, ms};
use crate::program::{Program, is_running};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![the_command_is_ended_before_its_lock, signals_and_renewals_continue, a_waiter_gets_the_lock,];

/// Waits until a pipe is full: the process `yes`, which writes to it, sleeps then.
pub(crate) async fn until_full(yes: i32) {
    let sleeps = async || {
        std::fs::read_to_string(format!("/proc/{yes}/stat")).is_ok_and(|stat| stat.contains("(yes) S "))
    };
    eventually("the pipe is full", ms(10_000), sleeps).await;
}

async fn the_command_is_ended_before_its_lock(fixture: Fixture) {
    tokio::join!(
        is_ended_before_its_lock(&fixture, "as JSON", &["--json"]),
        is_ended_before_its_lock(&fixture, "as text", &[]),
        is_ended_before_its_lock(&fixture, "without TERM", &["--on-lost", "kill"]),
    );
}

async fn is_ended_before_its_lock(fixture: &Fixture, how: &str, flags: &[&str]) {
    const LEASE: Duration = ms(10_000);
    let name = format!("{}, {how}", fixture.name);
    let lock = fixture.client().await.lock(&name);
    repeat_if_inconclusive(&format!("a command with a full stderr, {how}"), async || {
        let command = ["--lease", "10s", &name, "sh", "-c", "trap '' TERM; echo $$; exec yes >&2"];
        let mut program = Program::start(fixture.command(&[flags, &command].concat()));
        let pid = program.number().await;
        until_full(pid).await;
        assert!(is_running(pid) && lock.is_locked().await.unwrap(), "{how}");
        let exit = Successor::start(pid, lock.clone(), LEASE).await.check_exit().await;
        assert_eq!(program.code_without_reading_stderr().await, 79, "{how}");
        exit.unwrap_or_else(|late| panic!("{how}: {late}"))
    })
    .await;
}

async fn signals_and_renewals_continue(fixture: Fixture) {
    let script = "trap 'echo received' USR1; yes >&2 & echo $!; while kill -0 $!; do wait; done";
    let mut program = fixture.script(&["--json", "--watchdog", "3s"], script);
    until_full(program.number().await).await;
    let start = Instant::now();
    // Two leases: without renewals, the command would have got TERM.
    while start.elapsed() < ms(6_000) {
        program.signal(Signal::USR1);
        program.expect("received").await;
    }
    assert!(!fixture.is_free(&[]).await);
    program.signal(Signal::TERM);
    assert_eq!(program.code_without_reading_stderr().await, 128 + Signal::TERM.as_raw());
    assert!(fixture.is_free(&[]).await);
}

async fn a_waiter_gets_the_lock(fixture: Fixture) {
    let mut holder = fixture.hold(&[]).await;
    // Standard error is full before the program starts.
    let run = format!("exec {} run --json {} echo mine", env!("CARGO_BIN_EXE_turnlock"), fixture.name);
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &format!("yes >&2 & echo $!; read line; {run}")]).env("TURNLOCK_STORE", &fixture.url);
    let mut program = Program::start(shell);
    until_full(program.number().await).await;
    program.write("\n").await;
    holder.close();
    program.expect("mine").await;
    assert_eq!(program.code_without_reading_stderr().await, 0);
}
