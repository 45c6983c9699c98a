//! Compares the scripts with the model: random histories on both, with the same replies, states and messages.

mod batcher;
mod fair;
mod histories;
mod latch;
mod limits;
mod lock;
mod permits;
mod read_write;
mod replicated;
mod semaphore;
mod writes;

use turnlock_testkit::RedisServer;

use super::{Access, Address, Redis, Shape, Target};

/// Connects the store to a test server.
async fn connected(server: &RedisServer) -> Redis {
    connected_as(server.port(), Access::for_tests()).await
}

/// Connects to another port, as a fault proxy has, or as another user.
async fn connected_as(port: u16, access: Access) -> Redis {
    let shape = Shape::Single(Address::tcp("127.0.0.1", port));
    Redis::connect(Target { shape, access }).await.expect("a connection")
}

/// The typed calls of the store.
impl std::ops::Deref for super::Redis {
    type Target = dyn turnlock_store::Store;

    fn deref(&self) -> &Self::Target {
        self
    }
}
