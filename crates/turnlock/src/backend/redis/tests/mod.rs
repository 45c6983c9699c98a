//! The model and the scripts are the same machine: random histories on both, every answer, every state and every message
//! compared.

mod fair;
mod histories;
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
    let address = Address::tcp("127.0.0.1", server.port());
    Redis::connect(Target { shape: Shape::Single(address), access: Access::for_tests() })
        .await
        .expect("a connection")
}
