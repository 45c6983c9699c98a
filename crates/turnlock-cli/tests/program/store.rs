//! The stores that cases run on.

use std::sync::{Arc, OnceLock};

use turnlock_testkit::{RedisServer, Shared};

/// A store, as the names of cases begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// A server for all cases.
    Redis,
    /// A file for each case.
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

    pub(crate) fn missing(self) -> Option<String> {
        // Asked of a program, and once is enough for all cases.
        static MISSING: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Redis => MISSING.get_or_init(RedisServer::missing).clone(),
            Self::File => None,
        }
    }

    /// The server that all cases share, where there is one.
    pub(crate) async fn server(self) -> Option<Arc<RedisServer>> {
        match self {
            Self::Redis => Some(SERVER.get(RedisServer::start).await),
            Self::File => None,
        }
    }

    /// Ends what was started for several cases.
    pub(crate) fn close_all() {
        SERVER.close();
    }
}
