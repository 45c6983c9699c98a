use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::lock_arguments::LockArguments;
use crate::{duration, manual};

/// Run a command under a lock
#[derive(Args, Debug)]
#[command(after_long_help = manual::for_run_help())]
#[allow(clippy::doc_markdown, reason = "these comments are help texts of flags")]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) lock: LockArguments,
    /// What to do with the command when the lock is about to be lost
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term, help_heading = "Lifetime")]
    pub(crate) on_lost: OnLost,
    /// Time between TERM and KILL when the lock ends; KILL is sent at the end [default: a tenth of the lease, at most 10s].
    /// If given, also the time between a forwarded TERM or INT and KILL
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "Lifetime")]
    pub(crate) kill_after: Option<Duration>,
    /// The command and its arguments, run without a shell
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
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
