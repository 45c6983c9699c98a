//! What the tasks of a process do: they acquire locks in many ways, hold them, and release them.

mod held;
mod latches;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use turnlock::{Client, Error, Lock, MultiLock, Owner, RedLock, TryAcquire};
use turnlock_core::error_chain;

use crate::history::{LONGEST_EFFECT_MS, LockInfo, LockKind, Mode, ReleaseBy, Wait, What};
use crate::recorder::Recorder;
use held::Held;

/// Acquires a lock, or several, of any kind.
macro_rules! acquire_lock {
    ($lock:expr, $wait:expr, $held:expr) => {{
        let (lock, wait) = ($lock, $wait);
        async move {
            let outcome = match wait {
                Wait::No => lock.try_lock().await?,
                Wait::For { ms: time } => lock.try_lock_for(ms(time)).await?,
                Wait::Endless => TryAcquire::Acquired(lock.lock().await?),
            };
            Ok(outcome.map($held))
        }
        .boxed()
    }};
}

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
    /// On each deployment: one, or three for a lock on a majority of them.
    pub(crate) clients: Vec<Client>,
    /// The explicit owners of the process.
    pub(crate) owners: Vec<Owner>,
    pub(crate) process: u32,
    pub(crate) locks: Arc<[LockInfo]>,
    pub(crate) recorder: Arc<Recorder>,
    /// The number of replicas that must acknowledge a grant.
    pub(crate) replicas: u32,
    /// The lease of a lock that is renewed.
    pub(crate) watchdog_ms: u64,
    /// How many of 100 holds last long. Short ones make many acquisitions.
    pub(crate) long_holds: u8,
    /// Whether the last faults are over, and tasks end.
    pub(crate) is_ending: watch::Receiver<bool>,
}

/// One way to acquire a lock.
#[derive(Clone, Copy, Debug)]
struct Request {
    lock: usize,
    /// Another lock, which is acquired together with the first.
    also: Option<usize>,
    mode: Mode,
    permits: u32,
    wait: Wait,
    lease_ms: Option<u64>,
    owner_number: Option<usize>,
}

/// Acquired locks, with the number of the acquire of each.
struct Acquired {
    ops: Vec<u64>,
    held: Held,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Workload {
    /// Sets the number of permits of all semaphores.
    pub(crate) async fn prepare(&self) -> Result<(), Error> {
        let client = self.client();
        for info in self.locks.iter() {
            match info.kind {
                LockKind::Semaphore => {
                    client.semaphore(&info.name).try_set_permits(info.permits).await?;
                }
                LockKind::Permits => {
                    client.permit_semaphore(&info.name).try_set_permits(info.permits).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The client on the first deployment, which has all locks.
    pub(crate) fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// Takes turns: so many, or until the run ends.
    pub(crate) async fn run(self, turns: u32, mut rng: Rng) {
        for _ in 0..turns {
            if *self.is_ending.borrow() || self.turn(&mut rng).await.is_err() {
                return;
            }
            sleep(ms(rng.u64(..20))).await;
        }
    }

    /// Acquires every lock once, and opens every latch, within the time that any fault may have an effect.
    pub(crate) async fn acquire_each(&self) {
        for (lock, info) in self.locks.iter().enumerate() {
            if info.kind == LockKind::Latch {
                self.open_latch(lock).await;
                continue;
            }
            let request = Request {
                lock,
                also: None,
                mode: Mode::Exclusive,
                permits: 1,
                wait: Wait::For { ms: LONGEST_EFFECT_MS },
                lease_ms: None,
                owner_number: None,
            };
            if let Ok(Some(acquired)) = self.acquire(request, None).await {
                self.release(acquired, ReleaseBy::Unlock, &mut Rng::with_seed(0)).await;
            }
        }
    }

    /// Acquires one of the locks, holds it, and releases it.
    async fn turn(&self, rng: &mut Rng) -> Result<(), ShutDown> {
        let request = self.request(rng);
        if self.locks[request.lock].kind == LockKind::Latch {
            return self.use_latch(request.lock, rng).await;
        }
        // Cancelled after some time, or after some polls.
        let cancel = match rng.u8(..8) {
            0 => Some(Cancel::After(ms(rng.u64(..self.watchdog_ms)))),
            1 => Some(Cancel::AfterPolls(rng.usize(1..8))),
            _ => None,
        };
        let Some(acquired) = self.acquire(request, cancel).await? else { return Ok(()) };
        let lease = request.lease_ms.unwrap_or(self.watchdog_ms);
        let hold_for = match rng.u8(..100) {
            number if number >= self.long_holds => rng.u64(..20),
            number if number % 3 > 0 => rng.u64(..lease),
            _ => rng.u64(..lease * 3),
        };
        let reenters = rng.u8(..5) == 0;
        let by = match rng.u8(..8) {
            0..=2 => ReleaseBy::Drop,
            3 => ReleaseBy::CancelledUnlock,
            4 if self.can_unlock_after(request) => ReleaseBy::UnlockAfter { ms: rng.u64(1_000..3_000) },
            _ => ReleaseBy::Unlock,
        };
        let inner = if reenters { acquired.held.reenter(ms(self.watchdog_ms)).await } else { None };
        if inner.is_some() {
            self.record_count(&acquired, request, 2).await;
        }
        self.write(&acquired, request);
        let lost = tokio::select! {
            biased;
            reason = acquired.held.lost() => Some(reason),
            () = sleep(ms(hold_for)) => None,
            () = self.until_ending() => None,
        };
        if let Some(reason) = lost {
            let valid_until = self.recorder.at(acquired.held.valid_until());
            for &op in &acquired.ops {
                self.record(What::Lost { op, reason: reason.to_string(), valid_until });
            }
            // A holder that was not told writes with its old token.
            if rng.bool() {
                self.write(&acquired, request);
            }
        }
        if let Some(inner) = inner {
            // The first guard still holds it.
            let is_released = if rng.bool() {
                drop(inner);
                false
            } else {
                inner.unlock().await.is_ok()
            };
            if is_released && lost.is_none() {
                self.record_count(&acquired, request, 1).await;
            }
        }
        self.release(acquired, by, rng).await;
        Ok(())
    }

    /// Waits until the run ends.
    async fn until_ending(&self) {
        // Fails if the sender is gone: the run has ended.
        let _ = self.is_ending.clone().wait_for(|is_ending| *is_ending).await;
    }

    /// A lock of one guard can be left to the store.
    fn can_unlock_after(&self, request: Request) -> bool {
        let is_single = request.also.is_none() && request.owner_number.is_none();
        is_single && self.locks[request.lock].kind.is_lock()
    }

    /// Records how often the owner holds the lock, with the count on the store if that can be read.
    async fn record_count(&self, acquired: &Acquired, request: Request, count: u32) {
        // Other holds of an explicit owner count too.
        let stored = match &acquired.held {
            Held::Guard(guard) if request.owner_number.is_none() => {
                let seen = self.lock(request.lock, request.mode).inspect().await.ok();
                let own = seen.and_then(|seen| {
                    seen.holders.iter().find(|holder| holder.owner == *guard.owner_id()).map(|own| own.count)
                });
                own.filter(|_| guard.is_valid())
            }
            _ => None,
        };
        self.record(What::Count { op: acquired.ops[0], count, stored });
    }

    /// Writes with the token of a fenced lock.
    ///
    /// Other guards of an explicit owner have other tokens, at the same time.
    fn write(&self, acquired: &Acquired, request: Request) {
        if request.owner_number.is_some() {
            return;
        }
        for (member, &op) in acquired.ops.iter().enumerate() {
            if let (_, Some(token)) = acquired.held.identity(member) {
                self.record(What::Write { op, token });
            }
        }
    }

    fn request(&self, rng: &mut Rng) -> Request {
        let lock = rng.usize(..self.locks.len());
        let info = &self.locks[lock];
        let mode = match info.kind {
            LockKind::ReadWrite if rng.u8(..5) > 1 => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let permits = if info.kind.is_semaphore() { rng.u32(1..=info.permits) } else { 1 };
        let wait = match rng.u8(..10) {
            0..=4 => Wait::Endless,
            5..=7 => Wait::For { ms: rng.u64(..2 * self.watchdog_ms) },
            _ => Wait::No,
        };
        let is_fixed = !info.kind.is_unleased() && rng.u8(..4) == 0;
        let lease_ms = is_fixed.then(|| rng.u64(1_000..=3_000));
        let also = rng.usize(..self.locks.len());
        let is_group = info.kind.is_lock() && rng.u8(..8) == 0;
        let also = Some(also).filter(|also| is_group && *also != lock && self.locks[*also].kind.is_lock());
        // Plain locks cannot be reentered, and an owner that reads cannot write.
        let can_reenter = info.kind.is_lock() && !matches!(info.kind, LockKind::Plain | LockKind::ReadWrite);
        let has_owner = also.is_none() && can_reenter;
        let owner_number = (has_owner && rng.u8(..8) == 0 && !self.owners.is_empty())
            .then(|| rng.usize(..self.owners.len()));
        Request { lock, also, mode, permits, wait, lease_ms, owner_number }
    }

    /// Acquires a lock, and records it.
    async fn acquire(&self, request: Request, cancel: Option<Cancel>) -> Result<Option<Acquired>, ShutDown> {
        let Request { lock, also, mode, permits, wait, lease_ms, owner_number } = request;
        let ops = [Some(lock), also].into_iter().flatten().map(|lock| {
            let op = self.recorder.next_op();
            // The other lock of a group is exclusive.
            let mode = if also == Some(lock) { Mode::Exclusive } else { mode };
            self.record(What::Acquire { op, lock, mode, permits, wait, lease_ms, owner_number });
            op
        });
        let ops: Vec<_> = ops.collect();
        let acquiring = self.acquiring(request);
        let outcome = match cancel {
            None => Some(acquiring.await),
            Some(Cancel::After(time)) => timeout(time, acquiring).await.ok(),
            Some(Cancel::AfterPolls(polls)) => drop_after(acquiring, polls).await,
        };
        let record_each = |what: &dyn Fn(u64) -> What| ops.iter().for_each(|op| self.record(what(*op)));
        match outcome {
            None => record_each(&|op| What::Cancelled { op }),
            Some(Ok(TryAcquire::Acquired(held))) => {
                let valid_until = self.recorder.at(held.valid_until());
                for (member, &op) in ops.iter().enumerate() {
                    let (owner, token) = held.identity(member);
                    self.record(What::Granted { op, owner, token, valid_until });
                }
                return Ok(Some(Acquired { ops, held }));
            }
            Some(Ok(_)) => record_each(&|op| What::Busy { op }),
            Some(Err(Error::ShuttingDown)) => {
                record_each(&|op| What::Cancelled { op });
                return Err(ShutDown);
            }
            Some(Err(error)) => record_each(&|op| What::Failed { op, error: error_chain(&error) }),
        }
        Ok(None)
    }

    /// The handle of a lock that is not a semaphore.
    fn lock(&self, lock: usize, mode: Mode) -> Lock {
        let (client, info) = (self.client(), &self.locks[lock]);
        let name = &info.name;
        match info.kind {
            LockKind::Fair => client.fair_lock(name),
            LockKind::Fenced => client.fenced_lock(name),
            LockKind::Spin => client.spin_lock(name),
            LockKind::Plain => client.plain_lock(name),
            LockKind::ReadWrite if mode == Mode::Shared => client.read_write_lock(name).reader(),
            LockKind::ReadWrite => client.read_write_lock(name).writer(),
            _ => client.lock(name),
        }
        .with_replicas(self.replicas)
    }

    fn acquiring(&self, request: Request) -> BoxFuture<'static, Result<TryAcquire<Held>, Error>> {
        let Request { lock, also, mode, permits, wait, lease_ms, owner_number } = request;
        let info = &self.locks[lock];
        let (client, name) = (self.client(), &info.name);
        let with_lease = |lock: Lock| match lease_ms {
            Some(lease) => lock.with_lease(ms(lease)),
            None => lock,
        };
        match info.kind {
            LockKind::Semaphore => {
                let semaphore = client.semaphore(name).with_replicas(self.replicas);
                return acquire_permits!(semaphore, permits, wait);
            }
            LockKind::Permits => {
                let semaphore = client.permit_semaphore(name).with_replicas(self.replicas);
                let semaphore = lease_ms.map_or(semaphore.clone(), |lease| semaphore.with_lease(ms(lease)));
                return acquire_permits!(semaphore, permits, wait);
            }
            LockKind::RedLock => {
                let members = self.clients.iter().map(|client| with_lease(client.lock(name)));
                return match RedLock::new(members) {
                    Ok(lock) => acquire_lock!(lock, wait, Held::Group),
                    Err(error) => std::future::ready(Err(error)).boxed(),
                };
            }
            _ => {}
        }
        if let Some(also) = also {
            let members = [self.lock(lock, mode), self.lock(also, Mode::Exclusive)].map(with_lease);
            return match MultiLock::new(members) {
                Ok(lock) => acquire_lock!(lock, wait, Held::Group),
                Err(error) => std::future::ready(Err(error)).boxed(),
            };
        }
        let lock = with_lease(self.lock(lock, mode));
        let lock = owner_number.map_or(lock.clone(), |number| lock.with_owner(&self.owners[number]));
        acquire_lock!(lock, wait, Held::Guard)
    }

    /// Releases what is held, and records it.
    async fn release(&self, Acquired { ops, held }: Acquired, by: ReleaseBy, rng: &mut Rng) {
        let valid_until = self.recorder.at(held.valid_until());
        for &op in &ops {
            self.record(What::Release { op, by, valid_until });
        }
        let error = match by {
            ReleaseBy::Drop => {
                drop(held);
                None
            }
            ReleaseBy::Unlock => held.unlock().await.err(),
            ReleaseBy::UnlockAfter { ms: time } => held.unlock_after(ms(time)).await.err(),
            ReleaseBy::CancelledUnlock => match drop_after(held.unlock().boxed(), rng.usize(..4)).await {
                None => None,
                Some(outcome) => outcome.err(),
            },
        };
        for op in ops {
            self.record(What::Released { op, error: error.as_ref().map(ToString::to_string) });
        }
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
