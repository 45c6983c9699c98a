//! Bugs that are planted on purpose, to see that the fault campaign finds them.
//!
//! The switch is part of debug builds only. In a release build, [`Bug::is_planted`] is `false` for the compiler.

use std::sync::atomic::{AtomicU8, Ordering};

/// The planted bug, as its number. Zero for none.
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A holder believes in its lease for half a second too long.
    LateLocalEnd = 1,
    /// The lease of a holder has no safety margin.
    NoMargin,
    /// The lease of a grant counts from the reply.
    LeaseFromReply,
    /// The lease of a renewal counts from the reply.
    RenewalFromReply,
    /// A renewal that failed counts.
    FailedRenewalCounts,
    /// The outcomes of a batch of renewals are shifted by one.
    BatchShifted,
    /// All holds of a client have one owner id.
    ReusedOwner,
    /// A refused waiter takes the lock when the lease of the holder is nearly over.
    BusyIsGrant,
    /// The release of a lock that is not held creates a hold.
    ReleaseCreates,
    /// The renewal of a hold that is gone creates it.
    RenewalCreates,
    /// Any reply settles a request in doubt.
    AnyReplySettles,
    /// The grant to a caller that is gone is kept.
    CancelledGrantKept,
    /// A dropped guard is not released.
    DropWithoutRelease,
    /// The outcome of a request for permits is not remembered.
    PermitsReleasedTwice,
    /// A token only counts from the last one.
    TokenWithoutFloor,
    /// A writer ignores readers.
    WriterIgnoresReaders,
    /// A grant that too few replicas acknowledged counts.
    UnacknowledgedGrantCounts,
    /// A waiter of a fair lock is taken for dead between two heartbeats.
    LivingWaiterPurged,
    /// Holds are not checked after a reconnect.
    ReconnectIgnored,
    /// A minority of servers is enough for a lock on several of them.
    MinorityCounts,
    /// A delayed unlock comes in half its time.
    EarlyDelayedUnlock,
    /// A refused repeat of a delayed unlock releases the lock.
    RefusedRepeatReleases,
    /// A reentry does not raise the count on the store.
    ReentryNotCounted,
    /// A count-down of a latch counts twice.
    LatchCountsTwice,
    /// A lock is handed over inside a process after the hand-over window.
    HandOverAfterWindow,
    /// A holder is not told of the end of its lease.
    LostNotReported,
    /// A waiter sleeps until the end of the holder's lease, without messages and polls.
    WakeUpsIgnored,
    /// A deadlock is found of waits that end by themselves.
    DeadlockWithLimit,
    /// A client stays on a server that has become a replica.
    StaysOnReplica,
    /// Replicas acknowledge the writes of another connection.
    WaitElsewhere,
    /// Every other client of a file is taken for dead.
    PresenceIgnored,
}

impl Bug {
    /// The bugs of the engine and of the models, the same on all stores.
    pub const OF_ENGINE: [Self; 28] = [
        Self::LateLocalEnd,
        Self::NoMargin,
        Self::LeaseFromReply,
        Self::RenewalFromReply,
        Self::FailedRenewalCounts,
        Self::BatchShifted,
        Self::ReusedOwner,
        Self::BusyIsGrant,
        Self::ReleaseCreates,
        Self::RenewalCreates,
        Self::AnyReplySettles,
        Self::CancelledGrantKept,
        Self::DropWithoutRelease,
        Self::PermitsReleasedTwice,
        Self::TokenWithoutFloor,
        Self::WriterIgnoresReaders,
        Self::UnacknowledgedGrantCounts,
        Self::LivingWaiterPurged,
        Self::ReconnectIgnored,
        Self::MinorityCounts,
        Self::EarlyDelayedUnlock,
        Self::RefusedRepeatReleases,
        Self::ReentryNotCounted,
        Self::LatchCountsTwice,
        Self::HandOverAfterWindow,
        Self::LostNotReported,
        Self::WakeUpsIgnored,
        Self::DeadlockWithLimit,
    ];

    /// The bugs of one store.
    pub const OF_STORES: [Self; 3] = [Self::StaysOnReplica, Self::WaitElsewhere, Self::PresenceIgnored];

    /// Returns the bug with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::OF_ENGINE.into_iter().chain(Self::OF_STORES).find(|bug| format!("{bug:?}") == name)
    }

    /// Plants the bug in this process, or removes the one that is planted.
    pub fn plant(bug: Option<Self>) {
        PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
    }

    /// Returns `true` if this bug is planted.
    #[inline]
    pub fn is_planted(self) -> bool {
        cfg!(debug_assertions) && PLANTED.load(Ordering::Relaxed) == self as u8
    }
}
