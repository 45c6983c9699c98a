//! Nobody reads standard error, and it is full: a log collector that is stuck, a terminal that was halted.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use turnlock_testkit::eventually;

use super::gone_first::{Successor, is_shown};
use crate::program::{Program, runs};
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    the_command_goes_before_its_lock_all_the_same,
    signals_and_renewals_go_on,
    who_waits_gets_the_lock,
];

/// Waits until standard error has room for nothing more: then this `yes`, which writes there, sleeps.
async fn until_full(yes: i32) {
    let waits = async || {
        std::fs::read_to_string(format!("/proc/{yes}/stat")).is_ok_and(|stat| stat.contains("(yes) S "))
    };
    eventually("standard error is full", ms(10_000), waits).await;
}

async fn the_command_goes_before_its_lock_all_the_same(rig: Rig) {
    tokio::join!(
        goes_before_its_lock(&rig, "as JSON", &["--json"]),
        goes_before_its_lock(&rig, "in words", &[]),
        goes_before_its_lock(&rig, "without TERM", &["--on-lost", "kill"]),
    );
}

async fn goes_before_its_lock(rig: &Rig, how: &str, flags: &[&str]) {
    const LEASE: Duration = ms(10_000);
    let name = format!("{}, {how}", rig.name);
    let lock = rig.client().await.lock(&name);
    is_shown(&format!("a command that is not read, {how}"), async || {
        let command = ["--lease", "10s", &name, "sh", "-c", "trap '' TERM; echo $$; exec yes >&2"];
        let mut program = Program::start(rig.command(&[flags, &command].concat()));
        let pid = program.number().await;
        until_full(pid).await;
        assert!(runs(pid) && lock.is_locked().await.unwrap(), "{how}");
        let gone = Successor::of(pid, lock.clone(), LEASE).await.sees_it_gone().await;
        assert_eq!(program.code_unread().await, 79, "{how}");
        gone.unwrap_or_else(|late| panic!("{how}: {late}"))
    })
    .await;
}

async fn signals_and_renewals_go_on(rig: Rig) {
    let script = "trap 'echo heard' USR1; yes >&2 & echo $!; while kill -0 $!; do wait; done";
    let mut program = rig.script(&["--json", "--watchdog", "3s"], script);
    until_full(program.number().await).await;
    let start = Instant::now();
    // Two leases: without renewals, the command would have been told to end.
    while start.elapsed() < ms(6_000) {
        program.signal(Signal::USR1);
        program.expect("heard").await;
    }
    assert!(!rig.is_free(&[]).await);
    program.signal(Signal::TERM);
    assert_eq!(program.code_unread().await, 128 + Signal::TERM.as_raw());
    assert!(rig.is_free(&[]).await);
}

async fn who_waits_gets_the_lock(rig: Rig) {
    let mut holder = rig.hold(&[]).await;
    // Full before the program begins.
    let run = format!("exec {} run --json {} echo mine", env!("CARGO_BIN_EXE_turnlock"), rig.name);
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &format!("yes >&2 & echo $!; read line; {run}")]).env("TURNLOCK_STORE", &rig.url);
    let mut program = Program::start(shell);
    until_full(program.number().await).await;
    program.write("\n").await;
    holder.close();
    program.expect("mine").await;
    assert_eq!(program.code_unread().await, 0);
}
