//! Commands that need no store (help, man, completions, acl), and arguments that are rejected.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::fixture::Fixture;
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    help_and_manual_list_all_exit_codes,
    the_help_of_run_has_groups_examples_and_exit_codes,
    every_command_has_help_and_the_version_of_the_program,
    completions_exist_for_every_shell,
    an_acl_rule_allows_only_the_selected_kinds,
    a_usage_error_exits_with_64,
    a_usage_error_of_status_exits_with_3,
    a_name_that_is_not_utf_8_exits_with_64,
    memory_is_rejected_by_commands_that_inspect,
];

async fn help_and_manual_list_all_exit_codes(fixture: Fixture) {
    let help = fixture.run(&["--help"]).await;
    let manual = fixture.run(&["man"]).await;
    for code in ["0", "1", "2", "3", "64", "65", "69", "70", "77", "79", "126", "127", "128+n"] {
        assert!(help.out.lines().any(|line| line.trim() == code), "{code}: {}", help.out);
        assert!(manual.out.lines().any(|line| line == format!("\\fB{code}\\fR")), "{code}: {}", manual.out);
    }
    for part in ["ENVIRONMENT", "FILES", "EXAMPLES", "TURNLOCK_STORE"] {
        assert!(help.out.contains(part) && manual.out.contains(part), "{part}");
    }
}

async fn the_help_of_run_has_groups_examples_and_exit_codes(fixture: Fixture) {
    let help = fixture.run(&["run", "--help"]).await.out;
    let headings =
        ["Waiting:", "Kind of lock:", "Lifetime:", "Output:", "Store:", "EXAMPLES:", "EXIT STATUS:"];
    let places: Vec<_> = headings.iter().map(|heading| help.find(&format!("\n{heading}\n"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {help}");
    assert_eq!(help.matches("--password-file").count(), 1, "{help}");
    assert_eq!(fixture.run(&["help", "run"]).await.out, help);
}

async fn every_command_has_help_and_the_version_of_the_program(fixture: Fixture) {
    let version = fixture.run(&["--version"]).await.out;
    assert!(version.starts_with("turnlock "), "{version}");
    let commands =
        ["run", "ls", "show", "watch", "unlock", "doctor", "status", "acl", "bench", "completions", "man"];
    for command in commands {
        assert_eq!(fixture.run(&[command, "-V"]).await.out, version, "{command}");
        let help = fixture.run(&["help", command]).await;
        assert!(help.code == Some(0) && help.out.contains("Usage: turnlock"), "{command}: {help:?}");
    }
    for (command, usage) in [("unlock", "unlock --force [OPTIONS] NAME"), ("show", "show [OPTIONS] NAME")] {
        let error = fixture.run(&[command]).await.err;
        assert!(error.contains(&format!("Usage: turnlock {usage}\n")), "{error}");
    }
}

async fn completions_exist_for_every_shell(fixture: Fixture) {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = fixture.run(&["completions", shell]).await;
        assert!(ended.code == Some(0) && ended.out.contains("turnlock"), "{shell}: {}", ended.err);
    }
}

async fn an_acl_rule_allows_only_the_selected_kinds(fixture: Fixture) {
    let arguments = ["acl", "orders:*", "--user", "shop", "--for", "plain-lock"];
    let rule = fixture.run(&arguments).await;
    assert!(rule.out.starts_with("ACL SETUSER shop reset on >PASSWORD resetchannels ~orders:* "), "{rule:?}");
    assert!(rule.out.contains(" +get ") && !rule.out.contains("hset"), "{rule:?}");
    let two = fixture.run(&["acl", "--for", "plain-lock,fair-lock", "--doctor", "--finding"]).await;
    assert!(["+lpop", "+info", "+scan"].iter().all(|right| two.out.contains(right)), "{two:?}");
    let cluster = fixture.run(&["acl", "--for", "lock", "--cluster"]).await;
    assert!(cluster.out.contains("+spublish"), "{cluster:?}");
}

async fn a_usage_error_of_status_exits_with_3(fixture: Fixture) {
    for arguments in [
        &["status", "--nonsense"][..],
        &["--store", "file:", "status", "--timeout", "soon"],
        &["status", "a", "--ignore", "weather"],
    ] {
        let ended = fixture.run(arguments).await;
        assert!(ended.code == Some(3) && ended.out.is_empty() && !ended.err.is_empty(), "{ended:?}");
    }
    // Another command whose argument is the word.
    assert_eq!(fixture.run(&["show", "--nonsense", "status"]).await.code, Some(64));
    assert_eq!(fixture.run(&["status", "--help"]).await.code, Some(0));
}

async fn a_usage_error_exits_with_64(fixture: Fixture) {
    for arguments in [
        &[][..],
        &["fly"],
        &["ls", "--limit", "0"],
        &["show"],
        &["show", ""],
        &["unlock", "a"],
        &["watch", "--interval", "soon"],
        &["acl", "--for", "teapot"],
        &["acl", "--user", "two arguments"],
        &["acl", "a\nb"],
        &["bench", "--tasks", "0"],
        &["completions", "teashell"],
        &["--store", "teapot://", "ls"],
    ] {
        let ended = fixture.run(arguments).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(64), ""), "{arguments:?}: {ended:?}");
        assert!(!ended.err.is_empty(), "{arguments:?}");
    }
}

async fn a_name_that_is_not_utf_8_exits_with_64(_: Fixture) {
    for arguments in [&["ls"][..], &["show"], &["watch"], &["unlock", "--force", "--yes"]] {
        let ended = Program::new(arguments).with_argument(OsStr::from_bytes(b"a\xffb")).run().await;
        assert!(ended.code == Some(64) && ended.err.contains("UTF-8"), "{arguments:?}: {ended:?}");
    }
}

async fn memory_is_rejected_by_commands_that_inspect(fixture: Fixture) {
    for arguments in [&["ls"][..], &["show", "a"], &["watch"], &["unlock", "--force", "--yes", "a"]] {
        let ended = fixture.run(arguments).await;
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains("memory:// is private to one process"), "{ended:?}");
    }
    assert_eq!(fixture.run(&["doctor"]).await.code, Some(0));
    assert_eq!(fixture.run(&["bench", "--time", "0.05"]).await.code, Some(0));
}
