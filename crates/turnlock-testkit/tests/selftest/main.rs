//! Proof that servers and faults do what they say, against a real `redis-server`.

mod network;
mod patience;
mod processes;
mod requests;
mod server;
mod shapes;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, RedisResult};
use turnlock_testkit::{FaultProxy, RedisServer};

const LIMIT: Duration = Duration::from_secs(10);
/// Long enough for a round trip many times over, where the absence of one is to be shown.
const QUIET: Duration = Duration::from_millis(150);

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    let client = redis::Client::open(url).expect("a good address");
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
