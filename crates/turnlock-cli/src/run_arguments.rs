use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::time_span;

/// Run a command under a lock
#[derive(Args, Debug)]
#[allow(clippy::doc_markdown, clippy::struct_excessive_bools, reason = "help for people, about flags")]
pub(crate) struct RunArguments {
    /// Do not wait: when somebody holds the lock, exit with the conflict code
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait at most so long (500ms, 2s, 1m; a bare number is seconds), then exit with the conflict code
    #[arg(short, long, value_name = "DURATION", visible_alias = "timeout", value_parser = time_span::parse)]
    pub(crate) wait: Option<Duration>,
    /// The exit code when the lock was not to be had
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    pub(crate) conflict_exit_code: u8,
    /// Share the lock with other readers: the reading side of a read-write lock
    #[arg(short = 's', long, visible_alias = "shared", group = "kind")]
    pub(crate) read: bool,
    /// The writing side of a read-write lock
    #[arg(short = 'x', long, visible_alias = "exclusive", group = "kind")]
    pub(crate) write: bool,
    /// Turns in the order of arrival, over all processes and machines
    #[arg(long, group = "kind")]
    pub(crate) fair: bool,
    /// With a token that rises with every grant, in TURNLOCK_TOKEN
    #[arg(long, group = "kind")]
    pub(crate) fenced: bool,
    /// A bare key (SET NX), as redis-py, redsync and node-redlock use it
    #[arg(long, group = "kind")]
    pub(crate) plain: bool,
    /// At most N at once. All runs of one name should say the same number
    #[arg(long, value_name = "N", group = "kind")]
    pub(crate) permits: Option<u32>,
    /// Hold the lock for a fixed time. The command gets TERM --kill-after before the end, and KILL at the end. When not given,
    /// the lock is renewed while the command runs
    #[arg(long, value_name = "DURATION", conflicts_with = "watchdog", value_parser = time_span::parse)]
    pub(crate) lease: Option<Duration>,
    /// How long the lock outlives this program when it dies without a word
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time_span::parse)]
    pub(crate) watchdog: Duration,
    /// Keep the lock so long from its beginning even when the command ends sooner: one run a period over a fleet
    #[arg(long, value_name = "DURATION", value_parser = time_span::parse)]
    pub(crate) at_least: Option<Duration>,
    /// What happens to the command when the lock is about to be lost
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// How long before the end of the lock the command gets TERM; KILL follows at the end [default: a tenth of the lease, at
    /// most 10s]. When given, also the time between a forwarded TERM or INT and KILL
    #[arg(long, value_name = "DURATION", value_parser = time_span::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// What others see of this run; the command's name when not given
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Tell what happens as JSON, one event a line, on standard error
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// Say nothing of our own on standard error
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The name of the lock
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,
    /// The command and its arguments, run without a shell
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What happens to the command when the lock is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM --kill-after before the lock ends, and KILL when it ends
    Term,
    /// KILL when the lock ends
    Kill,
    /// Only a word on standard error: the command goes on without the lock
    Warn,
}
