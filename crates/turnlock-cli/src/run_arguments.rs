use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::flock_arguments::FlockArguments;
use crate::lock_arguments::LockArguments;
use crate::{completers, duration, manual};

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
    /// Write how the run went to FILE when it ends, for the text file collector of node_exporter: see the manual, monitoring.
    /// The file is replaced as a whole. Jobs under one lock need a --label and a FILE each
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Output")]
    pub(crate) metrics_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flock: FlockArguments,
    /// Run this text with $SHELL -c, or with /bin/sh -c if SHELL is not set, instead of COMMAND
    #[arg(short = 'c', long = "command", value_name = "TEXT", conflicts_with = "command")]
    pub(crate) shell_command: Option<OsString>,
    /// The command and its arguments, run without a shell
    #[arg(trailing_var_arg = true, value_name = "COMMAND", add = completers::command())]
    pub(crate) command: Vec<OsString>,
}

impl RunArguments {
    /// Replaces `--command` by the command line that executes it, as flock(1) does.
    pub(crate) fn expand_shell_command(&mut self) {
        if let Some(text) = self.shell_command.take() {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            self.command = vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), text];
        }
    }
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
