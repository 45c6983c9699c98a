use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{Order, Participant, Refusal};
use futures_util::future::try_join_all;
use turnlock::{Client, Guard, Lock};

/// How many requests are under way at once while many locks are taken.
const AT_ONCE: usize = 64;

/// A client with its usual settings.
#[derive(Clone)]
pub(crate) struct Ours {
    client: Client,
    kind: Kind,
    kept: Arc<Mutex<Vec<Guard>>>,
}

#[derive(Clone, Copy)]
enum Kind {
    Usual,
    Plain,
    /// The usual one, without local hand-over.
    Apart,
}

impl Participant for Ours {
    type Lock = Lock;
    type Held = Guard;

    async fn connect(order: &Order) -> Result<Self, Refusal> {
        let kind = match order.kind.as_str() {
            "" | "lock" => Kind::Usual,
            "plain" => Kind::Plain,
            "apart" => Kind::Apart,
            other => return Err(Refusal::Cannot(format!("no lock of kind {other}"))),
        };
        let builder = Client::builder().watchdog(order.lease());
        let builder = match kind {
            Kind::Apart => builder.hand_over_window(Duration::ZERO),
            Kind::Usual | Kind::Plain => builder,
        };
        let client = builder.connect(&order.url()).await;
        let client = client.map_err(|error| Refusal::Failed(error.to_string()))?;
        Ok(Self { client, kind, kept: Arc::default() })
    }

    fn lock(&self, name: &str) -> Lock {
        match self.kind {
            Kind::Usual | Kind::Apart => self.client.lock(name),
            Kind::Plain => self.client.plain_lock(name),
        }
    }

    async fn take(&self, lock: &Lock) -> Result<Guard, String> {
        lock.lock().await.map_err(|error| error.to_string())
    }

    async fn give_back(&self, _: &Lock, held: Guard) -> Result<(), String> {
        held.unlock().await.map_err(|error| error.to_string())
    }

    async fn keep(&self, names: Vec<String>) -> Result<(), String> {
        for some in names.chunks(AT_ONCE) {
            let locks: Vec<Lock> = some.iter().map(|name| self.lock(name)).collect();
            let guards = try_join_all(locks.iter().map(|lock| self.take(lock))).await?;
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(guards);
        }
        Ok(())
    }
}
