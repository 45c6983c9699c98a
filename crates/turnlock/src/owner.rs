use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use turnlock_core::{Kind, LockName};

use crate::clock;
use crate::engine::{self, AcquireRequest, Engine, Grant, Hold, LeaseMode, ReenterRequest, WaitLimit};
use crate::error::Error;

/// An explicit owner of locks: what a thread is to Redisson.
///
/// Each [`Lock::lock`](crate::Lock::lock) is a new owner, so two tasks that share a lock exclude each other. Parts of a program that share
/// an `Owner` are one owner: what it holds, it acquires again at once.
///
/// An owner exists in this process only. On the store each outermost hold has a number of its own.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::connect("memory://").await?;
/// let owner = client.owner();
/// let lock = client.lock("orders").with_owner(&owner);
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?; // the same owner: does not wait
/// assert_eq!(inner.hold_count(), 2);
/// assert!(client.lock("orders").try_lock().await?.is_busy()); // another owner
/// # drop((outer, inner));
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Owner {
    engine: Weak<Engine>,
    number: u64,
    holds: Arc<Mutex<HashMap<LockName, Arc<OwnerHolds>>>>,
}

/// The holds of an owner on one lock.
///
/// Here it is decided whether an acquire of the owner reenters a hold or makes a new one.
#[derive(Debug, Default)]
pub(crate) struct OwnerHolds {
    /// Locked while this owner acquires, so that its own tasks do not wait for each other in the queue.
    acquiring: tokio::sync::Mutex<()>,
    /// The exclusive hold, and the read hold.
    holds: Mutex<[Weak<Hold>; 2]>,
    detached: Mutex<Vec<Grant>>,
}

impl OwnerHolds {
    /// Returns the hold of this kind, if it has guards.
    pub(crate) fn hold(&self, kind: Kind) -> Option<Arc<Hold>> {
        let hold = self.holds.lock()[usize::from(kind == Kind::Read)].upgrade();
        hold.filter(|hold| hold.guards() > 0)
    }

    /// Returns the hold of this kind, if it has guards and is valid.
    fn valid_hold(&self, kind: Kind) -> Option<Arc<Hold>> {
        self.hold(kind).filter(|hold| hold.is_valid())
    }

    /// Records the hold of a grant as one of the owner.
    pub(crate) fn bind(&self, grant: Grant) -> Grant {
        let is_read = grant.hold.name.kind() == Kind::Read;
        self.holds.lock()[usize::from(is_read)] = Arc::downgrade(&grant.hold);
        grant.hold.inner().is_bound_to_owner = true;
        grant
    }

    /// Keeps a grant whose guard was detached.
    pub(crate) fn detach(&self, grant: Grant) {
        self.detached.lock().push(grant);
    }

    /// Returns the grant of this kind that was detached last.
    pub(crate) fn take_detached(&self, kind: Kind) -> Option<Grant> {
        let mut detached = self.detached.lock();
        let last = detached.iter().rposition(|grant| grant.hold.name.kind() == kind)?;
        Some(detached.remove(last))
    }

    fn is_in_use(&self) -> bool {
        self.hold(Kind::Lock).is_some() || self.hold(Kind::Read).is_some() || !self.detached.lock().is_empty()
    }

    /// Reenters the hold of the owner, or makes a new one. Returns `None` if the lock is busy.
    ///
    /// The caller observes this as one acquire, whatever it takes.
    pub(crate) async fn acquire(
        &self,
        engine: &Arc<Engine>,
        mut request: AcquireRequest,
    ) -> Result<Option<Grant>, Error> {
        let mut acquiring = request.wait_limit.lock(&self.acquiring).await;
        if acquiring.is_none() {
            acquiring = engine::try_owner_turn(engine, &request, &self.acquiring).await?;
        }
        let Some(_acquiring) = acquiring else { return Ok(None) };
        let kind = request.name.kind();
        let AcquireRequest { lease_mode, wait_limit, replicas, .. } = request;
        if kind == Kind::Plain && self.valid_hold(kind).is_some() {
            return deadlock_or_busy(wait_limit, not_reentrant(&request.name));
        }
        match self.reenter(engine, kind, ReenterRequest { lease_mode, wait_limit, replicas }).await {
            // It holds nothing, or another task of this owner has just released it.
            None | Some(Err(Error::NotHeld { .. })) => {}
            Some(outcome) => return outcome.map(Some),
        }
        match kind {
            Kind::Read => request.under = self.valid_hold(Kind::Write),
            Kind::Write if self.valid_hold(Kind::Read).is_some() => {
                return deadlock_or_busy(wait_limit, holds_read_lock(&request.name));
            }
            _ => {}
        }
        let is_under_write = request.under.is_some();
        let grant = match engine::acquire_loop(engine, request.clone(), clock::now()).await {
            // Another task of this owner released the write lock meanwhile: read as any other owner.
            Err(Error::Lost { .. }) if is_under_write => {
                let request = AcquireRequest { under: None, ..request };
                engine::acquire_loop(engine, request, clock::now()).await
            }
            outcome => outcome,
        }?;
        Ok(grant.map(|grant| self.bind(grant)))
    }

    /// Acquires the read lock under a write hold of the owner. It has one read hold, which is reentered.
    pub(crate) async fn read_under(
        &self,
        engine: &Arc<Engine>,
        write: &Arc<Hold>,
        lease_mode: LeaseMode,
        replicas: u32,
    ) -> Result<Grant, Error> {
        let _acquiring = tokio::select! {
            biased;
            acquiring = self.acquiring.lock() => acquiring,
            reason = write.until_lost() => return Err(Error::Lost { name: write.name.to_string(), reason }),
        };
        let request = ReenterRequest { lease_mode, wait_limit: WaitLimit::Endless, replicas };
        match self.reenter(engine, Kind::Read, request).await {
            // There is no read hold, or it has ended meanwhile: make a new one.
            None | Some(Err(Error::NotHeld { .. } | Error::Lost { .. })) => {}
            Some(outcome) => return outcome,
        }
        engine::read_under(engine, write, lease_mode, replicas).await.map(|grant| self.bind(grant))
    }

    /// Reenters the hold of this kind. `None` if there is no valid one.
    async fn reenter(
        &self,
        engine: &Arc<Engine>,
        kind: Kind,
        request: ReenterRequest,
    ) -> Option<Result<Grant, Error>> {
        let hold = self.valid_hold(kind)?;
        Some(engine::reenter(engine, &hold, request).await.map(|grant| self.bind(grant)))
    }
}

/// Returns the error to a caller that waits, and busy to one that does not.
fn deadlock_or_busy(wait_limit: WaitLimit, error: Error) -> Result<Option<Grant>, Error> {
    if wait_limit == WaitLimit::None { Ok(None) } else { Err(error) }
}

pub(crate) fn holds_read_lock(name: &LockName) -> Error {
    let reason =
        "the owner holds the read lock, which excludes writers; release it before acquiring the write lock";
    Error::WouldDeadlock { name: name.to_string(), reason: reason.to_owned() }
}

fn not_reentrant(name: &LockName) -> Error {
    let reason = "the owner holds it already, and a plain lock is not reentrant".to_owned();
    Error::WouldDeadlock { name: name.to_string(), reason }
}

impl Owner {
    pub(crate) fn new(engine: &Arc<Engine>, number: u64) -> Self {
        Self { engine: Arc::downgrade(engine), number, holds: Arc::default() }
    }

    /// The number among the owners of its client. `None` after the first four billion.
    pub(crate) fn number(&self) -> Option<NonZeroU32> {
        u32::try_from(self.number).ok().and_then(NonZeroU32::new)
    }

    /// Fails if this is an owner of another client.
    pub(crate) fn check_client(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        if std::ptr::eq(self.engine.as_ptr(), Arc::as_ptr(engine)) {
            return Ok(());
        }
        let reason = format!("{self} belongs to another client; make it with `owner()` of this client");
        Err(Error::bad_argument("owner", reason))
    }

    /// The client of this owner still exists.
    pub(crate) fn has_client(&self) -> bool {
        self.engine.strong_count() > 0
    }

    /// Returns the holds on one lock. Removes the entries of locks that are no longer held.
    pub(crate) fn holds(&self, name: &LockName) -> Arc<OwnerHolds> {
        let mut all = self.holds.lock();
        if let Some(holds) = all.get(name) {
            return Arc::clone(holds);
        }
        all.retain(|_, holds| Arc::strong_count(holds) > 1 || holds.is_in_use());
        Arc::clone(all.entry(name.clone()).or_default())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner {}", self.number)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.number)
    }
}
