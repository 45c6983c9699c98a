//! The kinds of things that have a name on the store, and what follows from the kind.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The reentrant lock.
    Lock,
    /// The reentrant lock for a store without messages: the same key as [`Kind::Lock`].
    Spin,
    /// The reentrant lock with a token that rises with every grant.
    Fenced,
    /// The reentrant lock that is granted in the order of arrival, over all processes.
    Fair,
    /// The reading side of a read-write lock.
    Read,
    /// The writing side of a read-write lock.
    Write,
    /// A value that is set if there is none: the lock of redis-py, redsync and node-redlock.
    Plain,
    /// A number of permits without owners.
    Semaphore,
    /// A number of permits with ids and leases.
    Permits,
    /// A count that goes down to zero once.
    Latch,
}

impl Kind {
    /// All of them.
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

    /// Whether holds of the two kinds, which stand under one name, can stand at the same time.
    pub fn goes_with(self, other: Self) -> bool {
        match self {
            Self::Read => other == Self::Read,
            Self::Semaphore | Self::Permits | Self::Latch => true,
            Self::Lock | Self::Spin | Self::Fenced | Self::Fair | Self::Write | Self::Plain => false,
        }
    }

    /// Whether waiters of this kind that stand one behind the other ask the store together, and not only the first.
    pub fn asks_in_company(self) -> bool {
        matches!(self, Self::Read | Self::Latch)
    }

    /// Whether a hold may pass from one waiter to the next within a process, and whether its waiters let other processes go first.
    /// Others have an order of their own, a token for each grant, or nobody who is told.
    pub fn is_handed_over(self) -> bool {
        self == Self::Lock
    }

    /// Whether an end is told by a message. Where it is not, a waiter asks again and again.
    pub fn is_told(self) -> bool {
        !matches!(self, Self::Spin | Self::Plain)
    }

    /// Whether a hold ends by itself when nobody renews it.
    pub fn is_leased(self) -> bool {
        !matches!(self, Self::Semaphore | Self::Latch)
    }

    /// Whether it can be seen on the store which client holds it. The id of a permit does not tell.
    pub fn shows_clients(self) -> bool {
        !matches!(self, Self::Semaphore | Self::Permits | Self::Latch)
    }

    /// Whether one who waits has left something on the store that must be taken away when it gives up: a place in a
    /// queue, or the word that a writer waits.
    pub fn leaves_traces(self) -> bool {
        matches!(self, Self::Fair | Self::Write)
    }

    /// Whether a neighbour of another make may shorten the lease of a hold of this kind, so that a fixed lease, too,
    /// has to be said again.
    pub fn is_shortened_by_others(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// The kind that stands for all which are renewed by the same request.
    #[must_use]
    pub fn renewed_as(self) -> Self {
        match self {
            Self::Lock | Self::Spin | Self::Fenced | Self::Fair => Self::Lock,
            Self::Read | Self::Write => Self::Read,
            Self::Plain | Self::Semaphore | Self::Permits | Self::Latch => self,
        }
    }

    /// How this kind is called in messages to people.
    pub fn noun(self) -> &'static str {
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
