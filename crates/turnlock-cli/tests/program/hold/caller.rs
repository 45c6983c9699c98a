//! The process that starts a hold: its standard input and output, and its end.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use turnlock_testkit::{eventually, within};

use super::{is_renewed_past, start_hold};
use crate::fixture::{Fixture, ms};
use crate::program::{Program, is_running};
use crate::run::blocked_stderr::until_full;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    closing_a_pipe_releases_the_lock,
    closing_a_socket_releases_the_lock,
    nothing_is_read_from_standard_input,
    a_standard_input_that_cannot_close_holds_until_a_signal,
    a_pipe_that_is_closed_at_the_start_takes_no_lock,
    closing_a_pipe_ends_the_wait,
    a_closed_standard_output_releases_the_lock,
    a_reader_that_leaves_after_the_line_ends_nothing,
    a_full_standard_output_delays_no_signal,
];

pub(crate) const BASH_CASES: &[Case] =
    cases![a_bash_script_holds_the_lock_with_a_coprocess, the_lock_is_released_when_the_script_is_killed];

/// Why bash is not available on this machine, if it is not.
pub(crate) fn bash_missing() -> Option<String> {
    let output = std::process::Command::new("bash").arg("--version").output();
    (!output.is_ok_and(|output| output.status.success())).then(|| "`bash` cannot be run".to_owned())
}

async fn closing_a_pipe_releases_the_lock(fixture: Fixture) {
    let (mut program, _) = start_hold(&fixture, &[]).await;
    assert!(!fixture.is_free(&[]).await);
    program.close();
    assert_eq!(program.finish().await, (0, String::new()));
    assert!(fixture.is_free(&[]).await);
}

/// Starts a hold with this standard input, waits until it has printed its line, and closes its standard output.
async fn start_with(fixture: &Fixture, stdin: Stdio) -> Child {
    let mut command = fixture.hold_command(&[]);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut start = [0; 5];
    let mut stdout = child.stdout.take().unwrap();
    within(ms(20_000), "the line", stdout.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"held ");
    child
}

/// Waits for the exit code and standard error of a hold.
async fn end_of(child: Child) -> (Option<i32>, String) {
    let output = within(ms(20_000), "the hold ends", child.wait_with_output()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

async fn closing_a_socket_releases_the_lock(fixture: Fixture) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let child = start_with(&fixture, OwnedFd::from(theirs).into()).await;
    drop(ours);
    assert_eq!(end_of(child).await, (Some(0), String::new()));
    assert!(fixture.is_free(&[]).await);
}

async fn nothing_is_read_from_standard_input(fixture: Fixture) {
    let mut shell = Program::start(fixture.shell("sh", "turnlock hold --for 200ms $NAME; cat"));
    shell.write("one\ntwo\n").await;
    assert!(shell.line().await.starts_with("held "));
    shell.write("three\n").await;
    for line in ["one", "two", "three"] {
        shell.expect(line).await;
    }
    assert_eq!(shell.code().await, 0);
}

async fn a_standard_input_that_cannot_close_holds_until_a_signal(fixture: Fixture) {
    let file = fixture.file("input");
    std::fs::write(&file, "").unwrap();
    for stdin in [Stdio::null(), File::open(&file).unwrap().into()] {
        let child = start_with(&fixture, stdin).await;
        holds_until_term(&fixture, child.id().unwrap()).await;
        assert_eq!(end_of(child).await, (Some(0), String::new()));
    }
    let mut command = fixture.shell("sh", "exec turnlock hold $NAME <&-");
    command.stdout(Stdio::piped());
    let mut closed = Program::start(command);
    assert!(closed.line().await.starts_with("held "));
    holds_until_term(&fixture, closed.pid.as_raw_nonzero().get().try_into().unwrap()).await;
    assert_eq!(closed.finish().await, (0, String::new()));
    assert!(fixture.is_free(&[]).await);
}

async fn holds_until_term(fixture: &Fixture, pid: u32) {
    // Another run that is refused has taken longer than the hold would need to see an end of its input.
    assert!(!fixture.is_free(&[]).await);
    assert!(is_running(pid.try_into().unwrap()));
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
}

async fn a_pipe_that_is_closed_at_the_start_takes_no_lock(fixture: Fixture) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    let mut command = fixture.hold_command(&["-E", "7"]);
    command.stdin(reader).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = within(ms(20_000), "the hold ends", command.output()).await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b""[..]), "{stderr}");
    assert!(stderr.contains("standard input was closed") && stderr.contains("</dev/null"), "{stderr}");
}

async fn closing_a_pipe_ends_the_wait(fixture: Fixture) {
    let lock = fixture.client().await.fair_lock(&fixture.name);
    let (holder, _) = start_hold(&fixture, &["--fair"]).await;
    let mut waiter = Program::start(fixture.hold_command(&["--fair", "--json"]));
    waiter.event_named("waiting").await;
    let queued = async || lock.inspect().await.unwrap().queue.len() == 1;
    eventually("the hold is in the queue", ms(10_000), queued).await;
    waiter.close();
    waiter.event_named("gave_up").await;
    assert_eq!(waiter.code().await, 1);
    assert_eq!(lock.inspect().await.unwrap().queue, [], "the hold has left the queue");
    assert_eq!(holder.code().await, 0);
}

async fn a_closed_standard_output_releases_the_lock(fixture: Fixture) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = fixture.hold_command(&["--at-least", "1m"]);
    let (stdin, _open) = std::io::pipe().unwrap();
    command.stdin(stdin).stdout(writer).stderr(Stdio::piped()).kill_on_drop(true);
    let (code, stderr) = end_of(command.spawn().unwrap()).await;
    assert_eq!(code, Some(70), "{stderr}");
    assert!(stderr.contains("standard output cannot be written"), "{stderr}");
    assert!(fixture.is_free(&[]).await);
}

async fn a_reader_that_leaves_after_the_line_ends_nothing(fixture: Fixture) {
    let mut child = start_with(&fixture, Stdio::piped()).await;
    assert!(!fixture.is_free(&[]).await);
    drop(child.stdin.take());
    assert_eq!(end_of(child).await, (Some(0), String::new()));
}

async fn a_full_standard_output_delays_no_signal(fixture: Fixture) {
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut yes = Command::new("yes").stdout(writer.try_clone().unwrap()).kill_on_drop(true).spawn().unwrap();
    until_full(yes.id().unwrap().try_into().unwrap()).await;
    let mut command = fixture.hold_command(&["--watchdog", "3s"]);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().unwrap();
    let lock = fixture.client().await.lock(&fixture.name);
    eventually("the lock is held", ms(20_000), async || lock.is_locked().await.unwrap()).await;
    is_renewed_past(&fixture, ms(3_000)).await;
    holds_until_term(&fixture, child.id().unwrap()).await;
    assert_eq!(end_of(child).await, (Some(0), String::new()));
    assert!(fixture.is_free(&[]).await);
    yes.kill().await.unwrap();
}

async fn a_bash_script_holds_the_lock_with_a_coprocess(fixture: Fixture) {
    for command in ["turnlock", "exec turnlock"] {
        let script = format!(
            r#"
            coproc LOCK {{ {command} hold --fenced "$NAME"; }}
            lock_pid=$LOCK_PID
            read -r held owner token <&"${{LOCK[0]}}" || exit 5
            echo "$held ${{owner:+owner}} ${{token:+token}}"
            read -r next
            exec {{LOCK[1]}}>&-
            wait "$lock_pid"
            echo "code $?"
            cat
            "#
        );
        let mut bash = Program::start(fixture.shell("bash", &script));
        bash.expect("held owner token").await;
        assert!(!fixture.is_free(&[]).await, "{command}");
        bash.write("\n").await;
        bash.expect("code 0").await;
        assert!(fixture.is_free(&[]).await, "{command}");
        assert_eq!(bash.finish().await, (0, String::new()));
    }
}

async fn the_lock_is_released_when_the_script_is_killed(fixture: Fixture) {
    // The script runs a command, which does not inherit the pipe.
    let script = r#"
        coproc LOCK { exec turnlock hold --watchdog 1h "$NAME"; }
        read -r held <&"${LOCK[0]}" || exit 5
        echo "$LOCK_PID"
        sleep 60 </dev/null >/dev/null 2>&1 &
        echo $!
        wait
    "#;
    let mut bash = Program::start(fixture.shell("bash", script));
    let (hold, child) = (bash.number().await, bash.number().await);
    assert!(!fixture.is_free(&[]).await);
    bash.signal(Signal::KILL);
    eventually("the hold ends", ms(20_000), async || !is_running(hold)).await;
    assert!(is_running(child));
    assert!(fixture.is_free(&[]).await, "released, and not left to its lease");
    rustix::process::kill_process(rustix::process::Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
}
