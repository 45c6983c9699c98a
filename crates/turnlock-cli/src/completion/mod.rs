//! Completions for shells: the scripts, and what they call for each word.
//!
//! A script calls `turnlock __complete SHELL -- WORDS` with the words up to the cursor. The first line of the reply is the kind
//! of the reply; values follow, one per line:
//!
//! | first line | meaning |
//! |---|---|
//! | `values` | the values of the word |
//! | `nospace` | the same, and the word is not finished by one of them |
//! | `command N` | the shell completes the command that begins at word N; for bash, at character N of the line |
//!
//! No script evaluates a value. Names with control characters are not offered.

mod bash_line;
mod lock_names;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;
use clap_complete::{Shell, engine};

use crate::arguments::Arguments;
use crate::completers::{Wanted, take_wanted};
use crate::escape::escape_message;
use bash_line::BashLine;

/// The first argument of a call by a script.
const COMMAND: &str = "__complete";

/// Returns the completion script of a shell.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let own = match shell {
        Shell::Bash => include_str!("turnlock.bash"),
        Shell::Zsh => include_str!("turnlock.zsh"),
        Shell::Fish => include_str!("turnlock.fish"),
        // Commands and options only.
        _ => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "turnlock", &mut script);
            return script;
        }
    };
    own.as_bytes().to_vec()
}

/// Replies to a script, if the program was called by one.
pub(crate) fn reply() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let arguments: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let reply = match &arguments[..] {
        [shell, _, line, tail] if shell == "bash" => reply_to_bash(&BashLine::parse(line), tail),
        [shell, _, words @ .., current] if shell == "zsh" => reply_to(words, current, zsh_value),
        // The word at the cursor is as typed, with its quotes.
        [shell, _, words @ .., current] if shell == "fish" => {
            reply_to(words, &BashLine::parse(current).current().text, fish_value)
        }
        _ => Vec::new(),
    };
    // A shell that does not read the reply is not an error.
    let _ = std::io::stdout().write_all(reply.join("\n").as_bytes());
    Some(ExitCode::SUCCESS)
}

fn reply_to_bash(line: &BashLine, tail: &str) -> Vec<String> {
    let (words, current) = (line.texts(), line.current());
    match Completion::of(&words, &current.text) {
        Completion::Command(word) => vec![format!("command {}", line.words[word].start)],
        Completion::Values(values, is_finished) => {
            let values = values.iter().filter_map(|value| current.replacement(&text(value), tail));
            with_kind(values.collect(), is_finished)
        }
    }
}

fn reply_to(words: &[String], current: &str, format: fn(&CompletionCandidate) -> String) -> Vec<String> {
    match Completion::of(words, current) {
        Completion::Command(word) => vec![format!("command {word}")],
        Completion::Values(values, is_finished) => {
            with_kind(values.iter().map(format).collect(), is_finished)
        }
    }
}

fn with_kind(mut reply: Vec<String>, is_finished: bool) -> Vec<String> {
    reply.insert(0, if is_finished { "values" } else { "nospace" }.to_owned());
    reply
}

/// What the word at the cursor can be.
#[derive(Debug)]
enum Completion {
    /// A part of a command that begins at this word.
    Command(usize),
    /// One of these values. The flag is `false` if the word continues after a value.
    Values(Vec<CompletionCandidate>, bool),
}

impl Completion {
    /// Completes `current`, the word after `words`. The first of `words` is the program.
    fn of(words: &[String], current: &str) -> Self {
        if let Some(word) = command_start(words, current) {
            return Self::Command(word);
        }
        let (mut values, wanted) = candidates(words, current);
        // Options are offered when one is begun.
        values.retain(|value| current.starts_with('-') || !text(value).starts_with('-'));
        values.retain(|value| is_printable(&text(value)) && text(value).starts_with(current));
        let is_finished = !values.iter().any(|value| text(value).ends_with(['/', ':', '=']));
        let is_after_dashes = words.iter().any(|word| word == "--");
        if wanted == Some(Wanted::LockName) && (is_after_dashes || !current.starts_with('-')) {
            let names = lock_names::matching(words, current).into_iter();
            let is_offered =
                |name: &String| is_printable(name) && (is_after_dashes || !name.starts_with('-'));
            values.extend(names.filter(is_offered).map(CompletionCandidate::new));
        }
        Self::Values(values, is_finished)
    }
}

/// The word at which the command of `run` begins, if the cursor is in that command.
fn command_start(words: &[String], current: &str) -> Option<usize> {
    let words: Vec<&str> = words.iter().map(String::as_str).chain([current]).collect();
    let is_command = |word: &usize| {
        let is_after_dashes = words[1..*word].contains(&"--");
        // A word with a dash is an option of this program, unless it comes after `--`.
        (is_after_dashes || !words[*word].starts_with('-'))
            && candidates(&words[..*word], "").1 == Some(Wanted::Command)
    };
    (1..words.len()).find(is_command)
}

/// Completes with the engine of clap.
fn candidates<W: AsRef<str>>(words: &[W], current: &str) -> (Vec<CompletionCandidate>, Option<Wanted>) {
    let line = words.iter().map(AsRef::as_ref).chain([current]).map(OsString::from).collect();
    let directory = std::env::current_dir().ok();
    take_wanted();
    let candidates = engine::complete(&mut Arguments::command(), line, words.len(), directory.as_deref());
    (candidates.unwrap_or_default(), take_wanted())
}

fn text(candidate: &CompletionCandidate) -> String {
    candidate.get_value().to_string_lossy().into_owned()
}

/// Returns `true` if the text has no character that affects a terminal, such as a line break.
fn is_printable(text: &str) -> bool {
    escape_message(text) == text
}

/// A value with its description, for `_describe`.
fn zsh_value(candidate: &CompletionCandidate) -> String {
    let value = text(candidate).replace('\\', "\\\\").replace(':', "\\:");
    match description(candidate) {
        None => value,
        Some(description) => format!("{value}:{description}"),
    }
}

/// A value with its description, for `complete`.
fn fish_value(candidate: &CompletionCandidate) -> String {
    match description(candidate) {
        None => text(candidate),
        Some(description) => format!("{}\t{description}", text(candidate)),
    }
}

fn description(candidate: &CompletionCandidate) -> Option<String> {
    let help = candidate.get_help()?.to_string();
    help.lines().next().map(escape_message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of the command, or the values. `words` is a command line after the program, up to the cursor.
    fn completed(words: &str) -> String {
        let mut words: Vec<String> = format!("turnlock {words}").split(' ').map(str::to_owned).collect();
        let current = words.pop().unwrap_or_default();
        match Completion::of(&words, &current) {
            Completion::Command(word) => format!("command {word}"),
            Completion::Values(values, _) => values.iter().map(text).collect::<Vec<_>>().join(" "),
        }
    }

    #[test]
    fn commands_options_and_their_values_are_completed() {
        assert_eq!(completed("comp"), "completions");
        let dashboard = if cfg!(feature = "dashboard") { "dashboard " } else { "" };
        assert_eq!(
            completed(""),
            format!("run hold ls show watch {dashboard}unlock doctor status acl bench completions man help")
        );
        assert_eq!(completed("ls --ki"), "--kind");
        assert_eq!(completed("ls --kind fa"), "fair-lock");
        assert_eq!(completed("watch --kind=fa"), "--kind=fair-lock");
        assert_eq!(completed("ls --sort "), "age name ttl waiters");
        assert_eq!(completed("run --on-lost "), "term kill warn");
        assert_eq!(completed("run --on-lost=k"), "--on-lost=kill");
        assert_eq!(completed("completions z"), "zsh");
        assert_eq!(completed("--store redis+"), "redis+sentinel:// redis+cluster://");
        assert_eq!(completed("ls --store=file"), "--store=file:");
        assert_eq!(completed("--store file:src/mai"), "file:src/main.rs");
    }

    #[test]
    fn the_command_of_run_begins_after_the_name() {
        for (line, start) in [
            ("run a ", "command 3"),
            ("run a -- ", "command 4"),
            ("run a -- gi", "command 4"),
            ("run a -- git -", "command 4"),
            ("run a git --sto", "command 3"),
            ("run -n --label b a git ch", "command 6"),
            ("run --label a ", ""),
            ("run -w 5s --fair a --lease 1m -- git", "command 9"),
            ("run -- a git", "command 4"),
            ("--store memory:// run a -- -x", "command 6"),
            ("run a --fenc", "--fenced"),
            ("run a --on-lost w", "warn"),
        ] {
            // A store in memory has no names.
            let line = if line.starts_with("--store") {
                line.to_owned()
            } else {
                line.replace("run", "run --store=memory:")
            };
            let start = match start.strip_prefix("command ") {
                Some(word) if !line.starts_with("--store") => {
                    format!("command {}", word.parse::<usize>().unwrap() + 1)
                }
                _ => start.to_owned(),
            };
            assert_eq!(completed(&line), start, "{line}");
        }
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(String::from_utf8(script(shell)).unwrap().contains(COMMAND), "{shell}");
        }
        for shell in [Shell::Elvish, Shell::PowerShell] {
            assert!(String::from_utf8(script(shell)).unwrap().contains("doctor"), "{shell}");
        }
    }
}
