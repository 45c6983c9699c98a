use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::{completers, duration, manual};

/// Run a command under a lock
#[derive(Args, Debug)]
#[command(after_long_help = manual::for_run_help())]
#[allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "these comments are help texts of flags"
)]
pub(crate) struct RunArguments {
    /// Do not wait: if the lock is held, exit with the conflict code
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait", help_heading = "Waiting")]
    pub(crate) nonblock: bool,
    /// Wait at most this long (500ms, 2s, 1m; a bare number is seconds), then exit with the conflict code
    #[arg(short, long, value_name = "DURATION", visible_alias = "timeout", value_parser = duration::parse, help_heading = "Waiting")]
    pub(crate) wait: Option<Duration>,
    /// Exit code if the lock was not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1, help_heading = "Waiting")]
    pub(crate) conflict_exit_code: u8,
    /// Take the read side of a read-write lock, which readers share
    #[arg(short = 's', long, visible_alias = "shared", group = "kind", help_heading = "Kind of lock")]
    pub(crate) read: bool,
    /// Take the write side of a read-write lock
    #[arg(short = 'x', long, visible_alias = "exclusive", group = "kind", help_heading = "Kind of lock")]
    pub(crate) write: bool,
    /// Grant in order of arrival, across all processes and machines
    #[arg(long, group = "kind", help_heading = "Kind of lock")]
    pub(crate) fair: bool,
    /// Set TURNLOCK_TOKEN to a fencing token that increases with every grant
    #[arg(long, group = "kind", help_heading = "Kind of lock")]
    pub(crate) fenced: bool,
    /// Use a plain key (SET NX), compatible with redis-py, redsync and node-redlock
    #[arg(long, group = "kind", help_heading = "Kind of lock")]
    pub(crate) plain: bool,
    /// Allow N commands at once. Use the same number everywhere for one name
    #[arg(long, value_name = "N", group = "kind", help_heading = "Kind of lock")]
    pub(crate) permits: Option<u32>,
    /// Hold the lock for a fixed time. The command gets TERM --kill-after before the end, and KILL at the end. By default,
    /// the lock is renewed while the command runs
    #[arg(long, value_name = "DURATION", conflicts_with = "watchdog", value_parser = duration::parse, help_heading = "Lifetime")]
    pub(crate) lease: Option<Duration>,
    /// Lease of a renewed lock: how long the lock stays held if this program dies
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, help_heading = "Lifetime")]
    pub(crate) watchdog: Duration,
    /// Hold the lock at least this long from its grant, even if the command ends sooner. With -n: one run per
    /// period across a fleet
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Lifetime")]
    pub(crate) at_least: Option<Duration>,
    /// What to do with the command when the lock is about to be lost
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term, help_heading = "Lifetime")]
    pub(crate) on_lost: OnLost,
    /// Time between TERM and KILL when the lock ends; KILL is sent at the end [default: a tenth of the lease, at most 10s].
    /// If given, also the time between a forwarded TERM or INT and KILL
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Lifetime")]
    pub(crate) kill_after: Option<Duration>,
    /// Name of this run that others see; the name of the command by default
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub(crate) label: Option<String>,
    /// Print events as JSON on standard error, one per line
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub(crate) json: bool,
    /// Print nothing on standard error, except why the command could not run
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// The name of the lock
    #[arg(value_name = "NAME", add = completers::lock_name())]
    pub(crate) name: OsString,
    /// The command and its arguments, run without a shell
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", add = completers::command())]
    pub(crate) command: Vec<OsString>,
}

/// What to do with the command when the lock is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM --kill-after before the lock ends, and KILL when it ends
    Term,
    /// KILL when the lock ends
    Kill,
    /// Only a warning on standard error: the command continues without the lock
    Warn,
}
