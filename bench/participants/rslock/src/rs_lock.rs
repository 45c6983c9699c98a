use std::sync::Arc;
use std::time::Duration;

use contract::{Participant, Refusal, Settings};
use rslock::{LockGuard, LockManager};
use tokio::sync::Semaphore;

/// The number of concurrent requests while many locks are acquired.
const CONCURRENCY: usize = 64;

/// A manager with its default settings; its `acquire` retries without a limit.
#[derive(Clone)]
pub(crate) struct RsLock {
    manager: LockManager,
    lease: Duration,
}

impl Participant for RsLock {
    // A release is a script.
    const DIRECT: &'static [&'static str] = &["set"];

    type Lock = String;
    type Held = LockGuard;

    async fn connect(settings: &Settings) -> Result<Self, Refusal> {
        if !settings.is_default_kind() {
            return Err(Refusal::Unsupported(format!("rslock has no lock of kind {}", settings.kind)));
        }
        let manager = if settings.cluster.is_empty() {
            LockManager::new(vec![settings.url()])
        } else {
            let manager = LockManager::new_cluster(settings.cluster_urls());
            manager.map_err(|error| Refusal::Failed(error.to_string()))?
        };
        Ok(Self { manager, lease: settings.lease() })
    }

    fn lock(&self, name: &str) -> String {
        name.to_owned()
    }

    async fn acquire(&self, lock: &String) -> Result<LockGuard, String> {
        self.manager.acquire(lock.as_str(), self.lease).await.map_err(|error| error.to_string())
    }

    async fn release(&self, _: &String, held: LockGuard) -> Result<(), String> {
        held.release().await;
        Ok(())
    }

    /// With `using`, the only call that renews: a task for each lock, shortly before its end.
    async fn hold_all(&self, names: Vec<String>) -> Result<(), String> {
        let in_flight = Arc::new(Semaphore::new(CONCURRENCY));
        for name in names {
            let permit = Arc::clone(&in_flight).acquire_owned().await.map_err(|error| error.to_string())?;
            let (manager, lease) = (self.manager.clone(), self.lease);
            tokio::spawn(async move {
                let held = manager.using(name.as_bytes(), lease, async move || {
                    drop(permit);
                    std::future::pending::<()>().await;
                });
                if let Err(error) = held.await {
                    eprintln!("{name} was lost: {error}");
                }
            });
        }
        let all = u32::try_from(CONCURRENCY).expect("a small number");
        in_flight.acquire_many(all).await.map(drop).map_err(|error| error.to_string())
    }
}
