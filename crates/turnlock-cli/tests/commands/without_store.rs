//! Commands that need no store (help, man, completions, acl), and arguments that are rejected.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use turnlock_testkit::TempDir;

use crate::fixture::Fixture;
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    help_and_manual_list_all_exit_codes,
    the_help_of_run_has_groups_examples_and_exit_codes,
    the_documentation_has_the_help_of_quiet_and_verbose,
    every_command_has_help_and_the_version_of_the_program,
    completions_exist_for_every_shell,
    an_acl_rule_allows_only_the_selected_kinds,
    a_usage_error_exits_with_64,
    an_error_in_a_value_names_its_option,
    an_error_in_the_store_names_the_option_or_the_variable,
    an_empty_variable_counts_as_unset,
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

async fn the_documentation_has_the_help_of_quiet_and_verbose(fixture: Fixture) {
    let documentation = include_str!("../../../../docs/program.md");
    let help = fixture.run(&["run", "--help"]).await.out;
    for option in ["-q, --quiet", "-v, --verbose"] {
        let mut lines = help.lines().skip_while(|line| line.trim() != option);
        let text = lines.nth(1).unwrap_or_else(|| panic!("no {option} in {help}")).trim();
        let row = format!("| `{}` | {text} |", option.replace(", ", "`, `"));
        assert!(documentation.contains(&row), "{row}");
    }
}

async fn every_command_has_help_and_the_version_of_the_program(fixture: Fixture) {
    let version = fixture.run(&["--version"]).await.out;
    assert!(version.starts_with("turnlock "), "{version}");
    let commands = [
        "run",
        "ls",
        "show",
        "watch",
        "dashboard",
        "unlock",
        "doctor",
        "status",
        "acl",
        "bench",
        "completions",
        "man",
    ];
    let has_dashboard = cfg!(feature = "dashboard");
    for command in commands.into_iter().filter(|&command| has_dashboard || command != "dashboard") {
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
    assert!(rule.out.contains(" +get ") && !rule.out.contains("hexists"), "{rule:?}");
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
        &["--store", "redis://a", "status", "redis://b"],
        &["status", "--system", "redis://b"],
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

async fn an_error_in_a_value_names_its_option(fixture: Fixture) {
    for (arguments, option, advice) in [
        (&["ls", "--limit", "-1"][..], "--limit", "at least 1"),
        (&["ls", "--limit", "x"], "--limit", "at least 1"),
        (&["ls", "--sort", "x"], "--sort", "age, name, ttl, waiters"),
        (&["ls", "--older-than", "-1"], "--older-than", "500ms, 2s or 1m"),
        (&["ls", "--kind", "x"], "--kind", "fair-lock"),
        (&["watch", "--interval", "-1"], "--interval", "500ms, 2s or 1m"),
        (&["watch", "--limit", "0"], "--limit", "at least 1"),
        (&["unlock", "--force", "--if-owner", "", "a"], "--if-owner", "empty"),
        (&["acl", "--user", "a b"], "--user", "without spaces"),
        (&["acl", "--for", "x"], "--for", "fair-lock"),
        (&["bench", "--tasks", "-1"], "--tasks", "at least 1"),
        (&["bench", "--time", "2h"], "--time", "at most an hour"),
        (&["bench", "--time", "-1"], "--time", "500ms, 2s or 1m"),
    ] {
        let ended = fixture.run(arguments).await;
        assert_eq!(ended.code, Some(64), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(option) && ended.err.contains(advice), "{arguments:?}: {ended:?}");
    }
}

async fn an_error_in_the_store_names_the_option_or_the_variable(_: Fixture) {
    for (url, advice) in [
        ("localhost:6379", "write redis://localhost:6379"),
        ("redis:6379", "write redis://redis:6379"),
        ("/var/lib/x", "write file:/var/lib/x"),
        ("cache", "write redis://HOST:PORT for a server, or file:PATH for a file"),
        ("http://cache", "redis, rediss, redis+unix, redis+sentinel, rediss+sentinel, redis+cluster"),
        ("", "empty"),
    ] {
        let ended = Program::new(&["--store", url, "ls"]).run().await;
        assert_eq!(ended.code, Some(64), "{url:?}: {ended:?}");
        assert!(ended.err.contains("`--store`") && ended.err.contains(advice), "{url:?}: {ended:?}");
        if !url.is_empty() {
            let ended = Program::new(&["ls"]).with_env("TURNLOCK_STORE", url).run().await;
            assert!(
                ended.err.contains("`TURNLOCK_STORE`") && ended.err.contains(advice),
                "{url:?}: {ended:?}"
            );
        }
    }
    let arguments = ["--store", "redis://127.0.0.1:1", "--password-file", "/nowhere/at/all", "ls"];
    let ended = Program::new(&arguments).run().await;
    assert!(ended.code == Some(64) && ended.err.contains("`--password-file`"), "{ended:?}");
}

async fn an_empty_variable_counts_as_unset(_: Fixture) {
    let dir = TempDir::new();
    let state = dir.path().to_str().unwrap();
    let default = Program::new(&["ls"]).with_env("XDG_STATE_HOME", state).with_env("TURNLOCK_STORE", "");
    let ended = default.run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(dir.path().join("turnlock/locks").exists(), "the default store");
    // No server listens there, so the password is not the problem.
    let ended =
        Program::new(&["--store", "redis://127.0.0.1:1", "ls"]).with_env("TURNLOCK_PASSWORD", "").run().await;
    assert_eq!(ended.code, Some(69), "{ended:?}");
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
