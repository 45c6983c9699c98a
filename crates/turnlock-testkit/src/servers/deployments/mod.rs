//! Deployments of Redis, as real processes on loopback ports.

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

/// How long several servers may take to reach a state, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How long to sleep between two probes.
const POLL: Duration = Duration::from_millis(20);

/// Repeats `probe` until it returns a value. Each probe must complete by itself.
async fn until_found<T, Fut: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> Fut) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "{what}: not true within {LIMIT:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// Repeats `probe` until it returns `true`.
async fn until<Fut: Future<Output = bool>>(what: &str, mut probe: impl FnMut() -> Fut) {
    let probe = move || {
        let probing = probe();
        async move { probing.await.then_some(()) }
    };
    until_found(what, probe).await;
}
