use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::{completers, duration, value};

/// The limit of Redisson, which counts in 32 bits with a sign.
const MAX_PERMITS: u32 = i32::MAX.unsigned_abs();

/// The arguments that `run` and `hold` share: the lock, the wait for it, and the output.
#[derive(Args, Debug)]
#[allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "these comments are help texts of flags"
)]
pub(crate) struct LockArguments {
    /// Do not wait: if the lock is held, exit with the conflict code
    #[arg(
        short,
        long,
        visible_alias = "nb",
        alias = "nonblocking",
        conflicts_with = "wait",
        help_heading = "Waiting"
    )]
    pub(crate) nonblock: bool,
    /// Wait at most this long (500ms, 2s, 1m; a bare number is seconds), then exit with the conflict code
    #[arg(short, long, value_name = "DURATION", visible_alias = "timeout", value_parser = duration::parse, help_heading = "Waiting")]
    pub(crate) wait: Option<Duration>,
    /// Exit code if the lock was not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1, value_parser = value::number(0..=u8::MAX), help_heading = "Waiting")]
    pub(crate) conflict_exit_code: u8,
    /// Take the read side of a read-write lock, which readers share
    #[arg(short = 's', long, visible_alias = "shared", group = "kind", help_heading = "Kind of lock")]
    pub(crate) read: bool,
    /// Take the write side of a read-write lock
    #[arg(short = 'x', visible_short_alias = 'e', long, visible_alias = "exclusive")]
    #[arg(group = "kind", help_heading = "Kind of lock")]
    pub(crate) write: bool,
    /// Grant in order of arrival, across all processes and machines
    #[arg(long, group = "kind", help_heading = "Kind of lock")]
    pub(crate) fair: bool,
    /// Get a fencing token that increases with every grant: run sets TURNLOCK_TOKEN, hold prints it
    #[arg(long, group = "kind", help_heading = "Kind of lock")]
    pub(crate) fenced: bool,
    /// Use a plain key (SET NX), compatible with redis-py, redsync and node-redlock
    #[arg(long, group = "kind", help_heading = "Kind of lock")]
    pub(crate) plain: bool,
    /// Allow N holders at once. Use the same number everywhere for one name
    #[arg(long, value_name = "N", group = "kind", value_parser = value::number(1..=MAX_PERMITS), help_heading = "Kind of lock")]
    pub(crate) permits: Option<u32>,
    /// Hold the lock for a fixed time, and end before it does: run sends TERM, and KILL at the end; hold exits. By default,
    /// the lock is renewed until it is released
    #[arg(long, value_name = "DURATION", conflicts_with = "watchdog", value_parser = duration::parse_lease, help_heading = "Lifetime")]
    pub(crate) lease: Option<Duration>,
    /// Lease of a renewed lock: how long the lock stays held if this program dies
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_lease, help_heading = "Lifetime")]
    pub(crate) watchdog: Duration,
    /// Hold the lock at least this long from its grant, even if it is released sooner. With run -n: one run per
    /// period across a fleet
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Lifetime")]
    pub(crate) at_least: Option<Duration>,
    /// Name of this holder that others see; the name of the command of run by default
    #[arg(long, value_name = "TEXT", value_parser = value::text(), help_heading = "Output")]
    pub(crate) label: Option<String>,
    /// Print events as JSON on standard error, one per line; hold also prints its line on standard output as JSON
    #[arg(long, conflicts_with = "quiet", help_heading = "Output")]
    pub(crate) json: bool,
    /// Print nothing on standard error, except the error that ends the program
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Print on standard error how long the wait took, and each step
    #[arg(short, long, conflicts_with_all = ["json", "quiet"], help_heading = "Output")]
    pub(crate) verbose: bool,
    /// The name of the lock
    #[arg(value_name = "NAME", add = completers::lock_name())]
    pub(crate) name: OsString,
}
