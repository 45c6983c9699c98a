//! Forced unlock: ends holds of any owner.

use turnlock_core::model::{Claim, Released};
use turnlock_core::{Kind, LockName, OwnerId};

use super::Shared;
use super::query::Resend;
use crate::error::Error;

impl Shared {
    /// Ends all holds on `name`. Returns `true` if there was one.
    pub(crate) async fn force_unlock(&self, name: &LockName) -> Result<bool, Error> {
        check_kind(name, None)?;
        // Not resent if it may have been executed: by then another owner may hold the lock.
        let was_held =
            self.query(name, Resend::IfNotExecuted, |limit| self.backend.force_unlock(name, limit)).await?;
        self.check_holds(name, |_| true);
        Ok(was_held)
    }

    /// Ends the hold of `owner` on `name`, or the permit with that id. Returns `true` if it was held.
    pub(crate) async fn force_unlock_of(&self, name: &LockName, owner: &OwnerId) -> Result<bool, Error> {
        check_kind(name, Some(owner))?;
        if name.kind() == Kind::Fair {
            // The release of an owner that only waits would remove it from the queue.
            let holders = self.inspect(name).await?.holders;
            if !holders.iter().any(|holder| holder.owner == *owner) {
                return Ok(false);
            }
        }
        // Not resent, as above: an owner of Redisson is a thread, which may have acquired the lock again.
        let released = self.query(name, Resend::IfNotExecuted, |limit| {
            self.backend.release(Claim::new(name, owner, 0), limit)
        });
        let was_held = released.await? == Released::Freed;
        self.check_holds(name, |held| held == owner);
        Ok(was_held)
    }

    /// Makes the watchdog check the local holds that are affected.
    fn check_holds(&self, name: &LockName, is_affected: impl Fn(&OwnerId) -> bool) {
        self.wait_queues.for_holds(name, |hold| {
            if is_affected(&hold.owner) || hold.permit_ids().any(|id| is_affected(&id)) {
                self.watchdog.check_now(hold);
            }
        });
    }
}

fn check_kind(name: &LockName, owner: Option<&OwnerId>) -> Result<(), Error> {
    let advice = match (name.kind(), owner) {
        (Kind::Semaphore, _) => {
            "its permits have no owners; use Semaphore::add_permits to replace lost permits"
        }
        (Kind::Latch, _) => "it has no holder; use Latch::delete to open it",
        (Kind::Permits, None) => "it has several holders; pass the id of one permit, as shown by `inspect`",
        _ => return Ok(()),
    };
    Err(Error::Unsupported(format!("forced unlock of {} {:?}: {advice}", name.kind().label(), name.as_str())))
}
