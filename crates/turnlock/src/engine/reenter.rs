use std::sync::Arc;

use turnlock_core::model::Acquired;
use turnlock_core::{Backoff, Doubt, Moment};

use super::errand::Errand;
use super::hold::{Hold, Standing, Term};
use super::{Engine, Shared};
use crate::backend::Answer;
use crate::clock;
use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// Deepens a hold by one. Does not queue behind those who wait for the lock.
///
/// Cancel-safe: a request that is under way is finished by the engine, and the new guard dropped.
pub(crate) async fn reenter(engine: &Arc<Engine>, hold: &Arc<Hold>, term: Term) -> Result<Guard, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    shared.settings.patience(term.lease())?;
    Errand::new(&shared.errands, deepen(Arc::clone(engine), Arc::clone(hold), term)).await
}

async fn deepen(engine: Arc<Engine>, hold: Arc<Hold>, term: Term) -> Result<Guard, Error> {
    let shared = &engine.shared;
    let limit = shared.settings.patience(term.lease())?;
    let turn = hold.lane.lock().await;
    let target = {
        let state = hold.state();
        if state.guards == 0 {
            return Err(Error::NotHeld { name: hold.name.to_string(), owner: hold.owner.to_string() });
        }
        state.guards + 1
    };
    let end = clock::now() + shared.settings.retry_for;
    let mut backoff = Backoff::default();
    loop {
        if let Some(reason) = hold.lost() {
            shared.lose(&hold, reason);
            return Err(Error::Lost { name: hold.name.to_string(), reason });
        }
        let sent = clock::now();
        match shared.backend.acquire(&hold.name, &hold.owner, target, term.lease(), limit).await {
            Ok(Answer { value: Acquired::Granted, .. }) => {
                hold.confirmed_for(term.lease(), sent);
                return admit(&engine, &hold, target, term);
            }
            Ok(_) => {
                shared.lose(&hold, LostReason::Taken);
                return Err(Error::Lost { name: hold.name.to_string(), reason: LostReason::Taken });
            }
            Err(failure) => {
                if let Some(connection) = failure.in_doubt {
                    let doubt = Doubt::new(connection, sent, term.lease().as_duration());
                    let mut state = hold.state();
                    state.doubt = Some(state.doubt.map_or(doubt, |earlier| earlier.and(doubt)));
                    // The count on the store is the old one or the new one: the next release says it again.
                    state.confirmed = target;
                }
                if !failure.is_worth_a_retry() || clock::now() >= end {
                    drop(turn);
                    shared.settle_count(&hold);
                    return Err(failure.into_error(|| format!("reentry of lock {:?}", hold.name.as_str())));
                }
            }
        }
        tokio::time::sleep(backoff.pause(fastrand::f64())).await;
    }
}

/// The store has counted one more: makes the guard for it, unless the others have gone meanwhile.
fn admit(engine: &Arc<Engine>, hold: &Arc<Hold>, target: u32, term: Term) -> Result<Guard, Error> {
    let mut state = hold.state();
    state.confirmed = target;
    let name = || hold.name.to_string();
    match state.standing {
        Standing::Held => {
            state.add_guard(term);
            drop(state);
            engine.shared.watchdog.watch(hold);
            Ok(Guard::new(Arc::clone(engine), Arc::clone(hold), term))
        }
        Standing::Lost(reason) => Err(Error::Lost { name: name(), reason }),
        // Their release waits for this step to end, and then ends the hold whatever its count is.
        Standing::Ended => Err(Error::NotHeld { name: name(), owner: hold.owner.to_string() }),
    }
}

impl Shared {
    /// Brings the count on the store to the number of guards, in the background.
    fn settle_count(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (shared, hold) = (Arc::clone(self), Arc::clone(hold));
        self.errands.clone().adopt(async move {
            // Its failure was told already: to the one who wanted to reenter.
            let _ = shared.bring_down(&hold, Moment::NEVER).await;
        });
    }
}
