use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use turnlock::{Error, Lock, MultiLock, RedLock, TryAcquire};

use super::gate::Passed;
use super::held::Held;
use super::request::Request;
use super::{Workload, ms};
use crate::history::{LockKind, Mode, Wait};

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

impl Workload {
    /// Draws a way to acquire one of the locks.
    pub(super) fn request(&self, rng: &mut Rng) -> Request {
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

    /// Draws a request for another lock of a task that holds the locks of `held`.
    ///
    /// A wait without a limit is in the order of the locks, or in the order that the gate allows.
    pub(super) fn nested_request(&self, held: Request, rng: &mut Rng) -> Option<(Request, Option<Passed>)> {
        let other = Request { also: None, ..self.request(rng) };
        let mut held = [Some(held.lock), held.also].into_iter().flatten();
        let kind = self.locks[other.lock].kind;
        if matches!(kind, LockKind::Latch | LockKind::RedLock) || held.clone().any(|lock| lock == other.lock)
        {
            return None;
        }
        if other.wait != Wait::Endless {
            return Some((other, None));
        }
        let is_higher = held.clone().all(|lock| lock < other.lock);
        let is_lower = held.all(|lock| lock > other.lock);
        match &self.gate {
            Some(gate) if is_higher || is_lower => Some((other, Some(gate.pass(self.process, is_lower)?))),
            None if is_higher => Some((other, None)),
            _ => None,
        }
    }

    /// The handle of a lock that is not a semaphore.
    pub(super) fn lock(&self, lock: usize, mode: Mode) -> Lock {
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

    /// Acquires as the request says.
    pub(super) fn acquiring(&self, request: Request) -> BoxFuture<'static, Result<TryAcquire<Held>, Error>> {
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
}
