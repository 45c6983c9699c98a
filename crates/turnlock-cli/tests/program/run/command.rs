//! The command: its streams, environment and exit code.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use turnlock_testkit::eventually;

use crate::fixture::{Fixture, ms};
use crate::program::{Program, is_running};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    standard_streams_are_inherited,
    the_command_gets_the_lock_in_its_environment,
    the_exit_code_of_the_command_is_returned,
    the_lock_is_released_if_the_command_cannot_be_executed,
    flags_after_the_command_belong_to_it,
    the_command_is_killed_with_the_program,
    an_ignored_sigchld_does_not_prevent_waiting,
    at_least_holds_the_lock_after_the_command,
];

async fn standard_streams_are_inherited(fixture: Fixture) {
    let mut program = fixture.script(&[], "cat; echo aside >&2");
    program.write("through\nand through\n").await;
    let output = program.output().await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "through\nand through\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "aside\n");
    assert!(output.status.success());
    // A closed pipe ends the command as without turnlock.
    let head = fixture.file("head");
    let script = format!(
        "{} run {} yes | head -n 1 >{}",
        env!("CARGO_BIN_EXE_turnlock"),
        fixture.name,
        head.display()
    );
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &script]).env("TURNLOCK_STORE", &fixture.url);
    let (code, stderr) = Program::start(shell).finish().await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(head).unwrap(), "y\n");
}

async fn the_command_gets_the_lock_in_its_environment(fixture: Fixture) {
    const PRINT_LOCK: &str = r#"echo "$TURNLOCK_NAME $TURNLOCK_OWNER ${TURNLOCK_TOKEN-none}"; exec cat"#;
    let mut command = fixture.command(&[&fixture.name, "sh", "-c", PRINT_LOCK]);
    // Inherited from an outer lock.
    command.env("TURNLOCK_TOKEN", "17");
    let mut program = Program::start(command);
    let line = program.line().await;
    let [name, owner, token] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert_eq!((name, token), (fixture.name.as_str(), "none"));
    let holders = fixture.client().await.lock(&fixture.name).inspect().await.unwrap().holders;
    assert_eq!(holders.iter().map(|holder| holder.owner.as_str()).collect::<Vec<_>>(), [owner]);
    assert_eq!(program.code().await, 0);

    let mut last = 0;
    for _ in 0..2 {
        let mut program = fixture.script(&["--fenced"], "echo $TURNLOCK_TOKEN");
        let token: u64 = program.line().await.parse().expect("a token");
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(program.code().await, 0);
    }

    let slots = format!("{}-slots", fixture.name);
    let mut program = Program::start(fixture.command(&["--permits", "2", &slots, "sh", "-c", PRINT_LOCK]));
    let line = program.line().await;
    let permit = line.split(' ').nth(1).expect("an id");
    let holders = fixture.client().await.permit_semaphore(&slots).inspect().await.unwrap().holders;
    assert_eq!(holders.iter().map(|holder| holder.owner.as_str()).collect::<Vec<_>>(), [permit]);
}

async fn the_exit_code_of_the_command_is_returned(fixture: Fixture) {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        assert_eq!(fixture.script(&[], script).finish().await, (code, String::new()), "{script}");
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("HUP", 129), ("PIPE", 141)] {
        assert_eq!(fixture.script(&[], &format!("kill -{signal} $$")).code().await, code, "{signal}");
        assert!(fixture.is_free(&[]).await, "{signal}");
    }
}

async fn the_lock_is_released_if_the_command_cannot_be_executed(fixture: Fixture) {
    let file = fixture.file("not-executable");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    let not_executable = file.to_str().unwrap();
    for (command, code) in [("turnlock-no-such-command", 127), (not_executable, 126), ("/", 126)] {
        let (found, stderr) = fixture.run(&[], &[command]).finish().await;
        assert_eq!(found, code, "{command}: {stderr}");
        assert!(stderr.starts_with(&format!("turnlock: cannot run {command}: ")), "{stderr}");
        assert!(fixture.is_free(&[]).await, "{command}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fixture.run(&[], &[not_executable]).code().await, 0);
}

async fn flags_after_the_command_belong_to_it(fixture: Fixture) {
    const PRINT_ARGUMENTS: &str = r#"echo "arguments: $*""#;
    for arguments in [
        vec![fixture.name.as_str(), "sh", "-c", PRINT_ARGUMENTS, "sh", "-n", "--json", "--", "-w"],
        vec!["-q", &fixture.name, "--", "sh", "-c", PRINT_ARGUMENTS, "sh", "-n", "--json", "--", "-w"],
        vec![&fixture.name, "-w", "5s", "sh", "-c", PRINT_ARGUMENTS, "sh", "-n", "--json", "--", "-w"],
    ] {
        let mut program = Program::start(fixture.command(&arguments));
        program.expect("arguments: -n --json -- -w").await;
        assert_eq!(program.finish().await, (0, String::new()), "{arguments:?}");
    }
}

async fn the_command_is_killed_with_the_program(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name);
    // On a file, the lock of a dead process is released at once; on Redis it ends with its lease.
    let (lease, limit) = if fixture.url.starts_with("file:") { ("1m", ms(5_000)) } else { ("3s", ms(8_000)) };
    let mut program = fixture.script(&["--watchdog", lease], "echo $$; exec cat");
    let pid = program.number().await;
    assert!(is_running(pid));
    program.signal(Signal::KILL);
    let is_free = async || lock.try_lock().await.unwrap().acquired().is_some();
    eventually("the lock is free", limit, is_free).await;
    eventually("the command ends", ms(5_000), async || !is_running(pid)).await;
}

async fn an_ignored_sigchld_does_not_prevent_waiting(fixture: Fixture) {
    let mut program = tokio::process::Command::new("env");
    program.args([
        "--ignore-signal=CHLD",
        env!("CARGO_BIN_EXE_turnlock"),
        "run",
        &fixture.name,
        "sh",
        "-c",
        "exit 7",
    ]);
    program.env("TURNLOCK_STORE", &fixture.url);
    assert_eq!(Program::start(program).finish().await, (7, String::new()));
}

async fn at_least_holds_the_lock_after_the_command(fixture: Fixture) {
    let start = std::time::Instant::now();
    let (code, stderr) = fixture.script(&["--at-least", "6s"], "exit 5").finish().await;
    assert_eq!((code, stderr.as_str()), (5, ""));
    assert!(start.elapsed() < ms(5_800), "the program does not wait for --at-least");
    let second = fixture.run(&["-w", "20s"], &["true"]);
    assert_eq!(second.code().await, 0);
    assert!(start.elapsed() > ms(5_950), "released after {:?}", start.elapsed());
    // A command that takes longer than --at-least: the lock is released at once.
    let (code, stderr) = fixture.script(&["--at-least", "10ms"], "sleep 0.1").finish().await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(fixture.is_free(&[]).await);
}
