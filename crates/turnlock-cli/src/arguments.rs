#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "--help shows these comments as they are"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use turnlock::acl::Primitive;

use crate::bench_arguments::BenchArguments;
use crate::completers;
#[cfg(feature = "dashboard")]
use crate::dashboard_arguments::DashboardArguments;
use crate::duration;
use crate::hold_arguments::HoldArguments;
use crate::list_arguments::ListArguments;
use crate::manual;
use crate::run_arguments::RunArguments;
use crate::status_arguments::StatusArguments;
use crate::value;

const RUN_USAGE: &str =
    "turnlock run [OPTIONS] NAME [--] COMMAND...\n       turnlock run [OPTIONS] NAME -c TEXT";

/// Run commands under distributed locks, and inspect the locks.
#[derive(Debug, Parser)]
#[command(name = "turnlock", version, propagate_version = true)]
#[command(after_long_help = manual::for_help())]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The store and its password.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StoreArguments {
    /// The store: file:PATH for the processes of one machine; redis://, rediss://, redis+sentinel:// or
    /// redis+cluster:// for many machines. Alternatively, set TURNLOCK_STORE. The default is per user: a file in your state
    /// directory, which does not exclude other users
    #[arg(long, value_name = "URL", global = true, help_heading = "Store", add = completers::store())]
    pub(crate) store: Option<String>,
    /// Use the store of this machine, file:/var/lib/turnlock/locks, which root and the members of group turnlock share.
    /// Takes precedence over TURNLOCK_STORE
    #[arg(long, global = true, conflicts_with = "store", help_heading = "Store")]
    pub(crate) system: bool,
    /// A file that contains the password of the store. Alternatively, set TURNLOCK_PASSWORD to the password itself
    #[arg(long, value_name = "FILE", global = true, help_heading = "Store")]
    pub(crate) password_file: Option<PathBuf>,
}

// The usage of an error would have the option of an environment variable that is set.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(display_name = "turnlock", override_usage = RUN_USAGE)]
    Run(RunArguments),
    #[command(display_name = "turnlock", override_usage = "turnlock hold [OPTIONS] NAME")]
    Hold(HoldArguments),
    #[command(display_name = "turnlock")]
    Ls(LsArguments),
    #[command(display_name = "turnlock", override_usage = "turnlock show [OPTIONS] NAME")]
    Show(ShowArguments),
    #[command(display_name = "turnlock")]
    Watch(WatchArguments),
    #[cfg(feature = "dashboard")]
    #[command(display_name = "turnlock")]
    Dashboard(DashboardArguments),
    #[command(display_name = "turnlock", override_usage = "turnlock unlock --force [OPTIONS] NAME")]
    Unlock(UnlockArguments),
    #[command(display_name = "turnlock")]
    Doctor(DoctorArguments),
    #[command(display_name = "turnlock")]
    Status(StatusArguments),
    #[command(display_name = "turnlock")]
    Acl(AclArguments),
    #[command(display_name = "turnlock")]
    Bench(BenchArguments),
    #[command(display_name = "turnlock", override_usage = "turnlock completions SHELL")]
    Completions(CompletionsArguments),
    #[command(display_name = "turnlock")]
    Man(ManArguments),
}

/// List locks and their holders
///
/// Lists held locks of all kinds, permit semaphores of which permits are held, and every name that a turnlock client has waited
/// for since a second or longer, of any kind. Other semaphores and latches are plain numbers on the store and cannot be
/// distinguished from other data: use show with their names. The store is scanned in small steps and is not blocked.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct LsArguments {
    /// Pattern of the names: * matches any text, ? one character, [ab] one of these characters; a backslash escapes the
    /// next character
    #[arg(default_value = "*", value_parser = value::text())]
    pub(crate) pattern: String,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) list: ListArguments,
    /// All columns, also if lines are longer than the terminal is wide
    #[arg(long, conflicts_with = "json")]
    pub(crate) wide: bool,
    /// A row for each waiter below the holders: its host, process id, label and task, and for how long it waits
    #[arg(long, conflicts_with = "json")]
    pub(crate) waiters: bool,
    /// List tasks that wait for each other instead of locks; the exit code is 1 if there is a certain deadlock
    #[arg(long, conflicts_with_all = ["limit", "sort", "holder", "older_than", "kind", "wide", "waiters"])]
    pub(crate) deadlocks: bool,
}

/// Show one lock: its holders, lease and queue
///
/// A lock that is not held is not an error. A plain number under the name is shown as a semaphore; it may be a latch.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// The exact name of the lock
    #[arg(value_parser = value::text(), add = completers::lock_name())]
    pub(crate) name: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 0 if the lock is held, and with 1 if it is free
    #[arg(long)]
    pub(crate) check: bool,
}

/// Watch locks change
///
/// On a terminal, a full-screen view: the arrow keys select a lock, Enter shows it, / filters, s sorts, u unlocks, ? lists all
/// keys, q quits. Elsewhere, and with --plain, prints one line per change. Changes between two queries are missed. If the store
/// does not reply, reports that and keeps trying.
#[derive(Args, Debug)]
pub(crate) struct WatchArguments {
    /// The exact name of one lock; all locks by default
    #[arg(value_parser = value::text(), add = completers::lock_name())]
    pub(crate) name: Option<String>,
    /// Print one JSON object per line for each lock that changes
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line per change, also on a terminal
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Time between two queries; less than 50ms counts as 50ms
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = watch_interval)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) list: ListArguments,
}

/// Release a lock by force
///
/// On a terminal, shows the holders and asks for confirmation, and then releases the lock for these holders only. Elsewhere,
/// --yes is required. Exits with 1 if the lock is not held, or is held by another owner.
#[derive(Args, Debug)]
pub(crate) struct UnlockArguments {
    /// The exact name of the lock
    #[arg(value_parser = value::text(), add = completers::lock_name())]
    pub(crate) name: String,
    /// Required: the holder is not notified, and may keep running while the next holder starts
    #[arg(long, required = true)]
    pub(crate) force: bool,
    /// Only if this owner holds the lock. Takes the owner id that show prints
    #[arg(long, value_name = "OWNER", value_parser = value::some_text())]
    pub(crate) if_owner: Option<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Check the store for settings that endanger locks
///
/// Prints what was found, why it matters to locks, and what to do, the most severe first. Changes nothing. Exits with 1 if
/// there are warnings or dangers, and with 0 if all checks are fine or could not run.
#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// Check with lock names that begin with this text, for a user that may access only these
    #[arg(long, value_name = "TEXT", value_parser = value::text())]
    pub(crate) names: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the minimal ACL rule for a Redis user
///
/// Prints an ACL SETUSER command with PASSWORD as a placeholder.
#[derive(Args, Debug)]
pub(crate) struct AclArguments {
    /// Names that the user may lock, as a Redis key pattern
    #[arg(default_value = "*", value_parser = value::text())]
    pub(crate) names: String,
    /// Name of the Redis user
    #[arg(long, value_name = "NAME", default_value = "turnlock", value_parser = user_name)]
    pub(crate) user: String,
    /// Kinds of locks that the user may use; all kinds by default
    #[arg(long = "for", value_name = "KIND", value_delimiter = ',', value_parser = primitive_parser())]
    pub(crate) primitives: Vec<Primitive>,
    /// For a cluster of Redis 7 or later
    #[arg(long)]
    pub(crate) cluster: bool,
    /// Also allow what ls, show, watch and unlock need. Locking does not need it
    #[arg(long)]
    pub(crate) finding: bool,
    /// Also allow what doctor needs. Locking does not need it
    #[arg(long)]
    pub(crate) doctor: bool,
}

/// Print shell completions
///
/// For example: turnlock completions bash > ~/.local/share/bash-completion/completions/turnlock. In bash, zsh and fish, the names
/// of locks are completed too: the store of the command line or of TURNLOCK_STORE is queried, for at most 300 ms.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page
///
/// For example: turnlock man | man -l -
#[derive(Args, Debug)]
pub(crate) struct ManArguments {}

fn user_name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains(|character: char| character.is_whitespace() || character.is_control())
    {
        return Err("give the name of a Redis user, without spaces");
    }
    Ok(text.to_owned())
}

/// Parses an interval and raises it to the minimum, so that the store is not queried without a pause.
fn watch_interval(text: &str) -> Result<Duration, String> {
    duration::parse(text).map(|duration| duration.max(Duration::from_millis(50)))
}

/// Parses the name of a primitive, such as `fair-lock`.
fn primitive_parser() -> impl TypedValueParser<Value = Primitive> {
    let name = |primitive: Primitive| primitive.noun().replace(' ', "-");
    PossibleValuesParser::new(Primitive::ALL.map(name)).try_map(move |text| {
        Primitive::ALL.into_iter().find(|primitive| name(*primitive) == text).ok_or("not a kind of lock")
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::OsString;

    use clap::error::ErrorKind;
    use clap::{CommandFactory, FromArgMatches};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// Arguments of all commands in any order, and other bytes.
    fn any_argument() -> impl Strategy<Value = OsString> {
        const KNOWN: &[&str] = &[
            "run",
            "hold",
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
            "help",
            "--",
            "-",
            "",
            "--store",
            "--store=memory:",
            "--password-file",
            "-n",
            "--nb",
            "-w",
            "--wait=1e400",
            "--timeout",
            "-E",
            "-E256",
            "-s",
            "-x",
            "--fair",
            "--fenced",
            "--plain",
            "--permits",
            "--lease=10s",
            "--watchdog",
            "--at-least",
            "--on-lost",
            "--on-lost=kill",
            "--kill-after=-1",
            "--label",
            "--json",
            "-q",
            "-nq",
            "-v",
            "-c",
            "-u",
            "-oF",
            "--force",
            "--if-owner",
            "-y",
            "--limit=0",
            "--limit",
            "--interval",
            "--listen=0.0.0.0:0",
            "--listen",
            "--host",
            "--token-file",
            "--tls-cert=a",
            "--tls-key",
            "--allow-unlock",
            "--names",
            "--user",
            "--for=lock,fair-lock",
            "--for",
            "--cluster",
            "--time=2h",
            "--tasks",
            "--compare",
            "--ignore=clock",
            "--crit-older-than=1h",
            "--version",
            "-V",
            "-h",
            "--help",
            "-Z",
            "--nonsense",
            "10s",
            "18446744073709551615",
            "bash",
            "a",
        ];
        prop_oneof![
            9 => select(KNOWN).prop_map(OsString::from),
            1 => any::<String>().prop_map(OsString::from),
            1 => vec(any::<u8>(), 0..6).prop_map(os_string),
        ]
    }

    #[cfg(unix)]
    fn os_string(bytes: Vec<u8>) -> OsString {
        std::os::unix::ffi::OsStringExt::from_vec(bytes)
    }

    #[cfg(not(unix))]
    fn os_string(bytes: Vec<u8>) -> OsString {
        String::from_utf8_lossy(&bytes).into_owned().into()
    }

    thread_local! {
        /// Built once, since that takes longer than to parse.
        static COMMAND: RefCell<clap::Command> = RefCell::new(Arguments::command());
    }

    fn parse(arguments: &[OsString]) -> Result<Arguments, clap::Error> {
        let program = OsString::from("turnlock");
        COMMAND.with_borrow_mut(|command| {
            let mut matches = command.try_get_matches_from_mut(std::iter::once(&program).chain(arguments))?;
            Arguments::from_arg_matches_mut(&mut matches)
        })
    }

    #[test]
    fn numbers_and_durations_of_options_are_checked() {
        for (arguments, is_valid) in [
            (["bench", "--time=1h"], true),
            (["bench", "--time=3601"], false),
            (["bench", "--time=18446744073709551615s"], false),
            (["bench", "--time=x"], false),
            (["bench", "--tasks=1"], true),
            (["bench", "--tasks=0"], false),
            (["bench", "--tasks=-1"], false),
            (["status", "--timeout=1ms"], true),
            (["status", "--timeout=0"], false),
            (["status", "--timeout=2h"], false),
            (["status", "--ignore=clock"], true),
            (["status", "--ignore=weather"], false),
            (["ls", "--limit=0"], false),
            (["ls", "--limit=18446744073709551616"], false),
            (["watch", "--interval=0"], true),
            (["watch", "--interval=1e400"], false),
        ] {
            let parsed = parse(&arguments.map(OsString::from));
            assert_eq!(parsed.is_ok(), is_valid, "{arguments:?}: {parsed:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_arguments_are_a_command_or_a_usage_error(arguments in vec(any_argument(), 0..8)) {
            if let Err(error) = parse(&arguments) {
                let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                prop_assert_eq!(error.use_stderr(), !is_help);
                // Help texts are long, and always the same.
                prop_assert!(is_help || !error.to_string().is_empty());
            }
        }
    }
}
