use std::sync::Arc;
use std::time::Duration;

use contract::{Order, Participant, Refusal};
use rslock::{LockGuard, LockManager};
use tokio::sync::Semaphore;

/// How many requests are under way at once while many locks are taken.
const AT_ONCE: usize = 64;

/// A manager with its usual settings; its `acquire` tries for ever by itself.
#[derive(Clone)]
pub(crate) struct RsLock {
    manager: LockManager,
    lease: Duration,
}

impl Participant for RsLock {
    // Giving back is a script.
    const DIRECT: &'static [&'static str] = &["set"];

    type Lock = String;
    type Held = LockGuard;

    async fn connect(order: &Order) -> Result<Self, Refusal> {
        if !order.is_of_usual_kind() {
            return Err(Refusal::Cannot(format!("rslock has no lock of kind {}", order.kind)));
        }
        Ok(Self { manager: LockManager::new(vec![order.url()]), lease: order.lease() })
    }

    fn lock(&self, name: &str) -> String {
        name.to_owned()
    }

    async fn take(&self, lock: &String) -> Result<LockGuard, String> {
        self.manager.acquire(lock.as_str(), self.lease).await.map_err(|error| error.to_string())
    }

    async fn give_back(&self, _: &String, held: LockGuard) -> Result<(), String> {
        held.release().await;
        Ok(())
    }

    /// By `using`, the only way that renews: a task for each lock, shortly before its end.
    async fn keep(&self, names: Vec<String>) -> Result<(), String> {
        let under_way = Arc::new(Semaphore::new(AT_ONCE));
        for name in names {
            let turn = Arc::clone(&under_way).acquire_owned().await.map_err(|error| error.to_string())?;
            let (manager, lease) = (self.manager.clone(), self.lease);
            tokio::spawn(async move {
                let held = manager.using(name.as_bytes(), lease, async move || {
                    drop(turn);
                    std::future::pending::<()>().await;
                });
                if let Err(error) = held.await {
                    eprintln!("{name} was lost: {error}");
                }
            });
        }
        let all = u32::try_from(AT_ONCE).expect("a small number");
        under_way.acquire_many(all).await.map(drop).map_err(|error| error.to_string())
    }
}
