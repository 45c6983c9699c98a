//! What a seed means: processes, locks, delays and faults.

use std::time::Duration;

use fastrand::Rng;

use crate::history::{LockInfo, LockKind, Promises};

/// What happens in a simulation, as its seed says.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) processes: u32,
    /// Tasks in each process.
    pub(crate) tasks: u32,
    /// Turns of each task.
    pub(crate) turns: u32,
    /// Three if a lock is acquired on a majority of them, else one.
    pub(crate) deployments: u32,
    pub(crate) locks: Vec<LockInfo>,
    /// The number of replicas that must acknowledge a grant.
    pub(crate) replicas: u32,
    pub(crate) watchdog_ms: u64,
    /// How many of 100 holds last long.
    pub(crate) long_holds: u8,
    /// Clients announce their waits, look for deadlocks, and some tasks hold two locks.
    pub(crate) announces: bool,
    /// The longest usual delay of a message, in milliseconds.
    pub(crate) delay_ms: u64,
    /// The longest time between two faults, in milliseconds.
    pub(crate) calm_ms: u64,
    /// Now and then, there is no fault for so long that all effects of faults end.
    pub(crate) has_quiet: bool,
    pub(crate) faults: Vec<Fault>,
    /// How much faster the clock of the server runs than that of the clients, in microseconds per second.
    pub(crate) drift: i64,
}

/// How far the clock of a server is set ahead or back at most.
pub(crate) const MOST_AHEAD: Duration = Duration::from_secs(30);

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fault {
    /// A connection breaks. Requests under way may still arrive.
    Reset,
    /// Requests of a client wait, and arrive in order after that, also when the client has given up.
    Late,
    /// Nothing arrives at the server for a while.
    BlackHole,
    /// All messages are slow.
    Slow,
    /// Requests are executed twice.
    Duplicate,
    /// Messages about releases are lost.
    LostMessages,
    /// The server restarts with its data.
    Restart,
    /// The server refuses requests while it loads its data.
    Loading,
    /// The server denies the requests of a client, as after a change of its permissions.
    Denied,
    /// The server becomes a replica of an up-to-date one: writes are refused.
    Demotion,
    /// The replica is promoted, with what it has.
    Promotion,
    /// As a promotion, but some clients reach the old master for a while.
    SplitBrain,
    /// The replica receives nothing for a while.
    SlowReplica,
    /// The clock of the server is set back.
    ClockBack,
    /// The clock of the server is set forward.
    ClockForward,
    /// The server restarts without its data.
    DataLoss,
    /// The server restarts with data of a moment ago.
    OldSnapshot,
    /// A process is stopped for a while, often longer than a lease.
    Stop,
    /// A process is killed, and another one is started.
    Kill,
    /// A client shuts down, and another process is started.
    Shutdown,
}

impl Fault {
    /// All of them but `Denied`.
    const DRAWN: [Self; 19] = [
        Self::Reset,
        Self::Late,
        Self::BlackHole,
        Self::Slow,
        Self::Duplicate,
        Self::LostMessages,
        Self::Restart,
        Self::Loading,
        Self::Demotion,
        Self::Promotion,
        Self::SplitBrain,
        Self::SlowReplica,
        Self::ClockBack,
        Self::ClockForward,
        Self::DataLoss,
        Self::OldSnapshot,
        Self::Stop,
        Self::Kill,
        Self::Shutdown,
    ];

    /// The name in the history.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").chars().fold(String::new(), |mut name, character| {
            if character.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(character.to_lowercase());
            name
        })
    }

    /// The fault that changes the same of a server or a connection: while one is under way, the other is not injected.
    pub(crate) fn changed_as(self) -> Self {
        match self {
            Self::DataLoss | Self::OldSnapshot => Self::Restart,
            Self::SplitBrain => Self::SlowReplica,
            _ => self,
        }
    }

    /// Returns `true` if permits without a lease may be lost: with their holder, with the data, or with a release that
    /// the server denies or the replica does not have.
    fn loses_permits(self) -> bool {
        matches!(self, Self::Kill | Self::Shutdown | Self::Denied | Self::Promotion | Self::SplitBrain)
            || self.breaks_promise(0)
    }

    /// Returns `true` if under this fault requests of live clients arrive once, and in time.
    fn is_gentle(self) -> bool {
        matches!(self, Self::LostMessages | Self::SlowReplica | Self::Stop | Self::Kill | Self::Shutdown)
    }

    /// Returns `true` if exclusion is not promised under this fault.
    fn breaks_promise(self, replicas: u32) -> bool {
        match self {
            Self::ClockForward | Self::DataLoss | Self::OldSnapshot => true,
            Self::Promotion | Self::SplitBrain => replicas == 0,
            _ => false,
        }
    }
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Their runs take about ten times as long.
        let is_red_lock = rng.u8(..16) == 0;
        let replicas = u32::from(rng.u8(..3) == 0 && !is_red_lock);
        // Half of the runs have only faults under which exclusion is promised.
        let promises = rng.bool();
        let mut faults: Vec<_> = Fault::DRAWN.into_iter().filter(|_| rng.u8(..3) == 0).collect();
        // Drawn apart, so that the other seeds stay what they were.
        if Rng::with_seed(!seed).u8(..3) == 0 {
            faults.push(Fault::Denied);
        }
        faults.retain(|fault| !promises || !fault.breaks_promise(replicas));
        // In some runs, less is different: the order of waiters and the counts can be checked.
        if rng.u8(..8) == 0 {
            faults.retain(|fault| fault.is_gentle());
        }
        let kinds: Vec<_> = if is_red_lock {
            vec![Some(LockKind::RedLock)]
        } else {
            (0..rng.usize(1..=3)).map(|_| rng.choice(LockKind::ALL)).collect()
        };
        // Long leases and calm times show whether a holder is told before its lease ends.
        let is_calm = rng.u8(..8) == 0;
        if is_calm && !promises {
            faults = vec![Fault::DataLoss];
        }
        if kinds.contains(&Some(LockKind::Semaphore)) {
            // Permits without a lease do not return.
            faults.retain(|fault| !fault.loses_permits());
        }
        let lock = |(number, kind): (usize, Option<LockKind>)| {
            let kind = kind.unwrap_or(LockKind::Lock);
            LockInfo { name: format!("{kind:?}-{number}").to_lowercase(), kind, permits: 2 }
        };
        Self {
            seed,
            processes: rng.u32(2..=4),
            tasks: rng.u32(1..=4),
            turns: if is_calm { rng.u32(10..=40) } else { rng.u32(40..=200) },
            deployments: if is_red_lock { 3 } else { 1 },
            locks: kinds.into_iter().enumerate().map(lock).collect(),
            replicas,
            watchdog_ms: if is_calm { rng.u64(20_000..=30_000) } else { rng.u64(1_500..=6_000) },
            long_holds: if is_calm { 30 } else { 7 },
            announces: Rng::with_seed(seed ^ 0x616e).u8(..3) == 0,
            delay_ms: rng.u64(1..=8),
            calm_ms: if is_calm { rng.u64(20_000..=40_000) } else { rng.u64(200..=4_000) },
            has_quiet: Rng::with_seed(seed ^ 0x7175).u8(..3) == 0,
            faults,
            // The safety margin of a lease is a hundredth of it, and two milliseconds.
            drift: rng.i64(-8_000..=8_000),
        }
    }

    /// What is promised under the faults of this plan.
    pub(crate) fn promises(&self) -> Promises {
        let none = |is_bad: fn(&Fault) -> bool| !self.faults.iter().any(is_bad);
        let exclusion = !self.faults.iter().any(|fault| fault.breaks_promise(self.replicas));
        Promises {
            exclusion,
            // They rise even if data is lost, while the clock of the server does.
            rising_tokens: exclusion || none(|fault| matches!(fault, Fault::ClockBack | Fault::ClockForward)),
            data: none(|fault| fault.breaks_promise(0)),
            order: none(|fault| !fault.is_gentle() || *fault == Fault::Stop),
            delivery: none(|fault| !fault.is_gentle()),
        }
    }

    /// Returns `true` if the clock of the server does not go back: only then it shows which waits were at the same time.
    pub(crate) fn has_steady_clock(&self) -> bool {
        !self.faults.contains(&Fault::ClockBack)
    }

    /// The longest time that the server keeps a hold or a waiter that nothing renews.
    pub(crate) fn longest_lease(&self) -> Duration {
        // A fixed lease, or the heartbeat of a waiter.
        let longest = Duration::from_millis(self.watchdog_ms).max(Duration::from_secs(4));
        // The clock of the server may be slower, or have been set back.
        let clock = if self.has_steady_clock() { longest / 100 } else { 2 * MOST_AHEAD };
        longest + clock + Duration::from_secs(1)
    }

    /// Returns `true` if dead waiters may be left on the store: no request removes them after the last process has ended.
    ///
    /// Their clients are gone, their requests arrived once more, or the server has forgotten that they had left.
    pub(crate) fn leaves_waiters(&self) -> bool {
        use Fault::{Duplicate, Kill, Late, OldSnapshot, Promotion, Shutdown, SplitBrain};

        self.faults.iter().any(|fault| {
            matches!(fault, Kill | Shutdown | Late | Duplicate | OldSnapshot | Promotion | SplitBrain)
        })
    }

    /// Returns `true` if a server of this plan must know what it has executed.
    pub(crate) fn needs_log(&self) -> bool {
        use Fault::{OldSnapshot, Promotion, SplitBrain};

        self.replicas > 0
            || self.faults.iter().any(|fault| matches!(fault, OldSnapshot | Promotion | SplitBrain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_and_kind_and_both_promises_occur() {
        let plans: Vec<_> = (0..200).map(Plan::new).collect();
        for fault in Fault::DRAWN.into_iter().chain([Fault::Denied]) {
            assert!(plans.iter().any(|plan| plan.faults.contains(&fault)), "{fault:?}");
        }
        for kind in LockKind::ALL {
            let has_kind = |plan: &Plan| plan.locks.iter().any(|lock| lock.kind == kind);
            assert!(plans.iter().any(has_kind), "{kind:?}");
        }
        assert!(plans.iter().any(|plan| plan.locks[0].kind == LockKind::RedLock));
        let announcing = plans.iter().filter(|plan| plan.announces).count();
        assert!((40..100).contains(&announcing), "{announcing}");
        let promising = plans.iter().filter(|plan| plan.promises().exclusion).count();
        assert!((60..180).contains(&promising), "{promising}");
    }

    #[test]
    fn names_of_faults_are_in_snake_case() {
        assert_eq!((Fault::SplitBrain.name(), Fault::Reset.name()), ("split_brain".into(), "reset".into()));
    }
}
