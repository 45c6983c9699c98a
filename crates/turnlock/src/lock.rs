use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{Lease, LeaseError, LockName, NameError};

use crate::backend::{Answer, Step};
use crate::engine::{self, Ask, Engine, Patience, Term};
use crate::error::Error;
use crate::guard::Guard;
use crate::inspection::{Holder, Inspection};
use crate::owner::Owner;
use crate::run::Runner;

/// A lock by its name: cheap to make and to clone, and nothing is sent until it is used.
///
/// Redisson's `RLock` on the same wire: a Java service that locks the same name is excluded, and excludes.
/// Each call of `lock`, `try_lock` or `try_lock_for` is an owner of its own unless [`owned_by`](Lock::owned_by) says
/// otherwise, so two tasks that share one `Lock` exclude each other.
///
/// A name or a lease that cannot work is reported by the first call that would use it.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = turnlock::Client::connect("memory://").await?;
/// let lock = client.lock("orders:42");
/// let guard = lock.lock().await?; // waits; renewed while the guard lives
/// assert!(lock.try_lock().await?.is_none()); // now or never
/// assert!(lock.try_lock_for(Duration::from_millis(10)).await?.is_none()); // waits at most
/// guard.unlock().await?;
/// let guard = lock.lease(Duration::from_secs(10)).lock().await?; // ends by itself after 10 s
/// # drop(guard);
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    engine: Arc<Engine>,
    name: Result<LockName, NameError>,
    lease: Option<Result<Lease, LeaseError>>,
    owner: Option<Owner>,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        let name = LockName::with_prefix(&engine.shared.settings.key_prefix, name);
        Self { engine, name, lease: None, owner: None }
    }

    /// The same lock, taken with a fixed lease: not renewed, so it ends by itself, whatever its holder does.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { lease: Some(Lease::new(lease)), ..self.clone() }
    }

    /// The same lock, taken by `owner`: who gets at once what it holds already.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { owner: Some(owner.clone()), ..self.clone() }
    }

    /// The name of the lock, as it was given. Empty when the given one is not valid.
    pub fn name(&self) -> &str {
        self.name.as_ref().map(LockName::as_str).unwrap_or_default()
    }

    /// Takes the lock, and waits for it as long as it takes.
    ///
    /// Waiters of one client are served in the order of their arrival. While the store does not answer, it is asked again
    /// for [`retry_for`](crate::Builder::retry_for) before this gives up with [`Error::Unavailable`].
    ///
    /// Cancelling: safe. The place in the queue is given up at once, or when the request that is under way is answered;
    /// that is finished in the background, and what it got is given back.
    pub async fn lock(&self) -> Result<Guard, Error> {
        let guard = self.acquire(Patience::Endless).await?;
        guard.ok_or_else(|| unreachable_give_up(self.name()))
    }

    /// Takes the lock if it is free, and does not wait. `None` when somebody holds it, or waits for it in this client.
    ///
    /// Cancelling: as for [`lock`](Lock::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Patience::None).await
    }

    /// Takes the lock, and waits for it for `wait` at the most. `None` when that was not enough.
    ///
    /// Cancelling: as for [`lock`](Lock::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        self.acquire(Patience::of(wait)).await
    }

    /// Takes the lock, runs `body`, and gives the lock back. See [`Runner`] for hooks.
    ///
    /// When the lock is lost, `body` is cancelled where it stands and the result is [`Error::Lost`].
    ///
    /// Cancelling: safe. `body` is dropped, then the lock is given back.
    pub async fn run<B, F>(&self, body: B) -> Result<F::Output, Error>
    where
        B: FnOnce(crate::run::Held) -> F,
        F: Future,
    {
        self.runner().run(body).await
    }

    /// As [`run`](Lock::run), but waits for the lock for `wait` at the most. `None`: it was not free in time, and `body`
    /// did not run.
    pub async fn try_run_for<B, F>(&self, wait: Duration, body: B) -> Result<Option<F::Output>, Error>
    where
        B: FnOnce(crate::run::Held) -> F,
        F: Future,
    {
        self.runner().try_run_for(wait, body).await
    }

    /// Runs bodies under this lock, with hooks.
    pub fn runner(&self) -> Runner {
        Runner::new(self.clone())
    }

    /// Whether anybody holds the lock.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.inspect().await?.is_locked())
    }

    /// Whether `owner` holds the lock: here and on the store.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// How often `owner` holds the lock, on the store.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, Error> {
        self.check_owner(owner)?;
        let Some(hold) = owner.file(self.checked_name()?).hold() else {
            return Ok(0);
        };
        let holders = self.inspect().await?.holders;
        Ok(holders.iter().find(|holder| holder.owner == hold.owner).map_or(0, |holder| holder.count))
    }

    /// The rest of the holder's lease. `None` when nobody holds the lock, or somebody does without end.
    pub async fn remaining(&self) -> Result<Option<Duration>, Error> {
        Ok(self.inspect().await?.ttl)
    }

    /// Takes the lock away from whoever holds it, and wakes those who wait. Whether somebody held it.
    ///
    /// The holder is not asked. A holder of this client hears of it by [`Guard::lost`] right after, others when they next
    /// renew; one with a fixed lease of another client, when its lease ends.
    ///
    /// Cancelling: the lock may have been freed or not.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        let shared = &self.engine.shared;
        let name = self.checked_name()?;
        let ours = shared.rooms.hold(name);
        // Not sent again when it may have been done: by then, another may hold the lock.
        let was_held = self.ask(Resend::IfNotDone, |limit| shared.backend.force_unlock(name, limit)).await?;
        if let Some(hold) = ours {
            shared.watchdog.look_now(&hold);
        }
        Ok(was_held)
    }

    /// Who holds the lock, how often and for how long, and how many wait here.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        let shared = &self.engine.shared;
        let name = self.checked_name()?;
        let snapshot = self.ask(Resend::Always, |limit| shared.backend.inspect(name, limit)).await?;
        let holder = |(owner, count): (turnlock_core::OwnerId, u64)| {
            let is_mine = owner.is_of(shared.client);
            Holder { owner, count, is_mine }
        };
        Ok(Inspection {
            name: name.to_string(),
            key: name.key().to_owned(),
            holders: snapshot.holders.into_iter().map(holder).collect(),
            ttl: snapshot.ttl,
            waiting_here: shared.rooms.waiting(name),
        })
    }

    pub(crate) fn checked_name(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(|error| Error::BadName(error.clone()))
    }

    /// One question to the store that concerns no hold of ours, asked twice if the first finds a dead connection.
    async fn ask<T: Send>(&self, resend: Resend, step: impl Fn(Duration) -> Step<T>) -> Result<T, Error> {
        let shared = &self.engine.shared;
        let limit = shared.settings.usual_patience();
        let work = async {
            let answer = match step(limit).await {
                Err(failure)
                    if failure.is_worth_a_retry()
                        && (resend == Resend::Always || failure.in_doubt.is_none()) =>
                {
                    step(limit).await
                }
                answer => answer,
            };
            answer.map(|Answer { value, .. }| value)
        };
        let answer = shared.on_runtime(work).await;
        answer.map_err(|failure| failure.into_error(|| format!("lock {:?}", self.name())))
    }

    pub(crate) async fn acquire(&self, patience: Patience) -> Result<Option<Guard>, Error> {
        let name = self.checked_name()?.clone();
        let term = match &self.lease {
            None => Term::Renewed(self.engine.shared.settings.watchdog),
            Some(lease) => Term::Fixed(lease.clone()?),
        };
        let ask = Ask { name, term, patience };
        let shared = &self.engine.shared;
        match &self.owner {
            None => shared.on_runtime(engine::acquire(&self.engine, ask)).await,
            Some(owner) => {
                self.check_owner(owner)?;
                shared.on_runtime(self.acquire_for(owner, ask)).await
            }
        }
    }

    /// Takes the lock for an owner: once more if it has it, from the start if it does not.
    async fn acquire_for(&self, owner: &Owner, ask: Ask) -> Result<Option<Guard>, Error> {
        let file = owner.file(&ask.name);
        let Some(_turn) = ask.patience.lock(&file.turn).await else { return Ok(None) };
        if let Some(hold) = file.hold().filter(|hold| hold.is_valid()) {
            match engine::reenter(&self.engine, &hold, ask.term, ask.patience).await {
                // Another task of this owner gave the hold back meanwhile: then from the start.
                Err(Error::NotHeld { .. }) => {}
                outcome => return outcome.map(Some),
            }
        }
        let guard = engine::acquire(&self.engine, ask).await?;
        if let Some(guard) = &guard {
            file.set_hold(guard.hold());
        }
        Ok(guard)
    }

    fn check_owner(&self, owner: &Owner) -> Result<(), Error> {
        if owner.is_of(&self.engine) {
            return Ok(());
        }
        Err(Error::bad_setting(
            "owner",
            format!("{owner} belongs to another client: make one with this client's `owner`"),
        ))
    }
}

/// Whether a question is asked again when its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Resend {
    Always,
    /// Only if it was certainly not done.
    IfNotDone,
}

/// Endless patience does not give up; if it ever did, that would be a fault here and not the caller's.
fn unreachable_give_up(name: &str) -> Error {
    Error::Unsupported(format!("gave up an endless wait for lock {name:?}: this is a fault in turnlock"))
}
