//! What the tasks of a process do: they acquire locks in many ways, hold them, and release them.

mod cancel;
mod gate;
mod held;
mod latches;
mod losses;
mod request;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::time::sleep;
use turnlock::{Client, Error, Guard, Owner, ShutdownReport, TryAcquire};
use turnlock_core::error_chain;

use crate::history::{LONGEST_EFFECT_MS, LockInfo, LockKind, Mode, ReleaseBy, Wait, What};
use crate::recorder::Recorder;
use cancel::{Cancel, unless_cancelled};
pub(crate) use gate::Gate;
use gate::Passed;
use held::Held;
use request::Request;

/// How long a client without tasks may need for its last requests.
///
/// It undoes one without a reply for as long as it may arrive: a minute.
pub(crate) const LAST_REQUESTS: Duration = Duration::from_secs(90);

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
    /// How many of 100 holders acquire another lock meanwhile.
    pub(crate) nested: u8,
    /// Decides who may wait for another lock against the order of the locks. Without one, no task does without a limit.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Whether the last faults are over, and tasks end.
    pub(crate) is_ending: watch::Receiver<bool>,
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
        let may_nest = self.nested > 0 && rng.u8(..100) < self.nested;
        self.perform(request, None, may_nest, rng).await
    }

    /// Acquires as a request says, holds it, and releases it. Meanwhile it may acquire another lock in the same way.
    fn perform<'a>(
        &'a self,
        request: Request,
        passed: Option<Passed>,
        may_nest: bool,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, Result<(), ShutDown>> {
        async move {
            let cancel = Cancel::draw(self.watchdog_ms, rng);
            let Some(acquired) = self.acquire(request, cancel).await? else { return Ok(()) };
            // It waits no longer.
            drop(passed);
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
                4 if self.can_unlock_after(request) => {
                    let ms = rng.u64(1_000..3_000);
                    if rng.u8(..8) == 0 {
                        ReleaseBy::CancelledUnlockAfter { ms }
                    } else {
                        ReleaseBy::UnlockAfter { ms }
                    }
                }
                _ => ReleaseBy::Unlock,
            };
            let mut is_lost = false;
            let reentering =
                async { if reenters { self.reenter(&acquired, request, rng).await } else { None } };
            let inner = self.while_held(&acquired, &mut is_lost, reentering).await;
            self.write(&acquired, request);
            let nested = if may_nest { self.nested_request(request, rng) } else { None };
            let outcome = if let Some((other, passed)) = nested {
                let performing = self.perform(other, passed, false, rng);
                self.while_held(&acquired, &mut is_lost, performing).await
            } else {
                is_lost = is_lost || self.hold(&acquired, ms(hold_for)).await;
                Ok(())
            };
            // A holder that was not told writes with its old token.
            if is_lost && rng.bool() {
                self.write(&acquired, request);
            }
            if let Some(inner) = inner {
                // The first guard still holds it.
                if rng.bool() {
                    drop(inner);
                } else {
                    let was_lost = is_lost;
                    let unlocking = async {
                        match inner.unlock().await {
                            Ok(()) if !was_lost => {
                                self.record_count(&acquired, request, 1, false).await;
                            }
                            Ok(()) => {}
                            Err(error) => self.record_failed_reentry(&acquired, &error),
                        }
                    };
                    self.while_held(&acquired, &mut is_lost, unlocking).await;
                }
            }
            self.release(acquired, by, rng).await;
            outcome
        }
        .boxed()
    }

    /// Holds it for a while. Returns `true` if it is lost before.
    async fn hold(&self, acquired: &Acquired, time: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.record_loss(acquired) => true,
            () = sleep(time) => false,
            () = self.until_ending() => false,
        }
    }

    /// Acquires it once more, where that is possible, and records the count.
    async fn reenter(&self, acquired: &Acquired, request: Request, rng: &mut Rng) -> Option<Guard> {
        let cancel = Cancel::draw(self.watchdog_ms, rng).unwrap_or(Cancel::After(ms(self.watchdog_ms)));
        // A plain lock has no count.
        if self.locks[request.lock].kind == LockKind::Plain {
            return None;
        }
        match unless_cancelled(acquired.held.reenter()?, Some(cancel)).await {
            Some(Ok(guard)) => {
                self.record_count(acquired, request, 2, false).await;
                Some(guard)
            }
            Some(Err(error)) => {
                self.record_failed_reentry(acquired, &error);
                None
            }
            None => {
                self.record_count(acquired, request, 1, true).await;
                None
            }
        }
    }

    fn record_failed_reentry(&self, acquired: &Acquired, error: &Error) {
        let valid_until = self.recorder.at(acquired.held.valid_until());
        self.record(What::ReentryFailed { op: acquired.ops[0], error: error_chain(error), valid_until });
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
    ///
    /// In doubt: the last reentry was cancelled, and may count.
    async fn record_count(&self, acquired: &Acquired, request: Request, count: u32, in_doubt: bool) {
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
        self.record(What::Count { op: acquired.ops[0], count, stored, in_doubt });
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
        let outcome = unless_cancelled(acquiring, cancel).await;
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
            ReleaseBy::CancelledUnlock => self.end(held.unlock().boxed(), rng).await,
            ReleaseBy::CancelledUnlockAfter { ms: time } => {
                self.end(held.unlock_after(ms(time)).boxed(), rng).await
            }
        };
        for op in ops {
            self.record(What::Released { op, error: error.as_ref().map(|error| error_chain(error)) });
        }
    }

    /// Polls a release a few times, and drops it. Returns its error.
    async fn end(&self, releasing: BoxFuture<'_, Result<(), Error>>, rng: &mut Rng) -> Option<Error> {
        unless_cancelled(releasing, Some(Cancel::AfterPolls(rng.usize(..4)))).await?.err()
    }

    /// Records what its clients take for a deadlock.
    pub(crate) async fn record_deadlocks(&self) {
        for client in &self.clients {
            match client.deadlocks().await {
                Ok(found) => {
                    for deadlock in found.iter().filter(|deadlock| deadlock.is_certain) {
                        self.record(What::Deadlock { text: deadlock.to_string() });
                    }
                }
                Err(error) => self.record_failure("the search for deadlocks", &error_chain(&error)),
            }
        }
    }

    /// Shuts down its clients, and records what they have not finished within `limit`.
    pub(crate) async fn shut_down(&self, limit: Duration) {
        for report in join_all(self.clients.iter().map(|client| client.shutdown(limit))).await {
            if !report.is_clean() {
                let ShutdownReport { held, unfinished, .. } = report;
                self.record_failure("the shutdown", &format!("{held} held, {unfinished} unfinished"));
            }
        }
    }

    fn record_failure(&self, call: &str, error: &str) {
        self.record(What::CallFailed { call: call.to_owned(), error: error.to_owned() });
    }

    fn record(&self, what: What) {
        self.recorder.record(self.process, what);
    }
}

/// The client accepts no requests any more.
#[derive(Debug)]
struct ShutDown;
