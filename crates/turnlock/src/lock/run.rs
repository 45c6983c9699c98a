use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use turnlock_core::OwnerId;

use super::named::endless;
use crate::engine::{CallLocation, Hold, WaitLimit};
use crate::{Error, Lock, LostReason, clock};

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
        self.run_within(WaitLimit::Endless, Location::caller(), body).map(endless)
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
        let location = Location::caller();
        async move { self.run_within(WaitLimit::of(wait), location, body).await }
    }

    /// Returns `None` if the wait limit passes first.
    pub(super) async fn run_within<F: Future>(
        &self,
        wait_limit: WaitLimit,
        location: CallLocation,
        body: impl FnOnce(Held) -> F,
    ) -> Result<Option<F::Output>, Error> {
        let Some(guard) = self.lock.acquire(wait_limit, location).await? else { return Ok(None) };
        let held = Held { hold: Arc::clone(guard.hold()), token: guard.token() };
        if let Some(hook) = &self.on_acquire {
            hook(&held);
        }
        let mut on_exit = OnExit { hook: self.on_exit.clone(), exit: Exit::Aborted };
        let body = PolledBody { hold: Arc::clone(guard.hold()), body: Box::pin(body(held)) };
        let output = run_until_lost(guard.until_lost(), || guard.lost_error(), body).await;
        on_exit.exit = match &output {
            Err(Error::Lost { reason, .. }) => Exit::Lost(*reason),
            _ => Exit::Finished,
        };
        drop(on_exit);
        let (output, name) = (output?, guard.name().to_owned());
        after_body(output, guard.unlock().await, Some(&name)).map(Some)
    }
}

/// Runs `body` until its end, or until its lock is lost: then, `lost` is ready and `lost_error` returns the error.
pub(crate) async fn run_until_lost<F: Future>(
    lost: impl Future<Output = Error>,
    lost_error: impl FnOnce() -> Option<Error>,
    body: F,
) -> Result<F::Output, Error> {
    tokio::select! {
        biased;
        lost = lost => Err(lost),
        // A body that outlasted the lease did not run under the lock to its end.
        output = body => lost_error().map_or(Ok(output), Err),
    }
}

/// A body that runs under a hold, which knows while it is polled: a poll that does not return blocks a thread.
struct PolledBody<F> {
    hold: Arc<Hold>,
    body: Pin<Box<F>>,
}

impl<F: Future> Future for PolledBody<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { hold, body } = &mut *self;
        let _marked = MarkedPoll::begin(hold);
        body.as_mut().poll(context)
    }
}

/// A poll that the hold knows of until it ends, by a panic too.
struct MarkedPoll<'a>(&'a Hold);

impl<'a> MarkedPoll<'a> {
    /// Returns `None` if another one is marked, as that of a run around this one.
    fn begin(hold: &'a Hold) -> Option<Self> {
        let (now, order) = (clock::now().as_micros(), Ordering::Relaxed);
        hold.polled_since.compare_exchange(0, now, order, order).is_ok().then_some(Self(hold))
    }
}

impl Drop for MarkedPoll<'_> {
    fn drop(&mut self) {
        self.0.polled_since.store(0, Ordering::Relaxed);
    }
}

/// Returns the output of a body that ran under a guard, after the release of the guard.
///
/// `name` is for the log line.
pub(crate) fn after_body<T>(output: T, released: Result<(), Error>, name: Option<&str>) -> Result<T, Error> {
    match released {
        // The store no longer had the hold: the body did not run under the lock to its end.
        Err(error @ Error::Lost { .. }) => Err(error),
        Err(error) => {
            // The body ran under the lock: a failed release does not discard its result.
            let (name, error) = (name.map(tracing::field::display), error.with_causes());
            tracing::warn!(name, %error, "release failed after the body returned");
            Ok(output)
        }
        Ok(()) => Ok(output),
    }
}

impl Lock {
    /// Acquires the lock, runs `body`, and releases the lock.
    ///
    /// If the lock is lost, `body` is cancelled at its next await. [`Runner`] adds hooks.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Lock::lock), and [`Error::Lost`] if the lock was lost before `body` ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. `body` is dropped, then the lock is released.
    #[track_caller]
    pub fn run<B, F>(&self, body: B) -> impl Future<Output = Result<F::Output, Error>> + use<B, F>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        let (runner, location) = (self.runner(), Location::caller());
        async move { endless(runner.run_within(WaitLimit::Endless, location, body).await) }
    }

    /// Acquires the lock within `wait`, runs `body`, and releases the lock.
    ///
    /// Returns `None` if the lock was busy, and `body` did not run. Otherwise as [`run`](Lock::run).
    #[track_caller]
    pub fn try_run_for<B, F>(
        &self,
        wait: Duration,
        body: B,
    ) -> impl Future<Output = Result<Option<F::Output>, Error>> + use<B, F>
    where
        B: FnOnce(Held) -> F,
        F: Future,
    {
        let (runner, location) = (self.runner(), Location::caller());
        async move { runner.run_within(WaitLimit::of(wait), location, body).await }
    }

    /// Returns a [`Runner`] for this lock, which adds hooks to [`run`](Lock::run).
    pub fn runner(&self) -> Runner {
        Runner { lock: self.clone(), on_acquire: None, on_exit: None }
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

    /// Returns the owner id on the store: [`Guard::owner_id`](crate::Guard::owner_id).
    pub fn owner_id(&self) -> &OwnerId {
        &self.hold.owner
    }

    /// Returns the fencing token: [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// Returns `true` if the lock is held: [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Returns until when the lock is held without a further renewal: [`Guard::valid_until`](crate::Guard::valid_until).
    pub fn valid_until(&self) -> Instant {
        clock::instant_of(self.hold.valid_until())
    }

    /// Waits until the lock is lost, and returns why: [`Guard::lost`](crate::Guard::lost).
    pub async fn lost(&self) -> LostReason {
        self.hold.until_lost().await
    }
}
