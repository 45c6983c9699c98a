use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use turnlock_core::OwnerId;

use crate::clock;
use crate::engine::{Hold, Patience};
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::lock::Lock;

/// Runs a body under a lock, with hooks. Made by [`Lock::runner`].
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let sum = client
///     .lock("orders")
///     .runner()
///     .on_acquire(|held| println!("got {}", held.name()))
///     .on_exit(|exit| println!("done: {exit:?}"))
///     .run(|held| async move { if held.is_valid() { 1 + 1 } else { 0 } })
///     .await?;
/// assert_eq!(sum, 2);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a runner does nothing until it is told to run something"]
pub struct Runner {
    lock: Lock,
    on_acquire: Option<AcquireHook>,
    on_exit: Option<ExitHook>,
}

type AcquireHook = Arc<dyn Fn(&Held) + Send + Sync>;
type ExitHook = Arc<dyn Fn(Exit) + Send + Sync>;

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// It came to its end under the lock.
    Finished,
    /// The lock was lost, and the body cancelled, or the lock was found lost when the body ended.
    Lost(LostReason),
    /// The body panicked, or the run was cancelled.
    Aborted,
}

impl Runner {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock, on_acquire: None, on_exit: None }
    }

    /// Called each time the lock was acquired, before the body runs.
    pub fn on_acquire(mut self, hook: impl Fn(&Held) + Send + Sync + 'static) -> Self {
        self.on_acquire = Some(Arc::new(hook));
        self
    }

    /// Called each time the body ended, by whatever way, before the lock is given back.
    pub fn on_exit(mut self, hook: impl Fn(Exit) + Send + Sync + 'static) -> Self {
        self.on_exit = Some(Arc::new(hook));
        self
    }

    /// Takes the lock, runs `body` and gives the lock back. As [`Lock::run`].
    pub async fn run<B, F>(&self, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        let guard = self.lock.lock().await?;
        self.run_under(guard, body).await
    }

    /// As [`run`](Runner::run), but waits for the lock for `wait` at the most. As [`Lock::try_run_for`].
    pub async fn try_run_for<B, F>(&self, wait: Duration, body: B) -> Result<Option<F::Output>, Error>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        match self.lock.acquire(Patience::of(wait)).await? {
            Some(guard) => self.run_under(guard, body).await.map(Some),
            None => Ok(None),
        }
    }

    async fn run_under<B, F>(&self, guard: Guard, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        let held = Held { hold: Arc::clone(guard.hold()), token: guard.token() };
        if let Some(hook) = &self.on_acquire {
            hook(&held);
        }
        let mut farewell = Farewell { hook: self.on_exit.clone(), exit: Exit::Aborted };
        let output = {
            let lost = pin!(guard.lost());
            // Boxed, so that it can be dropped, and thereby cancelled, before the lock is given back.
            let body = Box::pin(body(held));
            match select(lost, body).await {
                Either::Left((reason, _)) => Err(reason),
                Either::Right((output, _)) => Ok(output),
            }
        };
        // A body that ended after the lease did was not covered to its end.
        let output = match (output, guard.hold().lost()) {
            (Ok(output), None) => Ok(output),
            (Err(reason), _) | (_, Some(reason)) => Err(reason),
        };
        farewell.exit = output.as_ref().map_or_else(|reason| Exit::Lost(*reason), |_| Exit::Finished);
        drop(farewell);
        let name = guard.name().to_owned();
        match output {
            Ok(output) => match guard.unlock().await {
                // The store says that the lock was gone: the body was not covered to its end.
                Err(error @ Error::Lost { .. }) => Err(error),
                Err(error) => {
                    // It was, and trouble in giving the lock back does not take its result away.
                    tracing::warn!(%name, %error, "the lock of a finished body could not be given back");
                    Ok(output)
                }
                Ok(()) => Ok(output),
            },
            Err(reason) => Err(Error::Lost { name, reason }),
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("lock", &self.lock).finish_non_exhaustive()
    }
}

/// Calls the exit hook however the body ends, a panic and cancellation included.
struct Farewell {
    hook: Option<ExitHook>,
    exit: Exit,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook(self.exit);
        }
    }
}

/// The lock as the body sees it: it can look, and cannot give it back.
#[derive(Clone, Debug)]
pub struct Held {
    hold: Arc<Hold>,
    token: Option<u64>,
}

impl Held {
    /// The name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// The owner on the wire.
    pub fn owner_id(&self) -> &OwnerId {
        &self.hold.owner
    }

    /// As [`Guard::token`].
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// As [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// As [`Guard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.hold.believed_until().since(clock::now())
    }

    /// As [`Guard::lost`].
    pub async fn lost(&self) -> LostReason {
        self.hold.until_lost().await
    }
}
