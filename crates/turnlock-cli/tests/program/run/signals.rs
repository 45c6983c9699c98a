//! Signals: to the command, and to one that waits.

use std::process::Stdio;

use rustix::process::Signal;
use turnlock_testkit::eventually;

use crate::program::{Program, runs};
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    signals_reach_the_command,
    a_signal_ends_the_command_as_it_would_without_us,
    a_signal_ends_the_wait,
    an_ignored_signal_stays_ignored,
    a_command_that_stays_is_killed_if_that_was_said,
    what_the_command_sends_it_gets_once,
];

const SIGNALS: [(Signal, &str); 6] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

/// Sleeps until one of the signals comes, and does then what is said. What sleeps holds no output open.
pub(crate) fn until_signal(signals: &str, action: &str) -> String {
    format!("trap 'kill $!; {action}' {signals}; sleep 60 >/dev/null 2>&1 & echo ready; wait")
}

async fn signals_reach_the_command(rig: Rig) {
    for (signal, name) in SIGNALS {
        let mut program = rig.script(&[], &until_signal(name, &format!("echo {name}; exit 40")));
        program.expect("ready").await;
        program.signal(signal);
        program.expect(name).await;
        assert_eq!(program.finish().await, (40, String::new()), "{name}");
        assert!(rig.is_free(&[]).await, "{name}");
    }
}

async fn a_signal_ends_the_command_as_it_would_without_us(rig: Rig) {
    for (signal, name) in SIGNALS {
        let mut program = rig.hold(&["--json"]).await;
        program.signal(signal);
        let event = program.event_named("signal").await;
        assert_eq!((event["signal"].as_str(), event["forwarded"].as_bool()), (Some(name), Some(true)));
        let exited = program.event_named("exited").await;
        assert_eq!((&exited["code"], exited["signal"].as_str()), (&serde_json::Value::Null, Some(name)));
        assert_eq!(program.code().await, 128 + signal.as_raw(), "{name}");
        assert!(rig.is_free(&[]).await, "{name}");
    }
}

async fn a_signal_ends_the_wait(rig: Rig) {
    let lock = rig.client().await.fair_lock(&rig.name);
    let _holder = rig.hold(&["--fair"]).await;
    for (signal, name) in SIGNALS {
        let mut waiter = rig.script(&["--fair", "--json"], "echo never");
        waiter.event_named("waiting").await;
        let queued = async || lock.inspect().await.unwrap().queue.len() == 1;
        eventually("it stands in the queue", ms(10_000), queued).await;
        waiter.signal(signal);
        assert_eq!(waiter.event_named("signal").await["signal"], name);
        let output = waiter.output().await;
        assert_eq!(output.status.code(), Some(128 + signal.as_raw()), "{name}");
        assert_eq!(output.stdout, b"");
        assert_eq!(lock.inspect().await.unwrap().queue, [], "{name}: it has left the queue");
    }
}

async fn an_ignored_signal_stays_ignored(rig: Rig) {
    let mut holder = rig.hold(&[]).await;
    let ignoring = |script: &str| {
        let run = format!("exec {} run --json {} sh -c", env!("CARGO_BIN_EXE_turnlock"), rig.name);
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", &format!("trap '' HUP; {run} '{script}'")]).env("TURNLOCK_STORE", &rig.url);
        Program::start(shell)
    };
    let mut program = ignoring("kill -HUP $$; echo lives; exec cat");
    program.event_named("waiting").await;
    // The second is not ignored, and comes after the first: had that been heard, it would have ended the wait.
    program.signal(Signal::HUP);
    holder.close();
    program.expect("lives").await;
    program.signal(Signal::HUP);
    program.signal(Signal::TERM);
    assert_eq!(program.event_named("signal").await["signal"], "TERM");
    assert_eq!(program.code().await, 143);
}

async fn a_command_that_stays_is_killed_if_that_was_said(rig: Rig) {
    let deaf = "trap '' TERM INT; echo $$; exec cat";
    for signal in [Signal::TERM, Signal::INT] {
        let mut program = rig.script(&["--kill-after", "100ms", "--json"], deaf);
        let pid = program.number().await;
        program.signal(signal);
        program.event_named("killed").await;
        let (code, words) = program.finish().await;
        assert_eq!(code, 137, "{words}");
        assert!(!runs(pid));
    }
    let mut program = rig.script(&["--json"], deaf);
    let pid = program.number().await;
    program.signal(Signal::TERM);
    program.event_named("signal").await;
    assert!(runs(pid));
    assert_eq!(program.code().await, 0);
}

async fn what_the_command_sends_it_gets_once(rig: Rig) {
    let script = "n=0; trap 'n=$((n + 1))' USR1; kill -USR1 0; read line; echo $n";
    let mut command = rig.command(&["--json", &rig.name, "sh", "-c", script]);
    // A group of its own: we are not meant.
    command.process_group(0).stdin(Stdio::piped());
    let mut program = Program::start(command);
    assert_eq!(program.event_named("signal").await["forwarded"], false);
    program.write("\n").await;
    program.expect("1").await;
    assert_eq!(program.code().await, 0);
}
