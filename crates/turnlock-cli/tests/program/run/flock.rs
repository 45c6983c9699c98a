//! `turnlock run` beside flock(1): the same arguments, and the same outcome where it is documented to be the same.

use std::process::Output;

use tokio::process::Command;
use turnlock_testkit::eventually;

use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    exit_codes_are_those_of_flock,
    conflicts_are_those_of_flock,
    shared_and_exclusive_locks_exclude_as_with_flock,
    shell_commands_run_as_with_flock,
    a_child_in_the_background_holds_no_lock_unlike_with_flock,
    verbose_reports_the_lock_and_the_command_as_flock_does,
    options_of_flock_that_need_a_file_are_refused,
    every_option_of_flock_is_documented,
];

const DOCUMENTATION: &str = include_str!("../../../../../docs/program.md");

/// Why flock(1) is not available on this machine, if it is not.
pub(crate) fn missing() -> Option<String> {
    match std::process::Command::new("flock").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        _ => Some("`flock` cannot be run".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Flock,
    Turnlock,
}

impl Tool {
    const BOTH: [Self; 2] = [Self::Flock, Self::Turnlock];

    /// `flock FLAGS… FILE COMMAND…` or `turnlock run FLAGS… NAME COMMAND…`, not started yet.
    fn command(self, fixture: &Fixture, flags: &[&str], command: &[&str]) -> Command {
        match self {
            Self::Flock => {
                let mut flock = Command::new("flock");
                flock.args(flags).arg(fixture.file(&fixture.name)).args(command);
                flock
            }
            Self::Turnlock => fixture.command(&[flags, &[&fixture.name], command].concat()),
        }
    }

    async fn run(self, fixture: &Fixture, flags: &[&str], command: &[&str]) -> Output {
        Program::start(self.command(fixture, flags, command)).output().await
    }

    /// Starts a command that holds the lock until its input is closed.
    async fn hold(self, fixture: &Fixture, flags: &[&str]) -> Program {
        let mut holder = Program::start(self.command(fixture, flags, &["sh", "-c", "echo held; exec cat"]));
        holder.expect("held").await;
        holder
    }
}

/// Runs both, and returns the exit code and the output that they have in common.
async fn both(fixture: &Fixture, flags: &[&str], command: &[&str]) -> (Option<i32>, String) {
    let flock = Tool::Flock.run(fixture, flags, command).await;
    let turnlock = Tool::Turnlock.run(fixture, flags, command).await;
    assert_eq!(turnlock.status.code(), flock.status.code(), "{flags:?} {command:?}: {turnlock:?} {flock:?}");
    assert_eq!(turnlock.stdout, flock.stdout, "{flags:?} {command:?}: {turnlock:?} {flock:?}");
    (turnlock.status.code(), String::from_utf8(turnlock.stdout).unwrap())
}

async fn exit_codes_are_those_of_flock(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    for (flags, command, expected) in [
        (&[][..], &["sh", "-c", "exit 7"][..], 7),
        (&[], &["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["-n"], &["true"], 0),
        (&["-w", "5"], &["true"], 0),
        (&["-w", "0"], &["true"], 0),
        (&["-E", "0"], &["false"], 1),
        (&["-E", "300"], &["true"], 64),
        (&["-E", "x"], &["true"], 64),
        (&["-w", "x"], &["true"], 64),
        (&["--no-such-option"], &["true"], 64),
        (&[], &[], 64),
    ] {
        assert_eq!(both(&fixture, flags, command).await.0, Some(expected), "{flags:?} {command:?}");
    }
    // What follows the command belongs to it.
    assert_eq!(both(&fixture, &["-n"], &["echo", "-n", "-x"]).await, (Some(0), "-x".to_owned()));
    // Documented differences.
    assert_eq!(Tool::Flock.run(&fixture, &[], &["no-such-command"]).await.status.code(), Some(69));
    assert_eq!(Tool::Turnlock.run(&fixture, &[], &["no-such-command"]).await.status.code(), Some(127));
}

async fn conflicts_are_those_of_flock(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let holders = [Tool::Flock.hold(&fixture, &[]).await, Tool::Turnlock.hold(&fixture, &[]).await];
    for (flags, expected) in [
        (&["-n"][..], 1),
        (&["--nb"], 1),
        (&["--nonblock"], 1),
        (&["--nonblocking"], 1),
        (&["-w", "0"], 1),
        (&["-w", "0.2"], 1),
        (&["-w.2"], 1),
        (&["--wait", "0.2"], 1),
        (&["--timeout=0.2"], 1),
        (&["-n", "-E", "9"], 9),
        (&["-nE9"], 9),
        (&["--conflict-exit-code", "0", "--timeout", "0.2"], 0),
        (&["--conflict-exit-code=255", "-n"], 255),
    ] {
        let outcome = both(&fixture, flags, &["echo", "mine"]).await;
        assert_eq!(outcome, (Some(expected), String::new()), "{flags:?}");
        for tool in Tool::BOTH {
            let output = tool.run(&fixture, flags, &["true"]).await;
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{tool:?} {flags:?}");
        }
    }
    for holder in holders {
        assert_eq!(holder.code().await, 0);
    }
    assert_eq!(both(&fixture, &["-n"], &["echo", "mine"]).await, (Some(0), "mine\n".to_owned()));
}

async fn shared_and_exclusive_locks_exclude_as_with_flock(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    for (held, codes) in
        [(&["-s"][..], [0, 1]), (&["--shared"], [0, 1]), (&["-x"], [1, 1]), (&["-e"], [1, 1])]
    {
        let holders = [Tool::Flock.hold(&fixture, held).await, Tool::Turnlock.hold(&fixture, held).await];
        let [shared, exclusive] = codes;
        for flags in [&["-n", "-s"][..], &["-sn"], &["--nb", "--shared"]] {
            assert_eq!(both(&fixture, flags, &["true"]).await.0, Some(shared), "{held:?} {flags:?}");
        }
        for flags in [&["-n", "-x"][..], &["-xn"], &["-en"], &["--nb", "--exclusive"]] {
            assert_eq!(both(&fixture, flags, &["true"]).await.0, Some(exclusive), "{held:?} {flags:?}");
        }
        for holder in holders {
            assert_eq!(holder.code().await, 0);
        }
    }
}

async fn shell_commands_run_as_with_flock(fixture: Fixture) {
    for (text, code, output) in
        [("echo a && echo b", 0, "a\nb\n"), ("exit 3", 3, ""), ("", 0, ""), ("echo \"$1\" $#", 0, " 0\n")]
    {
        for option in ["-c", "--command"] {
            let outcome = both(&fixture, &[], &[option, text]).await;
            assert_eq!(outcome, (Some(code), output.to_owned()), "{option} {text:?}");
        }
    }
    assert_eq!(both(&fixture, &[], &["-c", "echo", "two"]).await.0, Some(64), "one text, and no arguments");
    assert_eq!(both(&fixture, &[], &["-c"]).await.0, Some(64), "no text");
    let shell = fixture.file("shell");
    std::fs::write(&shell, "#!/bin/sh\necho \"shell: $*\"\n").unwrap();
    std::fs::set_permissions(&shell, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (variable, expected) in
        [(Some(shell.to_str().unwrap()), "shell: -c echo $0\n"), (Some(""), "/bin/sh\n"), (None, "/bin/sh\n")]
    {
        for tool in Tool::BOTH {
            let mut command = tool.command(&fixture, &[], &["-c", "echo $0"]);
            match variable {
                Some(shell) => command.env("SHELL", shell),
                None => command.env_remove("SHELL"),
            };
            let output = Program::start(command).output().await;
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{tool:?} {variable:?}");
        }
    }
}

async fn a_child_in_the_background_holds_no_lock_unlike_with_flock(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let script = "sleep 300 >/dev/null 2>&1 & echo $!";
    // Without -o, a child of the command of flock holds the lock: a documented difference.
    for (tool, flags, expected) in [
        (Tool::Flock, &["-o"][..], 0),
        (Tool::Flock, &["--close"], 0),
        (Tool::Flock, &[], 1),
        (Tool::Turnlock, &["-o"], 0),
        (Tool::Turnlock, &["--close"], 0),
        (Tool::Turnlock, &[], 0),
    ] {
        let output = tool.run(&fixture, flags, &["sh", "-c", script]).await;
        assert_eq!(output.status.code(), Some(0), "{tool:?} {flags:?}: {output:?}");
        let next = tool.run(&fixture, &["-n"], &["true"]).await;
        let child = String::from_utf8(output.stdout).unwrap();
        let killed = Command::new("kill").args(["-KILL", child.trim()]).status().await.unwrap();
        assert!(killed.success(), "{tool:?} {flags:?}: the child runs");
        assert_eq!(next.status.code(), Some(expected), "{tool:?} {flags:?}");
        let is_free = async || tool.run(&fixture, &["-n"], &["true"]).await.status.success();
        eventually("the lock is free", ms(20_000), is_free).await;
    }
}

async fn verbose_reports_the_lock_and_the_command_as_flock_does(fixture: Fixture) {
    let fixture = fixture.with_long_connect_timeout();
    let report = async |tool: Tool, flags: &[&str]| {
        let output = tool.run(&fixture, flags, &["true"]).await;
        // flock reports on standard output, which is that of the command.
        String::from_utf8(if tool == Tool::Flock { output.stdout } else { output.stderr }).unwrap()
    };
    for (tool, lines) in [
        (Tool::Flock, ["getting lock took", "executing true"]),
        (Tool::Turnlock, ["acquired after", "started the command"]),
    ] {
        assert_eq!(report(tool, &[]).await, "", "{tool:?}");
        let text = report(tool, &["--verbose"]).await;
        let places = lines.map(|line| text.find(line).unwrap_or_else(|| panic!("{line:?} in {text:?}")));
        assert!(places.is_sorted(), "{text}");
    }
    let _holders = [Tool::Flock.hold(&fixture, &[]).await, Tool::Turnlock.hold(&fixture, &[]).await];
    for (tool, line) in [(Tool::Flock, "failed to get lock"), (Tool::Turnlock, "not acquired (-n)")] {
        let output = tool.run(&fixture, &["--verbose", "-n"], &["true"]).await;
        assert_eq!(output.status.code(), Some(1), "{tool:?}");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains(line), "{tool:?}: {text}");
    }
}

async fn options_of_flock_that_need_a_file_are_refused(fixture: Fixture) {
    for (arguments, instead) in [
        (&["-u", &fixture.name, "true"][..], "turnlock unlock --force NAME"),
        (&["--unlock", "9"], "turnlock unlock --force NAME"),
        (&["-F", &fixture.name, "true"], "forwards signals"),
        (&["--no-fork", &fixture.name, "true"], "--no-fork (-F) is not supported"),
        (&["--fcntl", &fixture.name, "true"], "Leave the option out"),
        (&["9"], "turnlock run NAME -c 'COMMANDS'"),
        (&["-n", "9"], "not used as a file descriptor"),
        (&[&fixture.name], "turnlock run NAME -- COMMAND"),
    ] {
        let (code, stderr) = Program::start(fixture.command(arguments)).finish().await;
        assert_eq!(code, 64, "{arguments:?}: {stderr}");
        assert!(stderr.contains(instead), "{arguments:?}: {stderr}");
    }
}

async fn every_option_of_flock_is_documented(_: Fixture) {
    let help = Command::new("flock").arg("--help").output().await.unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, section) =
        DOCUMENTATION.split_once("\n## Coming from flock(1)\n").expect("a section about flock");
    let words = help.split_whitespace().map(|word| word.trim_end_matches(','));
    let options: Vec<_> = words.filter(|word| word.starts_with('-') && *word != "-c").collect();
    assert!(options.len() > 15, "{help}");
    for option in options.into_iter().chain(["-c", "-e", "--nb", "--wait", "--fcntl", "flock 9"]) {
        let is_word = |(at, _): (usize, &str)| {
            !section[at + option.len()..]
                .starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-')
        };
        assert!(section.match_indices(option).any(is_word), "{option} is not in the documentation");
    }
}
