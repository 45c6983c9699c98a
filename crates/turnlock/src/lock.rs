use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{Kind, Lease, LeaseError, LockName, OwnerId};

use crate::engine::{self, Ask, Deepening, Engine, Patience, Term};
use crate::error::Error;
use crate::guard::Guard;
use crate::inspection::Inspection;
use crate::named::{Named, endless};
use crate::owner::Owner;
use crate::run::Runner;

/// A lock by its name: cheap to make and to clone, and nothing is sent until it is used.
///
/// All kinds of locks are this one type; which of them it is, is said where it is made: [`Client::lock`], and
/// [`fair_lock`], [`fenced_lock`], [`plain_lock`], [`spin_lock`] and [`read_write_lock`] beside it. All but the plain lock
/// are Redisson's on the same wire: a Java service that locks the same name is excluded, and excludes.
///
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
///
/// [`Client::lock`]: crate::Client::lock
/// [`fair_lock`]: crate::Client::fair_lock
/// [`fenced_lock`]: crate::Client::fenced_lock
/// [`plain_lock`]: crate::Client::plain_lock
/// [`spin_lock`]: crate::Client::spin_lock
/// [`read_write_lock`]: crate::Client::read_write_lock
#[derive(Clone, Debug)]
pub struct Lock {
    named: Named,
    lease: Option<Result<Lease, LeaseError>>,
    owner: Option<Owner>,
}

impl Lock {
    pub(crate) fn new(engine: &Arc<Engine>, kind: Kind, name: &str) -> Self {
        Self { named: Named::new(engine, kind, name), lease: None, owner: None }
    }

    /// The same lock, taken with a fixed lease: not renewed, so it ends by itself, whatever its holder does.
    ///
    /// The client still asks the store whether the lock is held, once in a third of the lease, or of the
    /// [watchdog's](crate::Builder::watchdog) if that is shorter: see [`Guard::lost`].
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn lease(&self, lease: Duration) -> Self {
        Self { lease: Some(Lease::new(lease)), ..self.clone() }
    }

    /// The same lock, taken by `owner`: who gets at once what it holds already.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self { owner: Some(owner.clone()), ..self.clone() }
    }

    /// The same lock, granted only when at least so many replicas of the server have acknowledged it; 0 asks for none. Without
    /// this, what [`Builder::acknowledged_by`](crate::Builder::acknowledged_by) says.
    ///
    /// **Guarantee.** A grant counts when `replicas` replicas have it (`WAIT`), and so does each reentry. Else it is given
    /// back, and after the caller's wait or [`retry_for`](crate::Builder::retry_for) the error is
    /// [`Error::NotEnoughReplicas`], which says how many had it; also when there are no replicas at all, and on `memory://`,
    /// which never has any, at once. `try_lock` tries once. A renewal counts likewise: one that too few have acknowledged is
    /// tried again until the end of the lease, and then the lock is [lost](Guard::lost). So with as many as there are
    /// replicas that may be promoted, a lock that is held is still held after a promotion, whichever replica it is.
    ///
    /// **Limits.** Fewer than that is best effort: one that has not acknowledged may be promoted. A replica has it in
    /// memory, not on disk. A release is not confirmed: one that is lost in a fail-over costs one lease, and nobody's
    /// safety. Nor are steps on numbers, such as setting permits or counting a latch down. A reentry asks for no fewer than
    /// the hold that it deepens; renewals of the hold ask for the most that any reentry did.
    ///
    /// Such requests have a connection of their own and go together in groups, so one that waits for a slow replica does not
    /// stall other locks, releases, or renewals that ask for none.
    #[must_use = "this makes another handle; the lock is as it was"]
    pub fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { named: self.named.acknowledged_by(replicas), ..self.clone() }
    }

    /// The name of the lock, as it was given. Empty when the given one is not valid.
    pub fn name(&self) -> &str {
        self.named.as_str()
    }

    /// Takes the lock, and waits for it as long as it takes.
    ///
    /// Waiters of one client are served in the order of their arrival; those of a fair lock over all clients. While the
    /// store does not answer, it is asked again for [`retry_for`](crate::Builder::retry_for) before this gives up with
    /// [`Error::Unavailable`].
    ///
    /// Cancelling: safe. The place in the queue is given up at once, or when the request that is under way is answered;
    /// that is finished in the background, and what it got is given back.
    pub async fn lock(&self) -> Result<Guard, Error> {
        endless(self.acquire(Patience::Endless).await)
    }

    /// Takes the lock if it is free, and does not wait for it.
    ///
    /// `None` when the store replies that the lock is held, when a valid hold of this client stands in the way, or when another
    /// waiter of this client is ahead and the store replies.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when the store does not reply within about one
    /// [`response_timeout`](crate::Builder::response_timeout). It can take twice as long if a connection has to be made first,
    /// and four times as long if [replicas](Lock::acknowledged_by) must acknowledge the grant too.
    ///
    /// Cancelling: as for [`lock`](Lock::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.acquire(Patience::None).await
    }

    /// Takes the lock, and waits for it for `wait` at the most. `None` when that was not enough, as for
    /// [`try_lock`](Lock::try_lock). If the store was not asked during the wait, it is asked once at the end.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when the store does not reply to the last request. That can be about two response time-outs after
    /// `wait`.
    ///
    /// Cancelling: as for [`lock`](Lock::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>, Error> {
        self.acquire(Patience::of(wait)).await
    }

    /// Takes the lock for the owner that `guard` stands for: the same lock once more, as [`Guard::reenter`] does, or a read
    /// lock for one who holds the write lock of that name.
    ///
    /// [`Error::WouldDeadlock`] when `guard` reads and this is the write lock: give the read lock back first.
    ///
    /// Cancelling: as for [`lock`](Lock::lock).
    pub async fn lock_with(&self, guard: &Guard) -> Result<Guard, Error> {
        let (name, hold) = (self.checked_name()?, guard.hold());
        if !guard.is_of(&self.named.engine) || hold.name.key() != name.key() {
            let reason = format!("the given one holds another lock than {:?}", self.name());
            return Err(Error::bad_setting("guard", reason));
        }
        let shared = &self.named.engine.shared;
        match (name.kind(), hold.name.kind()) {
            (Kind::Read, Kind::Write) => {
                let replicas = self.named.replicas();
                shared.on_runtime(guard.read_under(self.term()?, replicas)).await
            }
            (Kind::Write, Kind::Read) => Err(reads_already(name)),
            _ => {
                let (term, replicas) = (self.term()?, self.named.replicas());
                let deepening = Deepening { term, patience: Patience::Endless, replicas };
                let reenter = engine::reenter(&self.named.engine, hold, deepening);
                let again = shared.on_runtime(reenter).await;
                again.map(|again| again.file_with(guard.file()))
            }
        }
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

    /// Whether anybody holds the lock: of a read-write lock, this side of it.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let kind = self.checked_name()?.kind();
        Ok(self.inspect().await?.holders.iter().any(|holder| holder.role.is_of(kind)))
    }

    /// Whether `owner` holds the lock: here and on the store.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// How often `owner` holds the lock, on the store.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, Error> {
        self.check_owner(owner)?;
        let name = self.checked_name()?;
        let Some(hold) = owner.file(name).hold(name.kind()) else {
            return Ok(0);
        };
        let holders = self.inspect().await?.holders;
        let ours = holders.iter().find(|holder| holder.owner == hold.owner && holder.role.is_of(name.kind()));
        Ok(ours.map_or(0, |holder| holder.count))
    }

    /// The rest of the holder's lease. `None` when nobody holds the lock, or somebody does without end.
    pub async fn remaining(&self) -> Result<Option<Duration>, Error> {
        Ok(self.inspect().await?.ttl)
    }

    /// Takes the lock away from whoever holds it, and wakes those who wait. Whether somebody held it. Of a read-write lock,
    /// this side of it: all readers, or the writer.
    ///
    /// The holder is not asked. A holder of this client hears of it by [`Guard::lost`] right after, others when they next
    /// renew or look, within a third of their lease. Waiters of the holder's client may still be handed
    /// the lock until its [window](crate::Builder::hand_over_window) ends: 10 ms after its grant.
    ///
    /// Cancelling: the lock may have been freed or not.
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.named.engine.shared.force_unlock(self.checked_name()?).await
    }

    /// Takes the lock away from this owner, if it still holds it, and from no other owner. Whether it did. Of a read-write
    /// lock, only what it has of this side.
    ///
    /// The holder hears of it as of [`force_unlock`](Lock::force_unlock).
    ///
    /// **Limits.** An owner is one holder, with one exception: waiters of one client that are handed the lock within its
    /// [window](crate::Builder::hand_over_window) have one owner, and the lock is taken from whichever of them holds it now. So
    /// what an inspection shows in the first 10 ms of a grant may be the next waiter's by the time of this call. When the
    /// window has ended, the owner stays one holder until the lock is given back.
    ///
    /// Cancelling: the lock may have been freed or not.
    pub async fn force_unlock_of(&self, owner: &OwnerId) -> Result<bool, Error> {
        self.named.engine.shared.force_unlock_of(self.checked_name()?, owner).await
    }

    /// Who holds the lock, how often and for how long, and how many wait here.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.named.inspect().await
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.named.engine
    }

    pub(crate) fn checked_name(&self) -> Result<&LockName, Error> {
        self.named.checked()
    }

    fn term(&self) -> Result<Term, Error> {
        Ok(match &self.lease {
            None => Term::Renewed(self.named.engine.shared.settings.watchdog),
            Some(lease) => Term::Fixed(lease.clone()?),
        })
    }

    pub(crate) async fn acquire(&self, patience: Patience) -> Result<Option<Guard>, Error> {
        let name = self.checked_name()?.clone();
        let replicas = self.named.replicas();
        let is_anybodys = self.owner.is_none();
        let ask = Ask { name, term: self.term()?, patience, permits: 1, replicas, is_anybodys, under: None };
        let shared = &self.named.engine.shared;
        match &self.owner {
            None => shared.on_runtime(engine::acquire(&self.named.engine, ask)).await,
            Some(owner) => {
                self.check_owner(owner)?;
                shared.on_runtime(self.acquire_for(owner, ask)).await
            }
        }
    }

    /// Takes the lock for an owner: once more if it has it, from the start if it does not.
    async fn acquire_for(&self, owner: &Owner, mut ask: Ask) -> Result<Option<Guard>, Error> {
        let file = owner.file(&ask.name);
        let mut turn = ask.patience.lock(&file.turn).await;
        if turn.is_none() {
            turn = engine::behind_own_task(&self.named.engine.shared, &ask, &file.turn).await?;
        }
        let Some(_turn) = turn else { return Ok(None) };
        let kind = ask.name.kind();
        if let Some(hold) = file.valid_hold(kind) {
            if kind == Kind::Plain {
                return itself_in_the_way(ask.patience, holds_already(&ask.name));
            }
            let Ask { term, patience, replicas, .. } = ask;
            match engine::reenter(&self.named.engine, &hold, Deepening { term, patience, replicas }).await {
                // Another task of this owner gave the hold back meanwhile: then from the start.
                Err(Error::NotHeld { .. }) => {}
                outcome => return outcome.map(|guard| Some(guard.file_with(&Arc::downgrade(&file)))),
            }
        }
        match kind {
            Kind::Read => ask.under = file.valid_hold(Kind::Write),
            Kind::Write if file.valid_hold(Kind::Read).is_some() => {
                return itself_in_the_way(ask.patience, reads_already(&ask.name));
            }
            _ => {}
        }
        let under = ask.under.is_some();
        let guard = match engine::acquire(&self.named.engine, ask.clone()).await {
            // Another task of this owner gave the write lock back meanwhile: then it reads like anybody else.
            Err(Error::Lost { .. }) if under => {
                engine::acquire(&self.named.engine, Ask { under: None, ..ask }).await?
            }
            outcome => outcome?,
        };
        Ok(guard.map(|guard| guard.file_with(&Arc::downgrade(&file))))
    }

    fn check_owner(&self, owner: &Owner) -> Result<(), Error> {
        if owner.is_of(&self.named.engine) {
            return Ok(());
        }
        Err(Error::bad_setting(
            "owner",
            format!("{owner} belongs to another client: make one with this client's `owner`"),
        ))
    }
}

/// Who waits for itself is told so; who will not wait is only refused.
fn itself_in_the_way(patience: Patience, error: Error) -> Result<Option<Guard>, Error> {
    if patience == Patience::None { Ok(None) } else { Err(error) }
}

fn reads_already(name: &LockName) -> Error {
    let reason =
        "it holds the read lock, which keeps every writer out: give that back before asking to write";
    Error::WouldDeadlock { name: name.to_string(), reason }
}

fn holds_already(name: &LockName) -> Error {
    Error::WouldDeadlock {
        name: name.to_string(),
        reason: "it holds this plain lock, which has no hold count",
    }
}
