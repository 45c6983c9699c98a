//! What the tasks of a process do: they acquire locks in many ways, hold them, and release them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{sleep, timeout};
use turnlock::{Client, Error, Guard, LostReason, Permits, TryAcquire};
use turnlock_core::Moment;

use crate::history::{LONGEST_EFFECT_MS, LockInfo, LockKind, Mode, ReleaseBy, Wait, What};
use crate::recorder::Recorder;

/// Acquires permits of a semaphore of any kind.
macro_rules! acquire_permits {
    ($semaphore:expr, $permits:expr, $wait:expr) => {{
        let (semaphore, permits, wait) = ($semaphore, $permits, $wait);
        async move {
            let outcome = match wait {
                Wait::No => semaphore.try_acquire(permits).await?,
                Wait::For { ms: time } => semaphore.try_acquire_for(permits, ms(time)).await?,
                Wait::Endless => TryAcquire::Acquired(semaphore.acquire(permits).await?),
            };
            Ok(outcome.map(Held::Permits))
        }
        .boxed()
    }};
}

/// The tasks of one process.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) client: Client,
    pub(crate) process: u32,
    pub(crate) locks: Arc<[LockInfo]>,
    pub(crate) recorder: Arc<Recorder>,
    /// The number of replicas that must acknowledge a grant.
    pub(crate) replicas: u32,
    /// The lease of a lock that is renewed.
    pub(crate) watchdog_ms: u64,
}

/// What a task holds.
#[derive(Debug)]
enum Held {
    Guard(Guard),
    Permits(Permits),
}

/// One way to acquire a lock.
#[derive(Clone, Copy, Debug)]
struct Request {
    lock: usize,
    mode: Mode,
    permits: u32,
    wait: Wait,
    lease_ms: Option<u64>,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Workload {
    /// Sets the number of permits of all semaphores.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        for info in self.locks.iter() {
            match info.kind {
                LockKind::Semaphore => {
                    self.client.semaphore(&info.name).try_set_permits(info.permits).await?;
                }
                LockKind::Permits => {
                    self.client.permit_semaphore(&info.name).try_set_permits(info.permits).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes a number of turns.
    pub(crate) async fn run(self, turns: u32, mut rng: Rng) {
        for _ in 0..turns {
            if self.turn(&mut rng).await.is_err() {
                return;
            }
            sleep(ms(rng.u64(..20))).await;
        }
    }

    /// Takes turns until `is_ending`.
    pub(crate) async fn run_until(self, is_ending: Arc<AtomicBool>, mut rng: Rng) {
        while !is_ending.load(Ordering::Relaxed) && self.turn(&mut rng).await.is_ok() {
            sleep(ms(rng.u64(..20))).await;
        }
    }

    /// Acquires every lock once, within the time that any fault may have an effect.
    pub(crate) async fn acquire_each(&self) {
        for lock in 0..self.locks.len() {
            let mode = Mode::Exclusive;
            let request =
                Request { lock, mode, permits: 1, wait: Wait::For { ms: LONGEST_EFFECT_MS }, lease_ms: None };
            if let Ok(Some((op, held))) = self.acquire(request, None).await {
                self.release(op, held, ReleaseBy::Unlock, &mut Rng::with_seed(0)).await;
            }
        }
    }

    /// Acquires one of the locks, holds it, and releases it.
    async fn turn(&self, rng: &mut Rng) -> Result<(), ShutDown> {
        let request = self.request(rng);
        // Cancelled after some time, or after some polls.
        let cancel = match rng.u8(..8) {
            0 => Some(Cancel::After(ms(rng.u64(..self.watchdog_ms)))),
            1 => Some(Cancel::AfterPolls(rng.usize(1..8))),
            _ => None,
        };
        let Some((op, held)) = self.acquire(request, cancel).await? else { return Ok(()) };
        let lease = request.lease_ms.unwrap_or(self.watchdog_ms);
        let hold_for = match rng.u8(..10) {
            0..=4 => rng.u64(..30),
            5..=7 => rng.u64(..lease),
            _ => rng.u64(..lease * 3),
        };
        let reenters = rng.u8(..5) == 0;
        let by = match rng.u8(..6) {
            0 | 1 => ReleaseBy::Drop,
            2 => ReleaseBy::CancelledUnlock,
            _ => ReleaseBy::Unlock,
        };
        let inner = if reenters { held.reenter(self.watchdog_ms).await } else { None };
        if inner.is_some() {
            self.record(What::Count { op, count: 2 });
        }
        let lost = tokio::select! {
            biased;
            reason = held.lost() => Some(reason),
            () = sleep(ms(hold_for)) => None,
        };
        if let Some(reason) = lost {
            let valid_until = self.recorder.at(held.valid_until());
            self.record(What::Lost { op, reason: reason.to_string(), valid_until });
        }
        if let Some(inner) = inner {
            self.record(What::Count { op, count: 1 });
            // The first guard still holds it.
            if rng.bool() { drop(inner) } else { drop(inner.unlock().await) }
        }
        self.release(op, held, by, rng).await;
        Ok(())
    }

    fn request(&self, rng: &mut Rng) -> Request {
        let lock = rng.usize(..self.locks.len());
        let info = &self.locks[lock];
        let mode = match info.kind {
            LockKind::ReadWrite if rng.u8(..5) > 1 => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let permits = match info.kind {
            LockKind::Semaphore | LockKind::Permits => rng.u32(1..=info.permits),
            _ => 1,
        };
        let wait = match rng.u8(..10) {
            0..=4 => Wait::Endless,
            5..=7 => Wait::For { ms: rng.u64(..2 * self.watchdog_ms) },
            _ => Wait::No,
        };
        let is_fixed = !info.kind.is_unleased() && rng.u8(..4) == 0;
        let lease_ms = is_fixed.then(|| rng.u64(1_000..=3_000));
        Request { lock, mode, permits, wait, lease_ms }
    }

    /// Acquires a lock, and records it. Returns its number, and what is held.
    async fn acquire(
        &self,
        request: Request,
        cancel: Option<Cancel>,
    ) -> Result<Option<(u64, Held)>, ShutDown> {
        let op = self.recorder.next_op();
        let Request { lock, mode, permits, wait, lease_ms } = request;
        self.record(What::Acquire { op, lock, mode, permits, wait, lease_ms });
        let acquiring = self.acquiring(request);
        let outcome = match cancel {
            None => Some(acquiring.await),
            Some(Cancel::After(time)) => timeout(time, acquiring).await.ok(),
            Some(Cancel::AfterPolls(polls)) => drop_after(acquiring, polls).await,
        };
        match outcome {
            None => self.record(What::Cancelled { op }),
            Some(Ok(TryAcquire::Acquired(held))) => {
                let (owner, token) = held.identity();
                let valid_until = self.recorder.at(held.valid_until());
                self.record(What::Granted { op, owner, token, valid_until });
                return Ok(Some((op, held)));
            }
            Some(Ok(_)) => self.record(What::Busy { op }),
            Some(Err(Error::ShuttingDown)) => {
                self.record(What::Cancelled { op });
                return Err(ShutDown);
            }
            Some(Err(error)) => self.record(What::Failed { op, error: error.to_string() }),
        }
        Ok(None)
    }

    fn acquiring(&self, request: Request) -> BoxFuture<'static, Result<TryAcquire<Held>, Error>> {
        let Request { lock, mode, permits, wait, lease_ms } = request;
        let (client, info) = (self.client.clone(), self.locks[lock].clone());
        let name = info.name;
        let lock = match info.kind {
            LockKind::Lock => client.lock(&name),
            LockKind::Fair => client.fair_lock(&name),
            LockKind::Fenced => client.fenced_lock(&name),
            LockKind::Spin => client.spin_lock(&name),
            LockKind::Plain => client.plain_lock(&name),
            LockKind::ReadWrite if mode == Mode::Shared => client.read_write_lock(&name).reader(),
            LockKind::ReadWrite => client.read_write_lock(&name).writer(),
            LockKind::Semaphore => {
                let semaphore = client.semaphore(&name).with_replicas(self.replicas);
                return acquire_permits!(semaphore, permits, wait);
            }
            LockKind::Permits => {
                let semaphore = client.permit_semaphore(&name).with_replicas(self.replicas);
                let semaphore = lease_ms.map_or(semaphore.clone(), |lease| semaphore.with_lease(ms(lease)));
                return acquire_permits!(semaphore, permits, wait);
            }
        };
        let lock =
            lease_ms.map_or(lock.clone(), |lease| lock.with_lease(ms(lease))).with_replicas(self.replicas);
        async move {
            let outcome = match wait {
                Wait::No => lock.try_lock().await?,
                Wait::For { ms: time } => lock.try_lock_for(ms(time)).await?,
                Wait::Endless => TryAcquire::Acquired(lock.lock().await?),
            };
            Ok(outcome.map(Held::Guard))
        }
        .boxed()
    }

    /// Releases what is held, and records it.
    async fn release(&self, op: u64, held: Held, by: ReleaseBy, rng: &mut Rng) {
        let valid_until = self.recorder.at(held.valid_until());
        self.record(What::Release { op, by, valid_until });
        let error = match by {
            ReleaseBy::Drop => {
                drop(held);
                None
            }
            ReleaseBy::Unlock => held.unlock().await.err(),
            ReleaseBy::CancelledUnlock => match drop_after(held.unlock().boxed(), rng.usize(..4)).await {
                None => None,
                Some(outcome) => outcome.err(),
            },
        };
        self.record(What::Released { op, error: error.map(|error| error.to_string()) });
    }

    fn record(&self, what: What) {
        self.recorder.record(self.process, what);
    }
}

/// The client accepts no requests any more.
#[derive(Debug)]
struct ShutDown;

/// When an acquire is cancelled.
#[derive(Clone, Copy, Debug)]
enum Cancel {
    After(Duration),
    AfterPolls(usize),
}

/// Polls a future so often, and drops it if it is not ready then.
async fn drop_after<T>(mut future: BoxFuture<'_, T>, mut polls: usize) -> Option<T> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            Poll::Pending
        }
    })
    .await
}

impl Held {
    /// The owner and the token.
    fn identity(&self) -> (String, Option<u64>) {
        match self {
            Self::Guard(guard) => (guard.owner_id().to_string(), guard.token()),
            Self::Permits(permits) => (permits.ids().join("+"), None),
        }
    }

    fn valid_until(&self) -> Moment {
        match self {
            Self::Guard(guard) => guard.valid_until_moment(),
            Self::Permits(permits) => permits.valid_until_moment(),
        }
    }

    async fn lost(&self) -> LostReason {
        match self {
            Self::Guard(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
        }
    }

    async fn unlock(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.unlock().await,
            Self::Permits(permits) => permits.release().await,
        }
    }

    /// Acquires it once more, where that is possible.
    async fn reenter(&self, limit_ms: u64) -> Option<Guard> {
        let Self::Guard(guard) = self else { return None };
        timeout(ms(limit_ms), guard.reenter()).await.ok()?.ok()
    }
}
