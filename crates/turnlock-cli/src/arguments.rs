#![allow(
    clippy::doc_markdown,
    rustdoc::broken_intra_doc_links,
    reason = "--help shows these comments as they are"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use turnlock::acl::Primitive;

use crate::manual;
use crate::run_arguments::RunArguments;
use crate::see::primitive_parser;
use crate::time_span;

/// Take turns: run a command under a lock, on one machine or over a fleet, and see who holds what.
#[derive(Debug, Parser)]
#[command(name = "turnlock", version, propagate_version = true, disable_help_subcommand = true)]
#[command(after_long_help = manual::for_help())]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the locks are.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArguments {
    /// Where the locks are: file:PATH for the processes of this machine, or redis://, rediss://, redis+sentinel://,
    /// redis+cluster:// for those of many. A file in your state directory when not set
    #[arg(long, value_name = "URL", env = "TURNLOCK_STORE", hide_env_values = true, global = true)]
    pub(crate) store: Option<String>,
    /// A file that holds the password of the store. Or the variable TURNLOCK_PASSWORD has the password itself
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArguments),
    Ls(LsArguments),
    Show(ShowArguments),
    Watch(WatchArguments),
    Unlock(UnlockArguments),
    Doctor(DoctorArguments),
    Acl(AclArguments),
    Bench(BenchArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
}

/// List locks, and who holds them
///
/// Locks of all kinds and permit semaphores. A semaphore and a latch are bare numbers on the store, which could be anybody's:
/// use show with their names. The store is looked through in small steps and never held up.
#[derive(Args, Debug)]
pub(crate) struct LsArguments {
    /// Names to list: * is any text, ? any character, [ab] one of them, and a backslash takes the next character as it is
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// List so many at the most
    #[arg(long, value_name = "N", default_value = "1000", value_parser = at_least_one)]
    pub(crate) limit: usize,
}

/// Show one lock: who holds it, since when, for how long, and who waits
///
/// A name that nobody holds is no error. A number at this name is shown as a semaphore, and may be a latch.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// The name of the lock, as it is
    pub(crate) name: String,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Watch locks as they change hands
///
/// A table that is drawn again on a terminal, and a line for each change elsewhere. What changes hands between two looks is
/// not seen. While the store does not answer, that is said, and looking goes on. Ends with Ctrl-C.
#[derive(Args, Debug)]
pub(crate) struct WatchArguments {
    /// The name of one lock, as it is; all locks when not given
    pub(crate) name: Option<String>,
    /// One JSON object a line for each lock that has changed
    #[arg(long)]
    pub(crate) json: bool,
    /// The time between two looks, 50ms at the least
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Show so many locks at the most
    #[arg(long, value_name = "N", default_value = "1000", value_parser = at_least_one)]
    pub(crate) limit: usize,
}

/// Take a lock away from whoever holds it
///
/// Shows the holder and asks, on a terminal; elsewhere --yes is needed. What is agreed to on a terminal is taken from the
/// owners that were shown, and from no other owner. Exits with 1 when nobody held the lock, or another owner.
#[derive(Args, Debug)]
pub(crate) struct UnlockArguments {
    /// The name of the lock, as it is
    pub(crate) name: String,
    /// Say that you mean it: the holder is not asked, and may go on beside the next one
    #[arg(long, required = true)]
    pub(crate) force: bool,
    /// Only if this owner still holds it, in the words of show
    #[arg(long, value_name = "OWNER")]
    pub(crate) if_owner: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Say what endangers locks on this store
///
/// What was seen, why it matters to locks, and what to do, the worst first. Changes nothing. Exits with 1 when there are
/// warnings or dangers, and with 0 when all is fine or could not be looked at.
#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// What the user may lock begins with this
    #[arg(long, value_name = "TEXT")]
    pub(crate) names: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the least rights that a user of Redis needs
///
/// As the command ACL SETUSER, with PASSWORD where one belongs.
#[derive(Args, Debug)]
pub(crate) struct AclArguments {
    /// Names that the user may lock, as a pattern of Redis
    #[arg(default_value = "*")]
    pub(crate) names: String,
    /// The user
    #[arg(long, value_name = "NAME", default_value = "turnlock")]
    pub(crate) user: String,
    /// What it uses; all kinds when not given
    #[arg(long = "for", value_name = "KIND", value_delimiter = ',', value_parser = primitive_parser())]
    pub(crate) primitives: Vec<Primitive>,
    /// For a cluster of Redis 7 or later
    #[arg(long)]
    pub(crate) cluster: bool,
    /// With what ls, show, watch and unlock look at, which is not needed to lock
    #[arg(long)]
    pub(crate) finding: bool,
    /// With what the doctor looks at, which is not needed to lock
    #[arg(long)]
    pub(crate) doctor: bool,
}

/// Measure the store: pairs a second, hand-over, latency
///
/// Takes and gives back locks of its own, which begin with turnlock-bench: and are gone afterwards. A pair is one lock and its
/// unlock; a hand-over is the time from one client's unlock to the grant of another that waits.
#[derive(Args, Debug)]
pub(crate) struct BenchArguments {
    /// How long each of the three parts takes, an hour at the most
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = up_to_an_hour)]
    pub(crate) time: Duration,
    /// How many tasks the concurrent part has
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one)]
    pub(crate) tasks: usize,
    /// What the user may lock begins with this
    #[arg(long, value_name = "TEXT", default_value = "turnlock-bench:")]
    pub(crate) names: String,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print completions for a shell
///
/// For example: turnlock completions bash > ~/.local/share/bash-completion/completions/turnlock
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

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("one is the least".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn up_to_an_hour(text: &str) -> Result<Duration, String> {
    let time = time_span::parse(text)?;
    if time > Duration::from_secs(60 * 60) {
        return Err("an hour (1h) is the most".to_owned());
    }
    Ok(time)
}

/// Looks without a pause would keep the store busy for nothing.
fn interval(text: &str) -> Result<Duration, String> {
    time_span::parse(text).map(|time| time.max(Duration::from_millis(50)))
}
