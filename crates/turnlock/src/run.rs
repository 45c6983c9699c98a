use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use turnlock_core::OwnerId;

use crate::clock;
use crate::engine::{Hold, WaitLimit};
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::named::endless;

/// Runs a body under a lock, with hooks. Made by [`Lock::runner`].
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let sum = client
///     .lock("orders")
///     .runner()
///     .on_acquire(|held| println!("acquired {}", held.name()))
///     .on_exit(|exit| println!("done: {exit:?}"))
///     .run(|held| async move { if held.is_valid() { 1 + 1 } else { 0 } })
///     .await?;
/// assert_eq!(sum, 2);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a runner does nothing until `run()` or `try_run_for()`"]
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
    /// The body returned under the lock.
    Finished,
    /// The lock was lost before the body ended.
    Lost(LostReason),
    /// The body panicked, or the run was cancelled.
    Aborted,
}

impl Runner {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock, on_acquire: None, on_exit: None }
    }

    /// Calls `hook` each time the lock was acquired, before the body runs.
    pub fn on_acquire(mut self, hook: impl Fn(&Held) + Send + Sync + 'static) -> Self {
        self.on_acquire = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` each time the body ended, before the lock is released.
    pub fn on_exit(mut self, hook: impl Fn(Exit) + Send + Sync + 'static) -> Self {
        self.on_exit = Some(Arc::new(hook));
        self
    }

    /// Acquires the lock, runs `body`, and releases the lock: [`Lock::run`].
    #[track_caller]
    pub fn run<B, F>(&self, body: B) -> impl Future<Output = Result<F::Output, Error>> + use<'_, B, F>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        self.run_from(Location::caller(), body)
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock: [`Lock::try_run_for`].
    #[track_caller]
    pub fn try_run_for<B, F>(
        &self,
        wait: Duration,
        body: B,
    ) -> impl Future<Output = Result<Option<F::Output>, Error>> + use<'_, B, F>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        self.try_run_from(Location::caller(), wait, body)
    }

    pub(crate) async fn run_from<B, F>(
        &self,
        location: &'static Location<'static>,
        body: B,
    ) -> Result<F::Output, Error>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        let guard = endless(self.lock.acquire(WaitLimit::Endless, location).await)?;
        self.run_under(guard, body).await
    }

    pub(crate) async fn try_run_from<B, F>(
        &self,
        location: &'static Location<'static>,
        wait: Duration,
        body: B,
    ) -> Result<Option<F::Output>, Error>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        match self.lock.acquire(WaitLimit::of(wait), location).await? {
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
        let mut on_exit = OnExit { hook: self.on_exit.clone(), exit: Exit::Aborted };
        let output = {
            let lost = pin!(guard.lost());
            // Boxed, so that it can be dropped before the lock is released.
            let body = Box::pin(body(held));
            match select(lost, body).await {
                Either::Left((reason, _)) => Err(reason),
                Either::Right((output, _)) => Ok(output),
            }
        };
        // A body that outlasted the lease did not run under the lock to its end.
        let output = match (output, guard.hold().lost()) {
            (Ok(output), None) => Ok(output),
            (Err(reason), _) | (_, Some(reason)) => Err(reason),
        };
        on_exit.exit = output.as_ref().map_or_else(|reason| Exit::Lost(*reason), |_| Exit::Finished);
        drop(on_exit);
        let name = guard.name().to_owned();
        match output {
            Ok(output) => match guard.unlock().await {
                // The store no longer had the hold: the body did not run under the lock to its end.
                Err(error @ Error::Lost { .. }) => Err(error),
                Err(error) => {
                    // The body ran under the lock: a failed release does not discard its result.
                    tracing::warn!(%name, error = %error.with_causes(), "release failed after the body returned");
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

/// Calls the exit hook however the body ends, by a panic or a cancellation too.
struct OnExit {
    hook: Option<ExitHook>,
    exit: Exit,
}

impl Drop for OnExit {
    fn drop(&mut self) {
        if let Some(hook) = self.hook.take() {
            hook(self.exit);
        }
    }
}

/// The held lock, as a body sees it: it cannot be released.
#[derive(Clone, Debug)]
pub struct Held {
    hold: Arc<Hold>,
    token: Option<u64>,
}

impl Held {
    /// Returns the name of the lock.
    pub fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    /// Returns the owner id on the store: [`Guard::owner_id`].
    pub fn owner_id(&self) -> &OwnerId {
        &self.hold.owner
    }

    /// Returns the fencing token: [`Guard::token`].
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// Returns `true` if the lock is held: [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Returns until when the lock is held without a further renewal: [`Guard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        Instant::now() + self.hold.valid_until().since(clock::now())
    }

    /// Waits until the lock is lost, and returns why: [`Guard::lost`].
    pub async fn lost(&self) -> LostReason {
        self.hold.until_lost().await
    }
}
