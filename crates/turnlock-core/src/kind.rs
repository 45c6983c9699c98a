//! The kinds of primitives that a name can stand for, and how they differ.
//!
//! The rest of the code asks a [`Kind`] for its properties instead of matching on it, so that a new kind is
//! defined here.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The reentrant lock.
    Lock,
    /// The reentrant lock without messages: waiters poll. Shares its key with [`Kind::Lock`].
    Spin,
    /// The reentrant lock with a fencing token that rises with every grant.
    Fenced,
    /// The reentrant lock that is granted in the order of arrival, across all processes.
    Fair,
    /// The read side of a read-write lock.
    Read,
    /// The write side of a read-write lock.
    Write,
    /// A value that is set if absent: the lock of redis-py, redsync and node-redlock.
    Plain,
    /// A number of permits without owners.
    Semaphore,
    /// A number of permits with ids and leases.
    Permits,
    /// A count that goes down to zero once.
    Latch,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Lock,
        Self::Spin,
        Self::Fenced,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Plain,
        Self::Semaphore,
        Self::Permits,
        Self::Latch,
    ];

    /// Returns `true` if holds of both kinds can exist under one name.
    pub fn is_compatible_with(self, other: Self) -> bool {
        match self {
            Self::Read => other == Self::Read,
            Self::Semaphore | Self::Permits | Self::Latch => true,
            Self::Lock | Self::Spin | Self::Fenced | Self::Fair | Self::Write | Self::Plain => false,
        }
    }

    /// Returns `true` if adjacent waiters of this kind share the front of the local queue.
    ///
    /// They all send requests then, not only the first of them.
    pub fn shares_front(self) -> bool {
        self == Self::Read
    }

    /// Returns `true` if a hold may pass to a waiter of the same process.
    ///
    /// The other kinds have an order of their own, a token for each grant, or no messages about releases.
    pub fn allows_hand_over(self) -> bool {
        self == Self::Lock
    }

    /// Returns `true` if the waiters of a process yield to other processes after a release.
    ///
    /// Otherwise the process that releases would be the next to acquire, again and again. Waiters of the other
    /// exclusive kinds send nothing before the release has its reply, and its messages reach other processes by then;
    /// fair locks have an order, and readers share.
    pub fn yields_to_others(self) -> bool {
        matches!(self, Self::Lock | Self::Semaphore | Self::Permits)
    }

    /// Returns `true` if releases are published. Waiters of the other kinds poll.
    pub fn publishes_releases(self) -> bool {
        !matches!(self, Self::Spin | Self::Plain)
    }

    /// Returns `true` if a hold expires unless it is renewed.
    pub fn is_leased(self) -> bool {
        !matches!(self, Self::Semaphore | Self::Latch)
    }

    /// Returns `true` if the id of a holder contains its client. The id of a permit does not.
    pub fn identifies_clients(self) -> bool {
        !matches!(self, Self::Semaphore | Self::Permits | Self::Latch)
    }

    /// Returns `true` if the store keeps state about waiters.
    ///
    /// A waiter removes it when it gives up. The state is a position in a queue, or the intent of a writer.
    pub fn stores_waiters(self) -> bool {
        matches!(self, Self::Fair | Self::Write)
    }

    /// Returns `true` if clients of another implementation may shorten the lease of a hold.
    ///
    /// A fixed lease of such a kind is therefore renewed, too, for the time that it has left.
    pub fn lease_may_be_shortened(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// Returns the kind that stands for all kinds renewed by the same request.
    #[must_use]
    pub fn renewal_group(self) -> Self {
        match self {
            Self::Lock | Self::Spin | Self::Fenced | Self::Fair => Self::Lock,
            Self::Read | Self::Write => Self::Read,
            Self::Plain | Self::Semaphore | Self::Permits | Self::Latch => self,
        }
    }

    /// A name for users of the primitive that keeps the state: both sides of a read-write lock are one.
    pub fn primitive(self) -> &'static str {
        match self {
            Self::Read | Self::Write => "read-write lock",
            _ => self.label(),
        }
    }

    /// Returns the name of this kind for error messages and reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Spin => "spin lock",
            Self::Fenced => "fenced lock",
            Self::Fair => "fair lock",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Plain => "plain lock",
            Self::Semaphore => "semaphore",
            Self::Permits => "permit semaphore",
            Self::Latch => "latch",
        }
    }
}
