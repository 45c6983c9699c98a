use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::{Participant, Refusal, Settings, Workload};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisResult};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

use crate::bare_lock::{BareLock, channel};
use crate::scripts::Scripts;

/// The number of requests that can be queued for the connection: no task of a workload waits for a place.
const QUEUE_SIZE: usize = 1_024;
/// The number of locks that one call renews.
const BATCH: usize = 500;
/// The number of concurrent requests while many locks are acquired.
const CONCURRENCY: usize = 64;

/// One connection and three scripts.
#[derive(Clone)]
pub(crate) struct BareScripts {
    connection: MultiplexedConnection,
    scripts: Scripts,
    lease_ms: u64,
    /// Present only for contended locks.
    contention: Option<Arc<Contention>>,
    owners: Arc<AtomicU64>,
}

struct Contention {
    queue: Arc<Mutex<()>>,
    freed: Notify,
}

impl Participant for BareScripts {
    type Lock = BareLock;
    type Held = Option<OwnedMutexGuard<()>>;

    async fn connect(settings: &Settings) -> Result<Self, Refusal> {
        if !settings.cluster.is_empty() {
            return Err(Refusal::Unsupported("the bare scripts have one connection".to_owned()));
        }
        if !settings.is_default_kind() {
            return Err(Refusal::Unsupported(format!(
                "the bare scripts have no lock of kind {}",
                settings.kind
            )));
        }
        Self::new(settings).await.map_err(|error| Refusal::Failed(error.to_string()))
    }

    fn lock(&self, name: &str) -> BareLock {
        BareLock::new(name, self.owners.fetch_add(1, Ordering::Relaxed))
    }

    async fn acquire(&self, lock: &BareLock) -> Result<Self::Held, String> {
        let Some(contention) = &self.contention else {
            return match self.try_acquire(lock).await? {
                None => Ok(None),
                Some(ttl) => Err(format!("{} is held for another {ttl} ms", lock.name)),
            };
        };
        let position = Arc::clone(&contention.queue).lock_owned().await;
        loop {
            match self.try_acquire(lock).await? {
                None => return Ok(Some(position)),
                Some(ttl) => {
                    // `Notify` stores a message that came since the last wait, so none is missed between request and wait.
                    let freed = contention.freed.notified();
                    let _ = tokio::time::timeout(Duration::from_millis(ttl), freed).await;
                }
            }
        }
    }

    async fn release(&self, lock: &BareLock, _position: Self::Held) -> Result<(), String> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*self.scripts.release).arg(1).arg(&lock.name).arg(&lock.owner).arg(&lock.channel);
        let receivers: Option<u64> = self.query(&cmd).await?;
        receivers.map(drop).ok_or_else(|| format!("{} was not held any more", lock.name))
    }

    async fn hold_all(&self, names: Vec<String>) -> Result<(), String> {
        let locks: Vec<BareLock> = names.iter().map(|name| self.lock(name)).collect();
        drop(names);
        for batch in locks.chunks(CONCURRENCY) {
            let replies =
                futures_util::future::join_all(batch.iter().map(|lock| self.try_acquire(lock))).await;
            for reply in replies {
                if reply?.is_some() {
                    return Err("an uncontended lock is held".to_owned());
                }
            }
        }
        tokio::spawn(self.clone().renew_forever(locks));
        Ok(())
    }
}

impl BareScripts {
    async fn new(settings: &Settings) -> RedisResult<Self> {
        let client = Client::open(settings.url())?;
        // Without a timer for each request. Without TCP_NODELAY, the crate's default, the kernel joins requests that are sent
        // together: with 64 tasks that saves a third of the client's processor time, and a single task has none to join.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE_SIZE);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let scripts = Scripts::load(&mut connection).await?;
        let contention = match settings.workload {
            Workload::Pairs | Workload::Hold => None,
            Workload::Contend | Workload::Herd | Workload::WakeUp => {
                Some(subscribe(&client, &settings.lock).await?)
            }
        };
        Ok(Self { connection, scripts, lease_ms: settings.lease_ms, contention, owners: Arc::default() })
    }

    async fn try_acquire(&self, lock: &BareLock) -> Result<Option<u64>, String> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*self.scripts.acquire).arg(1).arg(&lock.name).arg(&lock.owner).arg(self.lease_ms);
        self.query(&cmd).await
    }

    async fn query(&self, cmd: &Cmd) -> Result<Option<u64>, String> {
        cmd.query_async(&mut self.connection.clone()).await.map_err(|error| error.to_string())
    }

    async fn renew_forever(self, locks: Vec<BareLock>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(self.lease_ms / 3));
        ticks.tick().await;
        loop {
            ticks.tick().await;
            for batch in locks.chunks(BATCH) {
                let mut cmd = redis::cmd("EVALSHA");
                cmd.arg(&*self.scripts.renew).arg(batch.len());
                for lock in batch {
                    cmd.arg(&lock.name);
                }
                cmd.arg(self.lease_ms);
                for lock in batch {
                    cmd.arg(&lock.owner);
                }
                if let Err(error) = self.query(&cmd).await {
                    eprintln!("a renewal failed: {error}");
                }
            }
        }
    }
}

/// Creates the queue of the process, and a subscription that lasts as long as the process.
async fn subscribe(client: &Client, name: &str) -> RedisResult<Arc<Contention>> {
    let contention = Arc::new(Contention { queue: Arc::default(), freed: Notify::new() });
    let mut messages = client.get_async_pubsub().await?;
    messages.subscribe(channel(name)).await?;
    let notified = Arc::clone(&contention);
    tokio::spawn(async move {
        let mut messages = messages.into_on_message();
        while messages.next().await.is_some() {
            notified.freed.notify_one();
        }
    });
    Ok(contention)
}
