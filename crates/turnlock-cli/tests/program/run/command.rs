//! The command: what it gets, and what becomes of its end.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use turnlock_testkit::eventually;

use crate::program::{Program, runs};
use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    input_output_and_errors_are_those_of_the_program,
    the_command_knows_its_lock,
    the_exit_code_is_that_of_the_command,
    a_command_that_cannot_be_run_leaves_the_lock_free,
    words_after_the_command_are_its_own,
    a_command_does_not_outlive_the_program,
    nothing_is_started_for_a_parent_that_is_gone,
    a_program_whose_children_are_ignored_waits_all_the_same,
    at_least_so_long,
];

async fn input_output_and_errors_are_those_of_the_program(rig: Rig) {
    let mut program = rig.script(&[], "cat; echo aside >&2");
    program.write("through\nand through\n").await;
    let output = program.output().await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "through\nand through\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "aside\n");
    assert!(output.status.success());
    // A reader that goes away ends the command as it would without us.
    let head = rig.file("head");
    let script =
        format!("{} run {} yes | head -n 1 >{}", env!("CARGO_BIN_EXE_turnlock"), rig.name, head.display());
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", &script]).env("TURNLOCK_STORE", &rig.url);
    let (code, words) = Program::start(shell).finish().await;
    assert_eq!((code, words.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(head).unwrap(), "y\n");
}

async fn the_command_knows_its_lock(rig: Rig) {
    const TELL: &str = r#"echo "$TURNLOCK_NAME $TURNLOCK_OWNER ${TURNLOCK_TOKEN-none}"; exec cat"#;
    let mut command = rig.command(&[&rig.name, "sh", "-c", TELL]);
    // That of another lock, around this one.
    command.env("TURNLOCK_TOKEN", "17");
    let mut program = Program::start(command);
    let line = program.line().await;
    let [name, owner, token] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert_eq!((name, token), (rig.name.as_str(), "none"));
    let holders = rig.client().await.lock(&rig.name).inspect().await.unwrap().holders;
    assert_eq!(holders.iter().map(|holder| holder.owner.as_str()).collect::<Vec<_>>(), [owner]);
    assert_eq!(program.code().await, 0);

    let mut last = 0;
    for _ in 0..2 {
        let mut program = rig.script(&["--fenced"], "echo $TURNLOCK_TOKEN");
        let token: u64 = program.line().await.parse().expect("a token");
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(program.code().await, 0);
    }

    let slots = format!("{}-slots", rig.name);
    let mut program = Program::start(rig.command(&["--permits", "2", &slots, "sh", "-c", TELL]));
    let line = program.line().await;
    let permit = line.split(' ').nth(1).expect("an id");
    let holders = rig.client().await.permit_semaphore(&slots).inspect().await.unwrap().holders;
    assert_eq!(holders.iter().map(|holder| holder.owner.as_str()).collect::<Vec<_>>(), [permit]);
}

async fn the_exit_code_is_that_of_the_command(rig: Rig) {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        assert_eq!(rig.script(&[], script).finish().await, (code, String::new()), "{script}");
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("HUP", 129), ("PIPE", 141)] {
        assert_eq!(rig.script(&[], &format!("kill -{signal} $$")).code().await, code, "{signal}");
        assert!(rig.is_free(&[]).await, "{signal}");
    }
}

async fn a_command_that_cannot_be_run_leaves_the_lock_free(rig: Rig) {
    let file = rig.file("not-executable");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    let not_executable = file.to_str().unwrap();
    for (command, code) in [("turnlock-no-such-command", 127), (not_executable, 126), ("/", 126)] {
        let (found, words) = rig.run(&[], &[command]).finish().await;
        assert_eq!(found, code, "{command}: {words}");
        assert!(words.starts_with(&format!("turnlock: cannot run {command}: ")), "{words}");
        assert!(rig.is_free(&[]).await, "{command}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(rig.run(&[], &[not_executable]).code().await, 0);
}

async fn words_after_the_command_are_its_own(rig: Rig) {
    const TELL: &str = r#"echo "words: $*""#;
    for words in [
        vec![rig.name.as_str(), "sh", "-c", TELL, "sh", "-n", "--json", "--", "-w"],
        vec!["-q", &rig.name, "--", "sh", "-c", TELL, "sh", "-n", "--json", "--", "-w"],
        vec![&rig.name, "-w", "5s", "sh", "-c", TELL, "sh", "-n", "--json", "--", "-w"],
    ] {
        let mut program = Program::start(rig.command(&words));
        program.expect("words: -n --json -- -w").await;
        assert_eq!(program.finish().await, (0, String::new()), "{words:?}");
    }
}

async fn a_command_does_not_outlive_the_program(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name);
    // On a file, the lock of one who has died is free at once; elsewhere with its lease.
    let (lease, limit) = if rig.url.starts_with("file:") { ("1m", ms(5_000)) } else { ("3s", ms(8_000)) };
    let mut program = rig.script(&["--watchdog", lease], "echo $$; exec cat");
    let pid = program.number().await;
    assert!(runs(pid));
    program.signal(Signal::KILL);
    let is_free = async || lock.try_lock().await.unwrap().is_some();
    eventually("the lock is free", limit, is_free).await;
    eventually("the command ends", ms(5_000), async || !runs(pid)).await;
}

async fn nothing_is_started_for_a_parent_that_is_gone(rig: Rig) {
    let file = rig.file("started");
    for (parent, is_started) in [("1", false), (&*std::process::id().to_string(), true)] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_turnlock"));
        command.args(["__start", parent, "touch"]).arg(&file);
        Program::start(command).code().await;
        assert_eq!(file.exists(), is_started, "{parent}");
    }
}

async fn a_program_whose_children_are_ignored_waits_all_the_same(rig: Rig) {
    let mut program = tokio::process::Command::new("env");
    program.args([
        "--ignore-signal=CHLD",
        env!("CARGO_BIN_EXE_turnlock"),
        "run",
        &rig.name,
        "sh",
        "-c",
        "exit 7",
    ]);
    program.env("TURNLOCK_STORE", &rig.url);
    assert_eq!(Program::start(program).finish().await, (7, String::new()));
}

async fn at_least_so_long(rig: Rig) {
    let start = std::time::Instant::now();
    let (code, words) = rig.script(&["--at-least", "6s"], "exit 5").finish().await;
    assert_eq!((code, words.as_str()), (5, ""));
    assert!(start.elapsed() < ms(5_800), "the program does not wait for it");
    let second = rig.run(&["-w", "20s"], &["true"]);
    assert_eq!(second.code().await, 0);
    assert!(start.elapsed() > ms(5_950), "free after {:?}", start.elapsed());
    // One that takes longer has had its time.
    let (code, words) = rig.script(&["--at-least", "10ms"], "sleep 0.1").finish().await;
    assert_eq!((code, words.as_str()), (0, ""));
    assert!(rig.is_free(&[]).await);
}
