use turnlock_testkit::RedisServer;

/// The store of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Redis,
    File,
    /// For cases that need no store.
    Memory,
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::File => "file",
            Self::Memory => "memory",
        }
    }

    /// Why the store is not available on this machine, if it is not.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Redis => RedisServer::missing(),
            Self::File | Self::Memory => None,
        }
    }
}
