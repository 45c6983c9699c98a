use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{Participant, Refusal, Settings};
use futures_util::future::try_join_all;
use turnlock::{Client, Error, Guard, Latch, Lock, PermitSemaphore, Permits, Semaphore};

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
    /// Also without local hand-over.
    Default,
    Plain,
    Fair,
    Write,
    /// Readers that wait for a writer.
    Read,
    /// With one permit.
    Semaphore,
    /// With one permit.
    Permits,
    /// Counted down once.
    Latch,
}

/// A handle. The first one of a counter creates it with a count of one.
pub(crate) enum Handle {
    Lock(Lock),
    Semaphore { semaphore: Semaphore, first: bool },
    Permits { semaphore: PermitSemaphore, first: bool },
    Latch { latch: Latch, first: bool },
}

/// What a task holds.
pub(crate) enum Held {
    Lock(Guard),
    Permits(Permits),
    /// A latch that its first holder has to count down.
    Closed,
    /// A latch that was counted down.
    Open,
}

impl Participant for TurnlockClient {
    type Lock = Handle;
    type Held = Held;

    async fn connect(settings: &Settings) -> Result<Self, Refusal> {
        let kind = match settings.kind.as_str() {
            "" | "lock" | "no-hand-over" => Kind::Default,
            "plain" => Kind::Plain,
            "fair" => Kind::Fair,
            "write" => Kind::Write,
            "read" => Kind::Read,
            "semaphore" => Kind::Semaphore,
            "permits" => Kind::Permits,
            "latch" => Kind::Latch,
            other => return Err(Refusal::Unsupported(format!("no lock of kind {other}"))),
        };
        let mut builder = Client::builder().watchdog_timeout(settings.lease());
        if settings.kind == "no-hand-over" {
            builder = builder.hand_over_window(Duration::ZERO);
        }
        let nodes: Vec<String> = settings.cluster.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let url =
            if nodes.is_empty() { settings.url() } else { format!("redis+cluster://{}", nodes.join(",")) };
        let client = builder.connect(&url).await;
        let client = client.map_err(|error| Refusal::Failed(error.to_string()))?;
        Ok(Self { client, kind, held: Arc::default() })
    }

    fn lock(&self, name: &str) -> Handle {
        self.handle(name, false)
    }

    fn first_lock(&self, name: &str) -> Handle {
        self.handle(name, true)
    }

    async fn acquire(&self, handle: &Handle) -> Result<Held, String> {
        acquire(handle).await.map_err(|error| error.to_string())
    }

    async fn release(&self, handle: &Handle, held: Held) -> Result<(), String> {
        let released = match (held, handle) {
            (Held::Lock(guard), _) => guard.unlock().await,
            (Held::Permits(permits), _) => permits.release().await,
            (Held::Closed, Handle::Latch { latch, .. }) => latch.count_down().await.map(drop),
            (Held::Closed | Held::Open, _) => Ok(()),
        };
        released.map_err(|error| error.to_string())
    }

    async fn hold_all(&self, names: Vec<String>) -> Result<(), String> {
        let mut guards = Vec::with_capacity(names.len());
        for batch in names.chunks(CONCURRENCY) {
            let locks: Vec<Handle> = batch.iter().map(|name| self.lock(name)).collect();
            for held in try_join_all(locks.iter().map(|lock| self.acquire(lock))).await? {
                let Held::Lock(guard) = held else { return Err("only locks are renewed".to_owned()) };
                guards.push(guard);
            }
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = guards;
        Ok(())
    }
}

impl TurnlockClient {
    fn handle(&self, name: &str, first: bool) -> Handle {
        let client = &self.client;
        Handle::Lock(match self.kind {
            Kind::Default => client.lock(name),
            Kind::Plain => client.plain_lock(name),
            Kind::Fair => client.fair_lock(name),
            Kind::Read if !first => client.read_write_lock(name).reader(),
            Kind::Read | Kind::Write => client.read_write_lock(name).writer(),
            Kind::Semaphore => return Handle::Semaphore { semaphore: client.semaphore(name), first },
            Kind::Permits => return Handle::Permits { semaphore: client.permit_semaphore(name), first },
            Kind::Latch => return Handle::Latch { latch: client.latch(name), first },
        })
    }
}

async fn acquire(handle: &Handle) -> Result<Held, Error> {
    match handle {
        Handle::Lock(lock) => lock.lock().await.map(Held::Lock),
        Handle::Semaphore { semaphore, first } => {
            if *first {
                semaphore.try_set_permits(1).await?;
            }
            semaphore.acquire(1).await.map(Held::Permits)
        }
        Handle::Permits { semaphore, first } => {
            if *first {
                semaphore.try_set_permits(1).await?;
            }
            semaphore.acquire(1).await.map(Held::Permits)
        }
        Handle::Latch { latch, first: true } => latch.try_set_count(1).await.map(|_| Held::Closed),
        Handle::Latch { latch, first: false } => latch.wait().await.map(|()| Held::Open),
    }
}
