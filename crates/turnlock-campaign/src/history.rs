//! What happens in a run: one event per line, as JSON.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// How long a fault may have an effect: a request that arrives late, and the lease that it starts.
pub(crate) const LONGEST_EFFECT_MS: u64 = 150_000;

/// The same in microseconds, as the times of events.
pub(crate) const LONGEST_EFFECT: u64 = LONGEST_EFFECT_MS * 1_000;

/// How long after its grant a lock may be handed over inside a process.
pub(crate) const HAND_OVER_WINDOW_MS: u64 = 10;

/// The shape of a run on simulated time.
pub(crate) const SIMULATION: &str = "simulation";

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Microseconds since the start of the run, by one clock for all processes.
    pub(crate) t: u64,
    /// The process, from 1. Zero for the run itself.
    pub(crate) process: u32,
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What happened. `op` is the number of an acquire: what follows from it has the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
    /// The first event.
    Run {
        seed: u64,
        shape: String,
        promises: Promises,
        /// The lease of a hold that is renewed.
        watchdog_ms: u64,
        locks: Vec<LockInfo>,
    },
    /// A request for a lock begins.
    Acquire {
        op: u64,
        lock: usize,
        mode: Mode,
        permits: u32,
        wait: Wait,
        lease_ms: Option<u64>,
        /// The number of an explicit owner. Its holds may overlap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner_number: Option<usize>,
    },
    Granted {
        op: u64,
        owner: String,
        token: Option<u64>,
        valid_until: u64,
    },
    /// The lock is held by another owner.
    Busy {
        op: u64,
    },
    /// It failed. In doubt: the store may have granted it.
    Failed {
        op: u64,
        error: String,
    },
    /// The caller dropped it.
    Cancelled {
        op: u64,
    },
    /// The same owner acquired it once more, or released it once. `stored` is the count on the store, if it was read
    /// while the hold was valid. In doubt: a reentry was cancelled, and the store may count it.
    Count {
        op: u64,
        count: u32,
        stored: Option<u64>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_doubt: bool,
    },
    /// The holder writes to a register that rejects tokens below the highest one. Some write after the hold has ended.
    Write {
        op: u64,
        token: u64,
    },
    /// The holder was told that the lock is lost.
    Lost {
        op: u64,
        reason: String,
        valid_until: u64,
    },
    /// The holder begins to release it. The belief of the holder ended at `valid_until`, if that is earlier.
    Release {
        op: u64,
        by: ReleaseBy,
        valid_until: u64,
    },
    Released {
        op: u64,
        error: Option<String>,
    },
    /// A reentry of a hold failed, or the release of one. Until then, the belief of the holder ended at `valid_until`.
    ReentryFailed {
        op: u64,
        error: String,
        valid_until: u64,
    },
    /// A call that is about no hold failed: a search for deadlocks, the count of a latch, or a shutdown.
    CallFailed {
        call: String,
        error: String,
    },
    /// An operation on a latch begins.
    Latch {
        op: u64,
        lock: usize,
        action: LatchAction,
    },
    /// It has ended. `None`: it is unknown whether it took effect, since the caller dropped it, or it failed.
    LatchDone {
        op: u64,
        outcome: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The server removed a waiter of a live client from the queue of a fair lock.
    Purged {
        owner: String,
    },
    /// A client found a certain deadlock. There is none: tasks that hold a lock wait for others in one order, or not for ever.
    Deadlock {
        text: String,
    },
    Process {
        is: ProcessState,
    },
    /// The process did not run for so many microseconds before this moment, without a fault: the machine was busy. Of the run
    /// itself: no process ran, or a disk did not write.
    Stalled {
        us: u64,
    },
    /// How much memory the process has, in KiB.
    Memory {
        kib: u64,
    },
    /// A fault begins or, after `ends`, is over.
    Fault {
        fault: String,
        detail: String,
        ends: bool,
    },
    /// No fault is injected any more.
    Healed,
    /// All clients have ended, and all leases are over. What is left on the store, and the free permits of semaphores.
    End {
        left: Vec<String>,
        #[serde(default)]
        available: Vec<Available>,
    },
}

/// What a run promises, which depends on its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent promises")]
pub(crate) struct Promises {
    /// Holds exclude each other.
    pub(crate) exclusion: bool,
    pub(crate) rising_tokens: bool,
    /// The server forgets nothing that it has executed.
    pub(crate) data: bool,
    /// Waiters of live clients stay in the queues of fair locks.
    pub(crate) order: bool,
    /// Every request arrives once, before its caller gives up.
    pub(crate) delivery: bool,
}

/// An operation on a latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LatchAction {
    /// Sets the count, if it is zero. The outcome says whether it did.
    Set {
        count: u32,
    },
    CountDown,
    /// Waits until the count is zero. The outcome says whether it is.
    Wait {
        ms: u64,
    },
}

impl LatchAction {
    /// Returns `true` if it waits longer than any fault can have an effect.
    pub(crate) fn is_last(self) -> bool {
        matches!(self, Self::Wait { ms } if ms >= LONGEST_EFFECT_MS)
    }
}

/// The free permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Available {
    pub(crate) lock: usize,
    pub(crate) permits: i64,
}

impl What {
    /// A fault begins, or ends.
    pub(crate) fn fault(fault: &str, detail: &str, ends: bool) -> Self {
        Self::Fault { fault: fault.to_owned(), detail: detail.to_owned(), ends }
    }
}

/// A lock of a run, and its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockInfo {
    pub(crate) name: String,
    pub(crate) kind: LockKind,
    /// The number of permits, for a semaphore.
    pub(crate) permits: u32,
}

/// The kinds of locks that a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LockKind {
    Lock,
    Fair,
    Fenced,
    Spin,
    Plain,
    ReadWrite,
    Semaphore,
    Permits,
    Latch,
    /// A lock on a majority of three servers.
    RedLock,
}

impl LockKind {
    /// The kinds that one server has.
    pub(crate) const ALL: [Self; 9] = [
        Self::Lock,
        Self::Fair,
        Self::Fenced,
        Self::Spin,
        Self::Plain,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Permits,
        Self::Latch,
    ];

    /// Returns `true` if permits stay taken when their holder dies.
    pub(crate) fn is_unleased(self) -> bool {
        self == Self::Semaphore
    }

    /// Returns `true` if it has permits.
    pub(crate) fn is_semaphore(self) -> bool {
        matches!(self, Self::Semaphore | Self::Permits)
    }

    /// Returns `true` if a lock of this kind can be acquired together with others, and reentered.
    pub(crate) fn is_lock(self) -> bool {
        !self.is_semaphore() && !matches!(self, Self::Latch | Self::RedLock)
    }
}

/// How a lock is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    No,
    For { ms: u64 },
    Endless,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReleaseBy {
    Unlock,
    /// The caller dropped the future of the release.
    CancelledUnlock,
    Drop,
    /// The store releases it after this time.
    UnlockAfter {
        ms: u64,
    },
    /// The same, and the caller dropped its future.
    CancelledUnlockAfter {
        ms: u64,
    },
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProcessState {
    Started,
    /// One with clients of Redisson.
    RedissonStarted,
    Stopped,
    Continued,
    Killed,
    ShutDown,
    /// Its tasks do not end.
    Stuck,
    /// It ended with an error.
    Failed,
    Panicked,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&line)
    }
}

/// Writes events to a file.
pub(crate) fn write_file(events: &[Event], path: &Path) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut file = BufWriter::new(file);
    write(events, &mut file)?;
    Ok(file.flush()?)
}

/// Writes events, one per line.
pub(crate) fn write(events: &[Event], to: &mut impl Write) -> anyhow::Result<()> {
    for event in events {
        writeln!(to, "{event}")?;
    }
    Ok(())
}

/// Reads the events of a file.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<Vec<Event>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let lines = BufReader::new(file).lines().enumerate();
    lines
        .map(|(index, line)| {
            serde_json::from_str(&line?).with_context(|| format!("line {} is not an event", index + 1))
        })
        .collect()
}
