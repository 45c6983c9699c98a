//! The options of a run on real servers.

use std::path::PathBuf;
use std::str::FromStr;

use turnlock_core::planted::Bug;
use turnlock_testkit::ServerProgram;

use crate::history::{LockInfo, LockKind, Promises};

use super::shape::Level;

/// The lease of a lock that is renewed, in milliseconds.
pub(crate) const WATCHDOG_MS: u64 = 3_000;

/// The shortest pause between two faults, in milliseconds.
pub(crate) const SHORTEST_PAUSE: u64 = 200;

/// How a campaign is run.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// Where the locks are kept
    #[arg(long, value_enum, default_value_t = ShapeName::Single)]
    pub(crate) shape: ShapeName,
    /// The servers of `sentinel` and `cluster`: `redis`, the installed one, `redis-6.2` or `valkey-9`
    #[arg(long, default_value = "redis", value_parser = server_program)]
    pub(crate) server: ServerProgram,
    /// Which faults are injected
    #[arg(long, value_enum, default_value_t = Level::Promised)]
    pub(crate) faults: Level,
    /// Inject only these faults, and no others of `--faults`: names, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "FAULTS")]
    pub(crate) only: Vec<String>,
    /// The longest pause between two faults of servers, of the network or of workers, in milliseconds
    #[arg(long, default_value_t = 5_000, value_name = "MS")]
    pub(crate) pause: u64,
    /// The kinds of locks, except on a quorum: `all` that have a lease, or some of
    /// `lock,fair,fenced,spin,plain,read_write,permits,semaphore,latch`
    #[arg(long, default_value = "all")]
    pub(crate) kinds: Kinds,
    /// How many locks there are of each kind
    #[arg(long, default_value_t = 6)]
    pub(crate) locks: u32,
    /// How long faults are injected, in minutes
    #[arg(long, default_value_t = 1.0)]
    pub(crate) minutes: f64,
    /// How long the tasks may take to end after the last fault, in seconds
    #[arg(long, default_value_t = 200, value_name = "SECONDS", hide = true)]
    pub(crate) last_turns: u64,
    /// Decides which faults are injected, and what the tasks do
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Worker processes
    #[arg(long, default_value_t = 4)]
    pub(crate) processes: u32,
    /// Tasks in each process
    #[arg(long, default_value_t = 4)]
    pub(crate) tasks: u32,
    /// How many of 100 holds last about as long as a lease
    #[arg(long, default_value_t = 3, value_name = "PERCENT")]
    pub(crate) long_holds: u8,
    /// How many of 100 holders acquire another lock meanwhile
    #[arg(long, default_value_t = 10, value_name = "PERCENT")]
    pub(crate) nested: u8,
    /// Java processes with Redisson 4.7.0, on the same locks
    #[arg(long, default_value_t = 0, value_name = "PROCESSES")]
    pub(crate) redisson: u32,
    /// Plants a bug in the workers
    #[arg(long, value_name = "BUG")]
    pub(crate) plant: Option<String>,
    /// Where the histories and the report are written
    #[arg(long, default_value = "target/campaign", value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Where the locks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ShapeName {
    /// One address, with a server that keeps its data and one that can take its place
    Single,
    /// A primary, two replicas and three sentinels
    Sentinel,
    /// Three primaries with a replica each
    Cluster,
    /// Three servers, for locks on a majority of them
    Quorum,
    /// A file
    File,
}

impl RunOptions {
    /// Checks that the options fit each other.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        let has_replicas = matches!(self.shape, ShapeName::Sentinel | ShapeName::Cluster);
        anyhow::ensure!(
            has_replicas || self.server == ServerProgram::Installed,
            "--server is for the shapes sentinel and cluster"
        );
        if let Some(reason) = Some(self.server).filter(|_| has_replicas).and_then(ServerProgram::missing) {
            anyhow::bail!(reason);
        }
        anyhow::ensure!(self.processes > 0 && self.tasks > 0 && self.locks > 0, "there is nothing to do");
        anyhow::ensure!(
            !(has_replicas && self.faults == Level::Promised && self.has_unleased()),
            "permits of a semaphore are not acknowledged by replicas: nothing is promised of them; use --faults all"
        );
        anyhow::ensure!(
            self.plant.is_none() || cfg!(debug_assertions),
            "this build has no switch for bugs: build it with debug assertions"
        );
        anyhow::ensure!(
            self.shape != ShapeName::Quorum || self.faults == Level::Promised,
            "quorum has no further faults: a lock on a majority of servers excludes others under all of them"
        );
        let has_unknown_bug = self.plant.as_deref().is_some_and(|name| Bug::named(name).is_none());
        anyhow::ensure!(!has_unknown_bug, "--plant: no such bug; docs/reliability.md has a list");
        anyhow::ensure!(self.pause > SHORTEST_PAUSE, "--pause must be above {SHORTEST_PAUSE}");
        anyhow::ensure!(
            self.redisson == 0 || !matches!(self.shape, ShapeName::File | ShapeName::Quorum),
            "Redisson needs one deployment of servers"
        );
        Ok(())
    }

    /// Returns `true` if there are permits that do not return from a killed process.
    pub(crate) fn has_unleased(&self) -> bool {
        !matches!(self.shape, ShapeName::File | ShapeName::Quorum)
            && self.kinds.0.iter().any(|kind| kind.is_unleased())
    }

    /// Returns `true` if some clients are in a network namespace of their own.
    pub(crate) fn needs_namespace(&self) -> bool {
        self.shape == ShapeName::Single && self.redisson == 0
    }

    /// What the run promises.
    pub(crate) fn promises(&self) -> Promises {
        let is_single = matches!(self.shape, ShapeName::Single | ShapeName::Quorum | ShapeName::File);
        // Redisson counts a grant that no replica has.
        let exclusion = self.faults == Level::Promised && (is_single || self.redisson == 0);
        Promises {
            exclusion,
            // After a loss of data, those of Redisson start at one.
            rising_tokens: exclusion || self.redisson == 0,
            // Replicas acknowledge grants only.
            data: exclusion && is_single,
            order: false,
            delivery: false,
        }
    }

    /// The locks of the run.
    pub(crate) fn lock_infos(&self) -> Vec<LockInfo> {
        let only_quorum = [LockKind::RedLock];
        let kinds = if self.shape == ShapeName::Quorum { &only_quorum } else { &*self.kinds.0 };
        let kinds = kinds.iter().flat_map(|kind| (0..self.locks).map(move |_| *kind));
        kinds
            .enumerate()
            .map(|(number, kind)| LockInfo {
                name: format!("{kind:?}-{number}").to_lowercase(),
                kind,
                permits: 2,
            })
            .collect()
    }
}

/// Parses the name of a server program.
fn server_program(text: &str) -> Result<ServerProgram, String> {
    let program = ServerProgram::ALL.into_iter().find(|program| program.name() == text);
    program.ok_or_else(|| format!("use one of {:?}", ServerProgram::ALL.map(ServerProgram::name)))
}

/// A list of kinds.
#[derive(Clone, Debug)]
pub(crate) struct Kinds(Vec<LockKind>);

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(LockKind::ALL.into_iter().filter(|kind| !kind.is_unleased()).collect()));
        }
        let kind = |word: &str| {
            serde_json::from_value(word.into()).map_err(|_| format!("{word:?} is not a kind of lock"))
        };
        text.split(',').map(kind).collect::<Result<_, _>>().map(Self)
    }
}
