//! The model and the scripts are the same machine: random histories on both, every answer, every state and every message
//! compared.

mod convoy;
mod fair;
mod histories;
mod lane;
mod latch;
mod limits;
mod lock;
mod permits;
mod read_write;
mod semaphore;
mod writes;

use turnlock_testkit::RedisServer;

use super::{Access, Address, Redis, Shape, Target};

/// The backend on a server of a test's own.
async fn connected(server: &RedisServer) -> Redis {
    connected_as(server.port(), Access::for_tests()).await
}

/// The same by another way, or as somebody.
async fn connected_as(port: u16, access: Access) -> Redis {
    let shape = Shape::Single(Address::tcp("127.0.0.1", port));
    Redis::connect(Target { shape, access }).await.expect("a connection")
}
