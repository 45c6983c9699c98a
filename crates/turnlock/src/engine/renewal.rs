//! The watchdog's task: renews and checks the holds of the client in batches, and shortens leases.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use turnlock_core::model::{Renewed, Reply, Step};
use turnlock_core::{Lease, Moment};

use super::engine::Engine;
use super::state::{Hold, LONGEST_SLEEP, RenewalUnderWay};
use crate::clock;
use turnlock_store::{StepOptions, StepReply};

/// The number of holds per renewal request. Permits count one by one.
const BATCH: usize = 256;

/// The lease for which a hold is renewed, or `None` for a check only; and the hold.
type DueRenewal = (Option<Lease>, RenewalUnderWay);

/// The watchdog's task. Ends with the engine.
pub(super) async fn run(engine: Weak<Engine>) {
    let mut batches = FuturesUnordered::new();
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let now = clock::now();
        let mut due = Vec::new();
        for hold in engine.watchdog.take_due(now) {
            if let Some(reason) = hold.lost() {
                engine.mark_lost(&hold, reason);
                continue;
            }
            // Before `plan`, so that the hold is not handed over with a plan that skips the next renewal.
            let renewal = RenewalUnderWay::begin(Arc::clone(&hold));
            // Until the reply, only the end of the lease is to be watched.
            engine.watchdog.plan(&hold, Moment::NEVER);
            if let Some(under_way) = renewal.filter(|_| hold.name.kind().is_leased()) {
                due.push((lease_of(&engine, &hold, now), under_way));
            }
        }
        // Requests of limited size, each with one batch key.
        let key = |renewal: &DueRenewal| batch_key(&engine, renewal);
        due.sort_by_cached_key(key);
        let mut due = due.into_iter();
        while let Some(first) = due.as_slice().first().map(key) {
            let mut size = 0;
            let fits = |renewal: &&DueRenewal| {
                let (_, RenewalUnderWay(hold)) = renewal;
                let permits = hold.permits as usize;
                size += permits;
                key(renewal) == first && size <= BATCH.max(permits)
            };
            let count = due.as_slice().iter().take_while(fits).count().max(1);
            batches.push(renew(Arc::clone(&engine), first, due.by_ref().take(count).collect()));
        }
        let next = engine.watchdog.next_due();
        let sleep_for = next.since(clock::now()).min(LONGEST_SLEEP);
        tokio::select! {
            () = tokio::time::sleep(sleep_for) => {}
            () = engine.watchdog.wake.notified() => {}
            Some(()) = batches.next(), if !batches.is_empty() => {}
        }
    }
}

/// What the renewals of one request share: the renewal command, the number of replicas, and the response
/// time-out.
///
/// A request has one time-out, so a short lease must not share a request with longer ones.
type BatchKey = (u8, u32, Duration);

fn batch_key(engine: &Engine, (lease, RenewalUnderWay(hold)): &DueRenewal) -> BatchKey {
    // A check changes nothing, so there is nothing to acknowledge.
    let replicas = if lease.is_some() { hold.replicas_wanted() } else { 0 };
    let limit = engine.settings.response_limit(engine.watchdog.pace(hold));
    let limit = limit.unwrap_or_else(|_| engine.settings.usual_limit());
    (hold.name.kind().renewal_group() as u8, replicas, limit)
}

/// Returns the lease for which a hold is renewed.
///
/// That is what the guards need, if one of them is renewed or the lease may have been shortened; or the rest
/// of a lease that other clients may have shortened; or `None`, for a check only.
fn lease_of(engine: &Engine, hold: &Hold, now: Moment) -> Option<Lease> {
    let rest = || {
        let rest = Lease::new(hold.valid_until().since(now)).ok();
        rest.filter(|_| hold.name.kind().lease_may_be_shortened())
    };
    let renews = !engine.has_stopped_renewing();
    let needed_lease = {
        let inner = hold.inner();
        let leases = &inner.leases;
        let is_renewed = renews && leases.renewal.is_some();
        let sends_lease = is_renewed
            || leases.shortened_to.is_some()
            || leases.shortening_failed
            || hold.name.kind().lease_may_be_shortened();
        leases.needed(now, renews).filter(|_| sends_lease)
    };
    needed_lease.or_else(rest)
}

/// Renews or checks a batch of holds.
async fn renew(engine: Arc<Engine>, (_, wanted, limit): BatchKey, due: Vec<DueRenewal>) {
    let steps = due.iter().map(|(lease, RenewalUnderWay(hold))| Step::Renew(hold.claim(1), *lease)).collect();
    let started = clock::now();
    let (outcomes, sent, reached) =
        match engine.store.call_batch(steps, StepOptions::of_engine(limit, wanted)).await {
            Ok(StepReply { value, sent, replicas, .. }) => {
                if replicas < wanted && value.contains(&None) {
                    let holds = due.len();
                    tracing::warn!(replicas, wanted, holds, "renewal reached too few replicas, will retry");
                }
                if let Some((_, RenewalUnderWay(hold))) = due.first() {
                    engine.client_record.write_if_due(&hold.name, sent.at, &engine.runtime);
                }
                (value, sent.at, replicas)
            }
            Err(failure) => {
                let holds = due.len();
                tracing::warn!(%failure, holds, "renewal failed, will retry");
                (Vec::new(), started, 0)
            }
        };
    let outcomes = outcomes.into_iter().chain(std::iter::repeat(None));
    for ((lease, RenewalUnderWay(hold)), outcome) in due.iter().zip(outcomes) {
        match outcome {
            Some(Reply::Renewed(renewed @ (Renewed::Renewed | Renewed::Longer))) => {
                hold.confirm_held(sent);
                if let Some(lease) = *lease {
                    tracing::trace!(name = %hold.name, owner = %hold.owner, "renewed");
                    hold.confirm_for(lease, sent);
                    // With several servers, `reached` is the lowest number of any server. Each renewed hold
                    // reached `wanted`.
                    hold.note_replicas(wanted, reached.max(wanted));
                }
                engine.watchdog.plan_after(hold, sent);
                if renewed == Renewed::Longer {
                    engine.shorten_in_background(hold);
                }
            }
            Some(Reply::Renewed(Renewed::NotHeld)) => {
                // If the process was paused past the end of its lease, that is the reason.
                let reason = hold.lost().unwrap_or_else(|| engine.loss_reason(hold));
                engine.mark_lost(hold, reason);
            }
            // Unknown is not lost: retried until the end of the lease.
            _ => {
                if let Some(lease) = *lease {
                    hold.extend_may_last(lease);
                }
                engine.watchdog.plan_retry(hold);
            }
        }
    }
}

impl Engine {
    /// Shortens the lease on the store to what the guards need, in the background.
    ///
    /// A lease is too long when a guard with a longer lease was released, or the clock of the server was set
    /// back. The request is sent once: if it fails, the next renewal finds the lease still too long. Renewals
    /// never shorten a lease themselves, because a late one could take time from a newer guard. This is a
    /// step of the hold, so no reentry is under way meanwhile, and the validity of the hold is limited for as
    /// long as the request may take effect.
    pub(super) fn shorten_in_background(self: &Arc<Self>, hold: &Arc<Hold>) {
        let (engine, hold) = (Arc::clone(self), Arc::clone(hold));
        self.background.spawn(async move { engine.shorten(&hold).await });
    }

    /// Returns `true` if the hold is valid for longer than its guards need.
    pub(super) fn is_too_long(hold: &Hold) -> bool {
        let now = clock::now();
        let needed_lease = hold.inner().leases.needed(now, true);
        needed_lease.is_some_and(|needed_lease| hold.valid_until() > needed_lease.local_end(now))
    }

    async fn shorten(self: Arc<Self>, hold: &Arc<Hold>) {
        let _step = hold.step_lock.lock().await;
        let need = loop {
            let now = clock::now();
            let need = {
                let inner = hold.inner();
                let is_active = inner.state.is_held() && !self.has_stopped_renewing();
                inner.leases.needed(now, true).filter(|_| is_active)
            };
            let Some(need) = need else { return };
            if hold.begin_shortening(need, now) {
                break need;
            }
            RenewalUnderWay::wait_for_none(hold).await;
        };
        let limit = self.settings.response_limit(need).unwrap_or_else(|_| self.settings.usual_limit());
        let step_options = StepOptions::of_engine(limit, hold.replicas_wanted());
        let outcome = self.store.set_lease(hold.claim(1), need, step_options).await;
        match &outcome {
            Ok(StepReply { value: Renewed::NotHeld, .. }) => self.mark_lost(hold, self.loss_reason(hold)),
            Ok(_) => {
                tracing::debug!(name = %hold.name, owner = %hold.owner, lease = ?need, "lease shortened");
            }
            Err(failure) => {
                tracing::warn!(name = %hold.name, %failure, "shortening the lease failed, will retry");
                let mut inner = hold.inner();
                inner.state.doubt = failure.merge_doubt(inner.state.doubt, need.as_duration());
            }
        }
        hold.inner().leases.end_shortening(outcome.err().as_ref());
        self.watchdog.watch(hold);
    }
}
