use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use turnlock::{Client, Guard};
use turnlock_testkit::RedisServer;

use crate::rig::{NO_POLL, ms};

/// What a step came to: a text where it failed, by an error or because something did not happen.
pub(super) type Outcome<T = ()> = Result<T, String>;

/// How long something may take that was begun.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// Where something is to fail: so long that it would be there, if it came at all.
    Short,
    /// Where all is to go well, on a busy machine too.
    Long,
}

impl Patience {
    fn soon(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(1),
            Self::Long => Duration::from_secs(5),
        }
    }

    /// Longer than [`soon`](Self::soon), so that nobody is woken by the end of another's lease.
    fn lease(self) -> Duration {
        self.soon() + Duration::from_secs(2)
    }

    fn retry_for(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(200),
            Self::Long => self.soon(),
        }
    }

    /// How long one look at a primitive may take.
    pub(super) fn limit(self) -> Duration {
        self.soon() * 10
    }
}

/// Two clients of one user, and one who may do everything.
pub(super) struct Scene {
    pub(super) one: Client,
    pub(super) two: Client,
    pub(super) admin: MultiplexedConnection,
    pub(super) name: &'static str,
    patience: Patience,
}

impl Scene {
    pub(super) async fn new(server: &RedisServer, user: &str, patience: Patience) -> Outcome<Self> {
        let url = format!("redis://{user}:PASSWORD@{}", server.addr());
        let builder =
            Client::builder().poll(NO_POLL).watchdog(patience.lease()).retry_for(patience.retry_for());
        let client = || builder.clone().connect(&url);
        Ok(Self {
            one: client().await.map_err(told)?,
            two: client().await.map_err(told)?,
            admin: server.client().await,
            name: "guarded:thing",
            patience,
        })
    }

    /// Says something that only the one may who may do everything.
    pub(super) async fn say(&self, words: &str) {
        let mut words = words.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a word"));
        let answer =
            cmd.arg(words.collect::<Vec<_>>()).query_async::<redis::Value>(&mut self.admin.clone()).await;
        answer.expect("allowed to do everything");
    }

    /// Waits until somebody listens for the end of the thing, and has gone to sleep: who begins to listen looks once more,
    /// and would see an end that nobody told.
    pub(super) async fn until_listening(&self) -> Outcome {
        self.until_subscribed().await?;
        tokio::time::sleep(ms(250)).await;
        Ok(())
    }

    async fn until_subscribed(&self) -> Outcome {
        self.soon("somebody listens", async {
            loop {
                let mut cmd = redis::cmd("PUBSUB");
                let cmd = cmd.arg("CHANNELS").arg(format!("*{}*", self.name));
                let heard: Vec<String> = cmd.query_async(&mut self.admin.clone()).await.map_err(told)?;
                if !heard.is_empty() {
                    return Ok(());
                }
                tokio::time::sleep(ms(5)).await;
            }
        })
        .await
    }

    /// What comes as soon as it should.
    pub(super) async fn soon<T>(&self, what: &str, future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let soon = self.patience.soon();
        let outcome = tokio::time::timeout(soon, future).await;
        outcome.unwrap_or_else(|_| Err(format!("{what}: not so within {soon:?}")))
    }

    /// Makes the server refuse what needs memory.
    pub(super) async fn out_of_memory(&self, is_out: bool) {
        self.say(if is_out { "CONFIG SET maxmemory 1" } else { "CONFIG SET maxmemory 0" }).await;
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
pub(super) fn told(error: impl ToString) -> String {
    error.to_string()
}

pub(super) fn check(is_so: bool, what: &str) -> Outcome {
    if is_so { Ok(()) } else { Err(format!("not so: {what}")) }
}

/// Whether a lease is extended by the watchdog before it ends.
pub(super) async fn renewed(valid_until: impl Fn() -> Instant) -> Outcome {
    let end = valid_until();
    // The same moment is not always told to the last microsecond.
    while valid_until() < end + ms(100) {
        check(Instant::now() < end, "it is renewed before its end")?;
        tokio::time::sleep(ms(5)).await;
    }
    Ok(())
}

/// How often the holder of a lock has it, by the word of the store.
pub(super) async fn hold_count(lock: &turnlock::Lock, guard: &Guard) -> Outcome<u64> {
    let seen = lock.inspect().await.map_err(told)?;
    let holder = seen.holders.iter().find(|holder| holder.owner == *guard.owner_id());
    Ok(holder.map_or(0, |holder| holder.count))
}
