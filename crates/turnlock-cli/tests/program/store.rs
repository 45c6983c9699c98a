//! The stores that cases run on.

use std::sync::{Arc, OnceLock};

use turnlock_testkit::{RedisServer, Shared};

/// A store. The titles of cases begin with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// One server for all cases.
    Redis,
    /// One file per case.
    File,
}

static SERVER: Shared<RedisServer> = Shared::new();

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::File => "file",
        }
    }

    /// Why the store is not available on this machine, if it is not.
    pub(crate) fn missing(self) -> Option<String> {
        // The check runs a program, so its result is cached.
        static MISSING: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Redis => MISSING.get_or_init(RedisServer::missing).clone(),
            Self::File => None,
        }
    }

    /// The server that all cases share, for Redis.
    pub(crate) async fn server(self) -> Option<Arc<RedisServer>> {
        match self {
            Self::Redis => Some(SERVER.get(RedisServer::start).await),
            Self::File => None,
        }
    }

    /// Stops the shared server.
    pub(crate) fn close_all() {
        SERVER.close();
    }
}
