use turnlock_testkit::RedisServer;

/// A kind of store to run a case on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Redis,
    File,
    /// For what needs none.
    Nowhere,
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::File => "file",
            Self::Nowhere => "nowhere",
        }
    }

    /// Why it cannot be had on this machine.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Redis => RedisServer::missing(),
            Self::File | Self::Nowhere => None,
        }
    }
}
