use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::{Order, Participant, Refusal, Work};
use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, RedisResult};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};

use crate::bare_lock::{BareLock, channel};
use crate::scripts::Scripts;

/// How long an answer may take.
const RESPONSE_LIMIT: Duration = Duration::from_secs(3);
/// How many locks are renewed by one call.
const BATCH: usize = 500;
/// How many requests are under way at once while many locks are taken.
const AT_ONCE: usize = 64;

/// One connection and three scripts.
#[derive(Clone)]
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    scripts: Scripts,
    lease_ms: u64,
    /// Only where several want the same lock.
    contention: Option<Arc<Contention>>,
    owners: Arc<AtomicU64>,
}

struct Contention {
    queue: Arc<Mutex<()>>,
    freed: Notify,
}

impl Participant for Floor {
    type Lock = BareLock;
    type Held = Option<OwnedMutexGuard<()>>;

    async fn connect(order: &Order) -> Result<Self, Refusal> {
        if !order.is_of_usual_kind() {
            return Err(Refusal::Cannot(format!("the floor has no lock of kind {}", order.kind)));
        }
        Self::new(order).await.map_err(|error| Refusal::Failed(error.to_string()))
    }

    fn lock(&self, name: &str) -> BareLock {
        BareLock::new(name, self.owners.fetch_add(1, Ordering::Relaxed))
    }

    async fn take(&self, lock: &BareLock) -> Result<Self::Held, String> {
        let Some(contention) = &self.contention else {
            return match self.acquire(lock).await? {
                None => Ok(None),
                Some(ttl) => Err(format!("{} is held for another {ttl} ms", lock.name)),
            };
        };
        let turn = Arc::clone(&contention.queue).lock_owned().await;
        loop {
            match self.acquire(lock).await? {
                None => return Ok(Some(turn)),
                Some(ttl) => {
                    // A message that came since the last wait is kept, so none is missed between asking and waiting.
                    let freed = contention.freed.notified();
                    let _ = tokio::time::timeout(Duration::from_millis(ttl), freed).await;
                }
            }
        }
    }

    async fn give_back(&self, lock: &BareLock, _turn: Self::Held) -> Result<(), String> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*self.scripts.release).arg(1).arg(&lock.name).arg(&lock.owner).arg(&lock.channel);
        let heard: Option<u64> = self.ask(&cmd).await?;
        heard.map(drop).ok_or_else(|| format!("{} was not held any more", lock.name))
    }

    async fn keep(&self, names: Vec<String>) -> Result<(), String> {
        let locks: Vec<BareLock> = names.iter().map(|name| self.lock(name)).collect();
        drop(names);
        for some in locks.chunks(AT_ONCE) {
            let answers = futures_util::future::join_all(some.iter().map(|lock| self.acquire(lock))).await;
            for answer in answers {
                if answer?.is_some() {
                    return Err("a lock that nobody else wants is held".to_owned());
                }
            }
        }
        tokio::spawn(self.clone().renew_for_ever(locks));
        Ok(())
    }
}

impl Floor {
    async fn new(order: &Order) -> RedisResult<Self> {
        let info = order.url().into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_LIMIT));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let scripts = Scripts::load(&mut connection).await?;
        let contention = match order.work {
            Work::Pairs | Work::Keep => None,
            Work::Contend | Work::Herd | Work::Hand => Some(listen(&client, &order.lock).await?),
        };
        Ok(Self { connection, scripts, lease_ms: order.lease_ms, contention, owners: Arc::default() })
    }

    async fn acquire(&self, lock: &BareLock) -> Result<Option<u64>, String> {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&*self.scripts.acquire).arg(1).arg(&lock.name).arg(&lock.owner).arg(self.lease_ms);
        self.ask(&cmd).await
    }

    async fn ask(&self, cmd: &Cmd) -> Result<Option<u64>, String> {
        cmd.query_async(&mut self.connection.clone()).await.map_err(|error| error.to_string())
    }

    async fn renew_for_ever(self, locks: Vec<BareLock>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(self.lease_ms / 3));
        ticks.tick().await;
        loop {
            ticks.tick().await;
            for some in locks.chunks(BATCH) {
                let mut cmd = redis::cmd("EVALSHA");
                cmd.arg(&*self.scripts.renew).arg(some.len());
                for lock in some {
                    cmd.arg(&lock.name);
                }
                cmd.arg(self.lease_ms);
                for lock in some {
                    cmd.arg(&lock.owner);
                }
                if let Err(trouble) = self.ask(&cmd).await {
                    eprintln!("a renewal failed: {trouble}");
                }
            }
        }
    }
}

/// The queue of the process, and a subscription that stands for as long as the process lives.
async fn listen(client: &Client, name: &str) -> RedisResult<Arc<Contention>> {
    let contention = Arc::new(Contention { queue: Arc::default(), freed: Notify::new() });
    let mut messages = client.get_async_pubsub().await?;
    messages.subscribe(channel(name)).await?;
    let heard = Arc::clone(&contention);
    tokio::spawn(async move {
        let mut messages = messages.into_on_message();
        while messages.next().await.is_some() {
            heard.freed.notify_one();
        }
    });
    Ok(contention)
}
