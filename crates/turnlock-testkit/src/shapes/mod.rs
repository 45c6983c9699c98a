//! The shapes in which people run Redis, as real processes on loopback ports.

mod certificates;
mod cluster_set;
mod cluster_view;
mod replica_set;
mod replication;
mod sentinel_set;
mod sentinel_view;
mod slot_migration;
mod tls_server;

use std::time::{Duration, Instant};

pub use certificates::Certificates;
pub use cluster_set::ClusterSet;
pub use replica_set::ReplicaSet;
pub use sentinel_set::SentinelSet;
pub use slot_migration::SlotMigration;
pub use tls_server::TlsServer;

/// How long several servers may take until they agree on something, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How long to rest between two looks at several servers.
const POLL: Duration = Duration::from_millis(20);

/// Looks again and again until something is found. Each look must come to an end by itself.
async fn until_found<T, Fut: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> Fut) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: not so within {LIMIT:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// Looks again and again until it is so.
async fn until<Fut: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> Fut) {
    let look = move || {
        let looking = look();
        async move { looking.await.then_some(()) }
    };
    until_found(what, look).await;
}
