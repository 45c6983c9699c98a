use std::time::Duration;

use clap::Args;

use crate::lock_arguments::LockArguments;
use crate::{duration, manual};

/// Hold a lock for a script that cannot be run under it
///
/// Prints "held OWNER", or "held OWNER TOKEN" with --fenced, on standard output when the lock is held. Holds it until standard
/// input closes, if that is a pipe or a socket, or until a signal or --for. Then releases it and exits with 0. Exits with 79
/// when the lock is about to be lost: a tenth of the lease before its end, at most 10 s. Notifies systemd (Type=notify).
#[derive(Args, Debug)]
#[command(after_long_help = manual::for_hold_help())]
#[allow(clippy::doc_markdown, reason = "these comments are help texts of flags")]
pub(crate) struct HoldArguments {
    #[command(flatten)]
    pub(crate) lock: LockArguments,
    /// Release the lock after this time
    #[arg(
        long = "for",
        value_name = "DURATION",
        value_parser = duration::parse,
        conflicts_with = "lease",
        help_heading = "Lifetime"
    )]
    pub(crate) duration: Option<Duration>,
}
