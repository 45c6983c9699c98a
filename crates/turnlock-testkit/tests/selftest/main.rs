//! Tests of the servers and faults of this crate, with a real `redis-server`.

mod deployments;
mod network;
mod processes;
mod requests;
mod server;
mod waits;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, RedisResult};
use turnlock_testkit::{FaultProxy, RedisServer};

const LIMIT: Duration = Duration::from_secs(10);
/// Many times longer than a round trip, to show that there is none.
const QUIET: Duration = Duration::from_millis(150);

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    let client = redis::Client::open(url).expect("a valid URL");
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn setup() -> (RedisServer, FaultProxy, MultiplexedConnection) {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let client = connect(&proxy.url()).await.expect("the proxy passes");
    (server, proxy, client)
}

async fn value(server: &RedisServer, key: &str) -> Option<i64> {
    server.client().await.get(key).await.expect("a readable key")
}
