//! What needs no store: help, manual, completions, rules; and stores that are refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::ground::Ground;
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    help_and_manual_have_all_exit_codes,
    completions_are_there_for_every_shell,
    a_rule_is_made_for_what_is_used,
    wrong_usage_is_exit_64,
    a_name_that_is_no_text_is_exit_64,
    memory_is_refused_where_it_makes_no_sense,
];

async fn help_and_manual_have_all_exit_codes(ground: Ground) {
    let help = ground.run(&["--help"]).await;
    let manual = ground.run(&["man"]).await;
    for code in ["0", "1", "64", "65", "69", "70", "77", "79", "126", "127", "128+n"] {
        assert!(help.out.lines().any(|line| line.trim() == code), "{code}: {}", help.out);
        assert!(manual.out.lines().any(|line| line == format!("\\fB{code}\\fR")), "{code}: {}", manual.out);
    }
    for part in ["ENVIRONMENT", "FILES", "EXAMPLES", "TURNLOCK_STORE"] {
        assert!(help.out.contains(part) && manual.out.contains(part), "{part}");
    }
}

async fn completions_are_there_for_every_shell(ground: Ground) {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = ground.run(&["completions", shell]).await;
        assert!(ended.code == Some(0) && ended.out.contains("turnlock"), "{shell}: {}", ended.err);
    }
}

async fn a_rule_is_made_for_what_is_used(ground: Ground) {
    let arguments = ["acl", "orders:*", "--user", "shop", "--for", "plain-lock"];
    let rule = ground.run(&arguments).await;
    assert!(rule.out.starts_with("ACL SETUSER shop reset on >PASSWORD resetchannels ~orders:* "), "{rule:?}");
    assert!(rule.out.contains(" +get ") && !rule.out.contains("hset"), "{rule:?}");
    let two = ground.run(&["acl", "--for", "plain-lock,fair-lock", "--doctor", "--finding"]).await;
    assert!(["+lpop", "+info", "+scan"].iter().all(|right| two.out.contains(right)), "{two:?}");
    let cluster = ground.run(&["acl", "--for", "lock", "--cluster"]).await;
    assert!(cluster.out.contains("+spublish"), "{cluster:?}");
}

async fn wrong_usage_is_exit_64(ground: Ground) {
    for arguments in [
        &[][..],
        &["fly"],
        &["ls", "--limit", "0"],
        &["show"],
        &["show", ""],
        &["unlock", "a"],
        &["watch", "--interval", "soon"],
        &["acl", "--for", "teapot"],
        &["acl", "--user", "two words"],
        &["acl", "a\nb"],
        &["bench", "--tasks", "0"],
        &["completions", "teashell"],
        &["--store", "teapot://", "ls"],
    ] {
        let ended = ground.run(arguments).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(64), ""), "{arguments:?}: {ended:?}");
        assert!(!ended.err.is_empty(), "{arguments:?}");
    }
}

async fn a_name_that_is_no_text_is_exit_64(_: Ground) {
    for words in [&["ls"][..], &["show"], &["watch"], &["unlock", "--force", "--yes"]] {
        let ended = Program::new(words).and(OsStr::from_bytes(b"a\xffb")).run().await;
        assert!(ended.code == Some(64) && ended.err.contains("UTF-8"), "{words:?}: {ended:?}");
    }
}

async fn memory_is_refused_where_it_makes_no_sense(ground: Ground) {
    for arguments in [&["ls"][..], &["show", "a"], &["watch"], &["unlock", "--force", "--yes", "a"]] {
        let ended = ground.run(arguments).await;
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains("in memory are those of one process"), "{ended:?}");
    }
    assert_eq!(ground.run(&["doctor"]).await.code, Some(0));
    assert_eq!(ground.run(&["bench", "--time", "0.05"]).await.code, Some(0));
}
