//! Signals during the command and during the wait.

use std::process::Stdio;

use rustix::process::Signal;
use turnlock_testkit::eventually;

use crate::fixture::{Fixture, ms};
use crate::program::{Program, is_running};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    signals_are_forwarded_to_the_command,
    a_command_ended_by_a_signal_sets_the_exit_code,
    a_signal_ends_the_wait,
    an_ignored_signal_stays_ignored,
    a_command_that_ignores_term_is_killed_only_with_kill_after,
    a_signal_of_the_command_to_its_group_is_not_forwarded,
];

const SIGNALS: [(Signal, &str); 6] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

/// A script that sleeps until one of the signals, and then runs `action`. The sleep has no output open. A signal to the group
/// may have ended it before the trap runs.
pub(crate) fn until_signal(signals: &str, action: &str) -> String {
    format!("trap 'kill $! 2>/dev/null; {action}' {signals}; sleep 60 >/dev/null 2>&1 & echo ready; wait")
}

async fn signals_are_forwarded_to_the_command(fixture: Fixture) {
    for (signal, name) in SIGNALS {
        let mut program = fixture.script(&[], &until_signal(name, &format!("echo {name}; exit 40")));
        program.expect("ready").await;
        program.signal(signal);
        program.expect(name).await;
        assert_eq!(program.finish().await, (40, String::new()), "{name}");
        assert!(fixture.is_free(&[]).await, "{name}");
    }
}

async fn a_command_ended_by_a_signal_sets_the_exit_code(fixture: Fixture) {
    for (signal, name) in SIGNALS {
        let mut program = fixture.hold(&["--json"]).await;
        program.signal(signal);
        let event = program.event_named("signal").await;
        assert_eq!((event["signal"].as_str(), event["forwarded"].as_bool()), (Some(name), Some(true)));
        let exited = program.event_named("exited").await;
        assert_eq!((&exited["code"], exited["signal"].as_str()), (&serde_json::Value::Null, Some(name)));
        assert_eq!(program.code().await, 128 + signal.as_raw(), "{name}");
        assert!(fixture.is_free(&[]).await, "{name}");
    }
}

async fn a_signal_ends_the_wait(fixture: Fixture) {
    let lock = fixture.client().await.fair_lock(&fixture.name);
    let _holder = fixture.hold(&["--fair"]).await;
    for (signal, name) in SIGNALS {
        let mut waiter = fixture.script(&["--fair", "--json"], "echo never");
        waiter.event_named("waiting").await;
        let queued = async || lock.inspect().await.unwrap().queue.len() == 1;
        eventually("the run is in the queue", ms(10_000), queued).await;
        waiter.signal(signal);
        assert_eq!(waiter.event_named("signal").await["signal"], name);
        let output = waiter.output().await;
        assert_eq!(output.status.code(), Some(128 + signal.as_raw()), "{name}");
        assert_eq!(output.stdout, b"");
        assert_eq!(lock.inspect().await.unwrap().queue, [], "{name}: the run has left the queue");
    }
}

async fn an_ignored_signal_stays_ignored(fixture: Fixture) {
    let mut holder = fixture.hold(&[]).await;
    let ignoring = |script: &str| {
        let run = format!("exec {} run --json {} sh -c", env!("CARGO_BIN_EXE_turnlock"), fixture.name);
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", &format!("trap '' HUP; {run} '{script}'")]).env("TURNLOCK_STORE", &fixture.url);
        Program::start(shell)
    };
    let mut program = ignoring("kill -HUP $$; echo alive; exec cat");
    program.event_named("waiting").await;
    // If HUP were handled, it would end the wait, and later be reported before TERM.
    program.signal(Signal::HUP);
    holder.close();
    program.expect("alive").await;
    program.signal(Signal::HUP);
    program.signal(Signal::TERM);
    assert_eq!(program.event_named("signal").await["signal"], "TERM");
    assert_eq!(program.code().await, 143);
}

async fn a_command_that_ignores_term_is_killed_only_with_kill_after(fixture: Fixture) {
    let ignores_term = "trap '' TERM INT; echo $$; exec cat";
    for signal in [Signal::TERM, Signal::INT] {
        let mut program = fixture.script(&["--kill-after", "100ms", "--json"], ignores_term);
        let pid = program.number().await;
        program.signal(signal);
        program.event_named("killed").await;
        let (code, stderr) = program.finish().await;
        assert_eq!(code, 137, "{stderr}");
        assert!(!is_running(pid));
    }
    let mut program = fixture.script(&["--json"], ignores_term);
    let pid = program.number().await;
    program.signal(Signal::TERM);
    program.event_named("signal").await;
    assert!(is_running(pid));
    assert_eq!(program.code().await, 0);
}

async fn a_signal_of_the_command_to_its_group_is_not_forwarded(fixture: Fixture) {
    let script = "n=0; trap 'n=$((n + 1))' USR1; kill -USR1 0; read line; echo $n";
    let mut command = fixture.command(&["--json", &fixture.name, "sh", "-c", script]);
    // A process group of its own, so that the test does not get the signal.
    command.process_group(0).stdin(Stdio::piped());
    let mut program = Program::start(command);
    assert_eq!(program.event_named("signal").await["forwarded"], false);
    program.write("\n").await;
    program.expect("1").await;
    assert_eq!(program.code().await, 0);
}
