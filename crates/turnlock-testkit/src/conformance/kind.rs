use std::ops::Deref;

use turnlock::{Client, Lock, blocking};

/// The kind of primitive that a case runs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Client::lock`.
    Lock,
    /// `Client::fair_lock`.
    Fair,
    /// `Client::fenced_lock`.
    Fenced,
    /// `Client::spin_lock`.
    Spin,
    /// `Client::plain_lock`.
    Plain,
    /// The writer of a read-write lock.
    Write,
    /// The reader of a read-write lock.
    Read,
    /// `Client::semaphore`.
    Semaphore,
    /// `Client::permit_semaphore`.
    Permits,
    /// `Client::latch`.
    Latch,
    /// A `MultiLock`.
    Multi,
    /// A `RedLock`.
    Red,
}

impl Kind {
    /// The kinds that the conformance suite runs on: every exclusive kind of the type `Lock`.
    pub const ALL: [Self; 6] = [Self::Lock, Self::Fair, Self::Fenced, Self::Spin, Self::Plain, Self::Write];

    /// The kinds that can be used as a mutex.
    pub const MUTEXES: [Self; 10] = [
        Self::Lock,
        Self::Fair,
        Self::Fenced,
        Self::Spin,
        Self::Plain,
        Self::Write,
        Self::Semaphore,
        Self::Permits,
        Self::Multi,
        Self::Red,
    ];

    /// Returns the name of its group of trials.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::Plain => "plain",
            Self::Write => "write",
            Self::Read => "read",
            Self::Semaphore => "semaphore",
            Self::Permits => "permits",
            Self::Latch => "latch",
            Self::Multi => "multi",
            Self::Red => "red",
        }
    }
}

/// A client whose `lock` returns a lock of the case's kind.
#[derive(Clone, Debug)]
pub struct KindClient {
    client: Client,
    kind: Kind,
}

impl KindClient {
    /// Creates a client for this kind.
    pub fn new(client: Client, kind: Kind) -> Self {
        Self { client, kind }
    }

    /// Returns the kind of the case.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the same client for a kind that this kind excludes: writers for readers.
    #[must_use]
    pub fn rival(&self) -> Self {
        let kind = if self.kind == Kind::Read { Kind::Write } else { self.kind };
        Self { client: self.client.clone(), kind }
    }

    /// Returns the reentrant lock, for any kind of the case.
    pub fn reentrant(&self, name: &str) -> Lock {
        self.client.lock(name)
    }

    /// Returns a handle to the lock of this name, of the kind of the case.
    pub fn lock(&self, name: &str) -> Lock {
        match self.kind {
            Kind::Lock => self.client.lock(name),
            Kind::Fair => self.client.fair_lock(name),
            Kind::Fenced => self.client.fenced_lock(name),
            Kind::Spin => self.client.spin_lock(name),
            Kind::Plain => self.client.plain_lock(name),
            Kind::Write => self.client.read_write_lock(name).writer(),
            Kind::Read => self.client.read_write_lock(name).reader(),
            other => panic!("{} is not a lock", other.name()),
        }
    }
}

impl Deref for KindClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The blocking counterpart of [`KindClient`].
#[derive(Clone, Debug)]
pub struct BlockingKindClient {
    client: blocking::Client,
    kind: Kind,
}

impl BlockingKindClient {
    pub(super) fn new(client: blocking::Client, kind: Kind) -> Self {
        Self { client, kind }
    }

    /// Returns a handle to the lock of this name, of the kind of the case.
    pub fn lock(&self, name: &str) -> blocking::Lock {
        match self.kind {
            Kind::Lock => self.client.lock(name),
            Kind::Fair => self.client.fair_lock(name),
            Kind::Fenced => self.client.fenced_lock(name),
            Kind::Spin => self.client.spin_lock(name),
            Kind::Plain => self.client.plain_lock(name),
            Kind::Write => self.client.read_write_lock(name).writer(),
            Kind::Read => self.client.read_write_lock(name).reader(),
            other => panic!("{} is not a lock", other.name()),
        }
    }
}

impl Deref for BlockingKindClient {
    type Target = blocking::Client;

    fn deref(&self) -> &blocking::Client {
        &self.client
    }
}
