//! Taking away what others hold.

use turnlock_core::model::{Claim, Released};
use turnlock_core::{Kind, LockName, OwnerId};

use super::Shared;
use super::question::Resend;
use crate::error::Error;

impl Shared {
    /// Ends what is held of a name, whoever holds it. Whether somebody did.
    pub(crate) async fn force_unlock(&self, name: &LockName) -> Result<bool, Error> {
        check_kind(name, None)?;
        // Not sent again when it may have been done: by then, another may hold the lock.
        let was_held =
            self.ask(name, Resend::IfNotDone, |limit| self.backend.force_unlock(name, limit)).await?;
        self.look_at_holds(name, |_| true);
        Ok(was_held)
    }

    /// Ends what one owner holds of a name, or one permit by its id, if it is still held. Whether it was.
    pub(crate) async fn force_unlock_of(&self, name: &LockName, owner: &OwnerId) -> Result<bool, Error> {
        check_kind(name, Some(owner))?;
        if name.kind() == Kind::Fair {
            // One who only waits would be taken from the queue.
            let holders = self.inspect(name).await?.holders;
            if !holders.iter().any(|holder| holder.owner == *owner) {
                return Ok(false);
            }
        }
        // Not sent again, as above: an owner of Java's is a thread, which may have taken the lock once more.
        let released = self
            .ask(name, Resend::IfNotDone, |limit| self.backend.release(Claim::new(name, owner, 0), limit));
        let was_held = released.await? == Released::Freed;
        self.look_at_holds(name, |held| held == owner);
        Ok(was_held)
    }

    /// Lets holds of our own hear of it.
    fn look_at_holds(&self, name: &LockName, is_meant: impl Fn(&OwnerId) -> bool) {
        self.rooms.for_holds(name, |hold| {
            if is_meant(&hold.owner) || hold.permit_ids().any(|id| is_meant(&id)) {
                self.watchdog.look_now(hold);
            }
        });
    }
}

fn check_kind(name: &LockName, owner: Option<&OwnerId>) -> Result<(), Error> {
    let advice = match (name.kind(), owner) {
        (Kind::Semaphore, _) => "its permits have no owners; Semaphore::add_permits gives back what was lost",
        (Kind::Latch, _) => "nobody holds it; Latch::delete opens it",
        (Kind::Permits, None) => "it has many holders; give the id of one permit, which `inspect` shows",
        _ => return Ok(()),
    };
    Err(Error::Unsupported(format!(
        "to unlock the {} {:?} by force: {advice}",
        name.kind().noun(),
        name.as_str()
    )))
}
