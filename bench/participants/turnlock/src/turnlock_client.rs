use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{Participant, Refusal, Settings};
use futures_util::future::try_join_all;
use turnlock::{Client, Guard, Lock};

/// The number of concurrent requests while many locks are acquired.
const CONCURRENCY: usize = 64;

/// A client with its default settings.
#[derive(Clone)]
pub(crate) struct TurnlockClient {
    client: Client,
    kind: Kind,
    held: Arc<Mutex<Vec<Guard>>>,
}

#[derive(Clone, Copy)]
enum Kind {
    Default,
    Plain,
    /// The default one, without local hand-over.
    NoHandOver,
}

impl Participant for TurnlockClient {
    type Lock = Lock;
    type Held = Guard;

    async fn connect(settings: &Settings) -> Result<Self, Refusal> {
        let kind = match settings.kind.as_str() {
            "" | "lock" => Kind::Default,
            "plain" => Kind::Plain,
            "no-hand-over" => Kind::NoHandOver,
            other => return Err(Refusal::Unsupported(format!("no lock of kind {other}"))),
        };
        let builder = Client::builder().watchdog_timeout(settings.lease());
        let builder = match kind {
            Kind::NoHandOver => builder.hand_over_window(Duration::ZERO),
            Kind::Default | Kind::Plain => builder,
        };
        let client = builder.connect(&settings.url()).await;
        let client = client.map_err(|error| Refusal::Failed(error.to_string()))?;
        Ok(Self { client, kind, held: Arc::default() })
    }

    fn lock(&self, name: &str) -> Lock {
        match self.kind {
            Kind::Default | Kind::NoHandOver => self.client.lock(name),
            Kind::Plain => self.client.plain_lock(name),
        }
    }

    async fn acquire(&self, lock: &Lock) -> Result<Guard, String> {
        lock.lock().await.map_err(|error| error.to_string())
    }

    async fn release(&self, _: &Lock, held: Guard) -> Result<(), String> {
        held.unlock().await.map_err(|error| error.to_string())
    }

    async fn hold_all(&self, names: Vec<String>) -> Result<(), String> {
        for batch in names.chunks(CONCURRENCY) {
            let locks: Vec<Lock> = batch.iter().map(|name| self.lock(name)).collect();
            let guards = try_join_all(locks.iter().map(|lock| self.acquire(lock))).await?;
            self.held.lock().unwrap_or_else(PoisonError::into_inner).extend(guards);
        }
        Ok(())
    }
}
