use std::sync::Arc;

use turnlock_core::Kind;
use turnlock_core::model::Acquired;

use super::Engine;
use super::acquire::Patience;
use super::errand::Errand;
use super::hold::{Hold, Standing, Term};
use super::troubles::Troubles;
use crate::backend::{Answer, Care};
use crate::clock;
use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// How a hold is to be deepened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deepening {
    pub(crate) term: Term,
    /// For a store that does not answer.
    pub(crate) patience: Patience,
    /// How many replicas must have acknowledged it; not fewer than the hold itself wants.
    pub(crate) replicas: u32,
}

/// Deepens a hold by one. Does not queue behind those who wait for the lock.
///
/// Cancel-safe: a request that is under way is finished by the engine, and the new guard dropped.
pub(crate) async fn reenter(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    deepening: Deepening,
) -> Result<Guard, Error> {
    let shared = &engine.shared;
    shared.check_open()?;
    shared.settings.patience(deepening.term.lease())?;
    if hold.name.kind() == Kind::Plain {
        let reason =
            format!("plain lock {:?} has no hold count: it cannot be taken twice", hold.name.as_str());
        return Err(Error::Unsupported(reason));
    }
    Errand::new(&shared.errands, deepen(Arc::clone(engine), Arc::clone(hold), deepening)).await
}

async fn deepen(engine: Arc<Engine>, hold: Arc<Hold>, deepening: Deepening) -> Result<Guard, Error> {
    let shared = &engine.shared;
    let Deepening { term, patience, replicas } = deepening;
    let limit = shared.settings.patience(term.lease())?;
    let name = || hold.name.to_string();
    let mut troubles = Troubles::new(shared.settings.retry_for, patience, limit);
    loop {
        // Given up between two tries, so that a release does not have to wait for a store that is away.
        let turn = hold.lane.lock().await;
        if let Some(reason) = hold.lost() {
            shared.lose(&hold, reason);
            return Err(Error::Lost { name: name(), reason });
        }
        let target = hold.state().guards + 1;
        if target == 1 {
            return Err(Error::NotHeld { name: name(), owner: hold.owner.to_string() });
        }
        let wish = shared.wish(&hold.name, term.lease(), false);
        let replicas = replicas.max(hold.replicas_wanted());
        let care = Care::of_engine(limit, replicas);
        let asked = clock::now();
        let failure = match shared.backend.acquire(hold.claim(target), wish, care).await {
            Ok(Answer { value: Acquired::Busy { .. } | Acquired::Gone, .. }) => {
                let reason = shared.reason_of_absence(&hold);
                shared.lose(&hold, reason);
                return Err(Error::Lost { name: name(), reason });
            }
            Ok(Answer { value, sent, replicas: reached, .. }) => {
                let token = match value {
                    Acquired::GrantedWith { token } => Some(token),
                    _ => None,
                };
                token.inspect(|token| shared.tokens.saw(&hold.name, *token));
                hold.confirmed_for(term.lease(), sent.at);
                hold.was_acknowledged_by(replicas, reached);
                return admit(&engine, &hold, target, term, token);
            }
            Err(failure) => failure,
        };
        if failure.in_doubt.is_some() {
            hold.may_last_for(term.lease());
            let mut state = hold.state();
            state.doubt = failure.adds_doubt_to(state.doubt, term.lease().as_duration());
            // The count on the store is the old one or the new one: the next release says it again.
            state.confirmed = target;
        }
        drop(turn);
        let stands = failure.stands;
        match troubles.after(failure, asked, || format!("reentry of lock {:?}", hold.name.as_str())) {
            Ok(pause) => tokio::time::sleep(pause).await,
            Err(error) => {
                // Where the store is there to be asked, who is told of the failure finds the old count.
                if !stands || shared.bring_down(&hold, clock::now() + limit).await.is_err() {
                    shared.bring_down_later(&hold);
                }
                return Err(error);
            }
        }
    }
}

/// The store has counted one more: makes the guard for it, unless the others have gone meanwhile.
fn admit(
    engine: &Arc<Engine>,
    hold: &Arc<Hold>,
    target: u32,
    term: Term,
    token: Option<u64>,
) -> Result<Guard, Error> {
    let lost = hold.lost();
    let mut state = hold.state();
    state.confirmed = target;
    let name = || hold.name.to_string();
    match state.standing {
        Standing::Held if lost.is_none() => {
            state.add_guard(term);
            drop(state);
            engine.shared.watchdog.watch(hold);
            Ok(Guard::new(Arc::clone(engine), Arc::clone(hold), term, token))
        }
        Standing::Held => Err(Error::Lost { name: name(), reason: lost.unwrap_or(LostReason::Expired) }),
        Standing::Lost(reason) => Err(Error::Lost { name: name(), reason }),
        // Their release waits for this step to end, and then ends the hold whatever its count is.
        Standing::Ended => Err(Error::NotHeld { name: name(), owner: hold.owner.to_string() }),
    }
}
