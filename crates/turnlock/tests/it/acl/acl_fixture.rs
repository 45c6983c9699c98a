use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use turnlock::{Client, Guard};
use turnlock_testkit::RedisServer;

use crate::fixture::{NO_POLL, ms};

/// The outcome of a step. The text is an error, or names what did not happen.
pub(super) type Outcome<T = ()> = Result<T, String>;

/// Time limits of an exercise.
#[derive(Clone, Copy)]
pub(super) enum Limits {
    /// For an exercise that must fail: long enough for a step that would succeed.
    Short,
    /// For an exercise that must succeed, also on a busy machine.
    Long,
}

impl Limits {
    /// The time limit of one step.
    fn step(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(1),
            Self::Long => Duration::from_secs(5),
        }
    }

    /// Longer than [`step`](Self::step), so that no waiter is woken by the end of a lease.
    fn lease(self) -> Duration {
        self.step() + Duration::from_secs(2)
    }

    fn retry_for(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(200),
            Self::Long => self.step(),
        }
    }

    /// The time limit of the whole exercise of a primitive.
    pub(super) fn total(self) -> Duration {
        self.step() * 10
    }
}

/// Two clients of a restricted user, and a connection of an administrator.
pub(super) struct AclFixture {
    pub(super) one: Client,
    pub(super) two: Client,
    pub(super) admin: MultiplexedConnection,
    pub(super) name: &'static str,
    limits: Limits,
}

impl AclFixture {
    pub(super) async fn new(server: &RedisServer, user: &str, limits: Limits) -> Outcome<Self> {
        let url = format!("redis://{user}:PASSWORD@{}", server.addr());
        let builder = Client::builder()
            .poll_interval(NO_POLL)
            .watchdog_timeout(limits.lease())
            .retry_for(limits.retry_for());
        let client = || builder.clone().connect(&url);
        Ok(Self {
            one: client().await.map_err(text)?,
            two: client().await.map_err(text)?,
            admin: server.client().await,
            name: "guarded:name",
            limits,
        })
    }

    /// Runs a command as the administrator.
    pub(super) async fn admin_command(&self, command: &str) {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command"));
        let reply =
            cmd.arg(words.collect::<Vec<_>>()).query_async::<redis::Value>(&mut self.admin.clone()).await;
        reply.expect("allowed");
    }

    /// Waits until a client has subscribed to the channel of the name, and sleeps.
    ///
    /// After it subscribes, a waiter sends one more request, which would see a release without a message.
    pub(super) async fn until_subscribed_and_asleep(&self) -> Outcome {
        self.until_subscribed().await?;
        tokio::time::sleep(ms(250)).await;
        Ok(())
    }

    async fn until_subscribed(&self) -> Outcome {
        self.in_time("a client subscribes", async {
            loop {
                let mut cmd = redis::cmd("PUBSUB");
                let cmd = cmd.arg("CHANNELS").arg(format!("*{}*", self.name));
                let channels: Vec<String> = cmd.query_async(&mut self.admin.clone()).await.map_err(text)?;
                if !channels.is_empty() {
                    return Ok(());
                }
                tokio::time::sleep(ms(5)).await;
            }
        })
        .await
    }

    /// Runs a step with its time limit.
    pub(super) async fn in_time<T>(
        &self,
        what: &str,
        future: impl Future<Output = Outcome<T>>,
    ) -> Outcome<T> {
        let limit = self.limits.step();
        let outcome = tokio::time::timeout(limit, future).await;
        outcome.unwrap_or_else(|_| Err(format!("{what}: not within {limit:?}")))
    }

    /// Makes the server refuse commands that need memory, or accept them again.
    pub(super) async fn set_out_of_memory(&self, is_out: bool) {
        self.admin_command(if is_out { "CONFIG SET maxmemory 1" } else { "CONFIG SET maxmemory 0" }).await;
    }
}

pub(super) fn text(error: impl std::error::Error) -> String {
    turnlock_testkit::error_chain(&error)
}

pub(super) fn check(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(format!("not true: {what}")) }
}

/// Waits until the watchdog renews a lease, and fails if it ends first.
pub(super) async fn until_renewed(valid_until: impl Fn() -> Instant) -> Outcome {
    let end = valid_until();
    // The same end may be reported with small differences.
    while valid_until() < end + ms(100) {
        check(Instant::now() < end, "it is renewed before its end")?;
        tokio::time::sleep(ms(5)).await;
    }
    Ok(())
}

/// Returns the hold count of a guard's owner, as the store reports it.
pub(super) async fn hold_count(lock: &turnlock::Lock, guard: &Guard) -> Outcome<u64> {
    let seen = lock.inspect().await.map_err(text)?;
    let holder = seen.holders.iter().find(|holder| holder.owner == *guard.owner_id());
    Ok(holder.map_or(0, |holder| holder.count))
}
