use std::fmt;

use super::waiter::Waiter;

/// Waiters of which each waits for a lock that the next one holds.
///
/// `Display` names them all.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// The waiters, in a cycle: each waits for a lock that the next one holds, the last one for one of the first.
    pub waiters: Vec<Waiter>,
    /// It is certain that they wait for each other, and that none of them stops by a limit that turnlock knows.
    ///
    /// Otherwise it is possible: a wait has a limit or a lease is not renewed, it is not known which task of a process
    /// holds a lock, other permits of a semaphore may become free, or they may have waited one after the other.
    ///
    /// A limit outside of the acquire, as `tokio::time::timeout` around [`Lock::lock`](crate::Lock::lock), is not known:
    /// such a deadlock ends with the time-out. Use [`Lock::try_lock_for`](crate::Lock::try_lock_for).
    ///
    /// A task that runs several futures at the same time (`join!`, `select!`) is known as such once another of them waits
    /// for a lock, or is granted one. Before, and if a task has moved a guard to another one, it is taken for a task that
    /// only waits: it cannot be told apart.
    pub is_certain: bool,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, waiter) in self.waiters.iter().enumerate() {
            let next = &self.waiters[(number + 1) % self.waiters.len()];
            let held = next.holds.iter().find(|held| held.key == waiter.key);
            f.write_str(if number > 0 { "; " } else { "" })?;
            f.write_str(&waiter.process())?;
            if let Some(task) = &waiter.task {
                write!(f, " {task}")?;
            }
            write!(f, " waits for {:?}", waiter.name)?;
            if let Some(at) = &waiter.call_site {
                write!(f, " at {at}")?;
            }
            write!(
                f,
                ", held by {}",
                held.map_or_else(|| next.owner.to_string(), |held| held.owner.to_string())
            )?;
        }
        Ok(())
    }
}
