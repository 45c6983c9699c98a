//! A command whose file system does not reply, so that it cannot be executed yet.
//!
//! A file lease (`F_SETLEASE`) of another process has the same effect: it delays each open of the file, here by `exec`.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use turnlock_testkit::{TempDir, eventually};

use crate::fixture::{Fixture, ms};
use crate::program::{Program, is_running};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_command_that_is_not_executed_yet_ends_with_its_lock,
    signals_are_forwarded_before_the_command_is_executed,
    an_inherited_child_gets_no_signal,
    a_late_command_runs,
];

/// Takes a lease on a file until standard input is closed.
const LEASE: &str = "import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('leased', flush=True)
sys.stdin.read()";

/// Why files cannot be leased on this machine, if they cannot.
pub(crate) fn missing() -> Option<String> {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut lease = Command::new("python3");
    lease.args(["-c", LEASE]).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match lease.status() {
        Ok(status) if status.success() => None,
        _ => Some("no file leases: python3 cannot be run, or the file system has none".to_owned()),
    }
}

/// A script that prints `ran`, and the program that keeps it from being executed.
async fn leased_script(fixture: &Fixture) -> (String, Program) {
    let script = fixture.file("script");
    std::fs::write(&script, "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut lease = tokio::process::Command::new("python3");
    lease.args(["-c", LEASE]).arg(&script);
    let mut lease = Program::start(lease);
    lease.expect("leased").await;
    (script.to_str().unwrap().to_owned(), lease)
}

/// Waits until the program has this many children.
async fn until_children(program: &Program, count: usize) {
    let parent = program.pid.as_raw_nonzero().to_string();
    let is_child = |stat: &String| {
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        fields.is_some_and(|fields| fields.split(' ').nth(1) == Some(&parent))
    };
    let has_children = async || {
        let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("stat"));
        let children = processes.filter_map(|stat| std::fs::read_to_string(stat).ok()).filter(is_child);
        children.count() == count
    };
    eventually("the program has its children", ms(20_000), has_children).await;
}

async fn a_command_that_is_not_executed_yet_ends_with_its_lock(fixture: Fixture) {
    let (script, _lease) = leased_script(&fixture).await;
    for flags in [&["--lease", "2s", "--json"][..], &["--lease", "2s", "--on-lost", "kill", "--json"]] {
        let output = fixture.run(flags, &[&script]).output().await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(79), &b""[..]), "{stderr}");
        // The store ends the lock a safety margin after the program.
        eventually("the lock ends", ms(10_000), async || fixture.is_free(&[]).await).await;
    }
}

async fn signals_are_forwarded_before_the_command_is_executed(fixture: Fixture) {
    let (script, _lease) = leased_script(&fixture).await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut program = fixture.run(&["--json"], &[&script]);
        program.event_named("acquired").await;
        until_children(&program, 1).await;
        program.signal(signal);
        let event = program.event_named("signal").await;
        assert_eq!(event["forwarded"], true);
        let (code, stderr) = program.finish().await;
        assert_eq!(code, 128 + signal.as_raw(), "{stderr}");
        assert!(!stderr.contains("started"), "{stderr}");
        assert!(fixture.is_free(&[]).await);
    }
}

async fn an_inherited_child_gets_no_signal(fixture: Fixture) {
    let (script, _lease) = leased_script(&fixture).await;
    // A signal to the program, and the end of the lock.
    for (flags, signal, expected) in
        [("--json", Some(Signal::TERM), 143), ("--json --lease 2s --on-lost kill", None, 79)]
    {
        let run = format!("{} run {flags} {} {script}", env!("CARGO_BIN_EXE_turnlock"), fixture.name);
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", &format!("sleep 300 >/dev/null 2>&1 & echo $!; exec {run}")]);
        shell.env("TURNLOCK_STORE", &fixture.url);
        let mut program = Program::start(shell);
        let inherited = program.number().await;
        program.event_named("acquired").await;
        if let Some(signal) = signal {
            until_children(&program, 2).await;
            program.signal(signal);
        }
        let output = program.output().await;
        let survived = is_running(inherited);
        let _ = kill_process(Pid::from_raw(inherited).unwrap(), Signal::KILL);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(expected), &b""[..]), "{stderr}");
        assert!(survived, "{stderr}");
    }
}

async fn a_late_command_runs(fixture: Fixture) {
    let (script, mut lease) = leased_script(&fixture).await;
    // The lock is renewed meanwhile.
    let mut program = fixture.run(&["--watchdog", "2s", "--json"], &[&script]);
    program.event_named("acquired").await;
    until_children(&program, 1).await;
    tokio::time::sleep(ms(3_000)).await;
    lease.close();
    program.event_named("started").await;
    program.expect("ran").await;
    let (code, stderr) = program.finish().await;
    assert_eq!(code, 0, "{stderr}");
    assert!(!stderr.contains("lost"), "{stderr}");
}
