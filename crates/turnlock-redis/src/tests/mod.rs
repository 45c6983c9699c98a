//! Compares the scripts with the model: random histories on both, with the same replies, states and messages.

mod activity;
pub(crate) mod any_reply;
mod connecting;
mod fair;
mod histories;
mod latch;
mod limits;
mod lock;
mod permits;
mod read_write;
mod replicated;
mod semaphore;
mod shared_calls;
mod writes;

use std::time::Duration;

use turnlock_store::Failure;
use turnlock_testkit::RedisServer;

use super::{Access, Address, ClusterMessages, Redis, Servers, Target};

impl Access {
    /// Settings for a server without authentication.
    pub(super) fn for_tests() -> Self {
        Self {
            username: None,
            password: None,
            database: 0,
            client_name: None,
            connect_limit: Duration::from_secs(5),
            tls: None,
        }
    }
}

/// Connects the store to a test server.
async fn connected(server: &RedisServer) -> Redis {
    connected_as(server.port(), Access::for_tests()).await
}

/// Connects to another port, as a fault proxy has, or as another user.
async fn connected_as(port: u16, access: Access) -> Redis {
    connect_to(port, access).await.expect("a connection")
}

async fn connect_to(port: u16, access: Access) -> Result<Redis, Failure> {
    let servers = Servers::One(Address::tcp("127.0.0.1", port));
    let (sentinel_access, messages) = (access.clone(), ClusterMessages::Auto);
    let target = Target { servers, access, sentinel_access, messages };
    Redis::connect(target).await
}

/// The typed calls of the store.
impl std::ops::Deref for super::Redis {
    type Target = dyn turnlock_store::Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}
