//! The watchdog's task: renews and checks the holds of the client in batches, and shortens leases.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use turnlock_core::model::{Renewed, Reply, Step};
use turnlock_core::planted::Bug;
use turnlock_core::renewal::RenewalSchedule;
use turnlock_core::{Lease, Moment};

use super::engine::Engine;
use super::state::{Hold, LONGEST_SLEEP, RenewalUnderWay, StepTurn, retry_after};
use crate::clock;
use crate::metrics::RenewalOutcome;
use turnlock_store::{Failure, StepOptions, StepReply};

/// The number of holds per renewal request. Permits count one by one.
const BATCH: usize = 256;

/// The lease for which a hold is renewed, or `None` for a check only; and the hold.
type DueRenewal = (Option<Lease>, Arc<Hold>);

/// The number of renewal requests under way, not counting slow ones.
///
/// Enough for a network with a long round trip. More would delay the other requests of the client behind them, and hold
/// the texts of all due renewals in memory at once.
const MAX_BATCHES: usize = 8;

/// How long a renewal request counts as under way.
///
/// One that takes longer waits for a server that hangs. It must not hold up the renewals on other servers.
const COUNTED_FOR: Duration = Duration::from_millis(200);

/// The watchdog's task. Ends with the engine.
pub(super) async fn run(engine: Weak<Engine>) {
    // The batches that wait for others, in the order in which their first leases end.
    let mut queue = RenewalSchedule::default();
    let mut batches = FuturesUnordered::new();
    // Each batch that counts has a clone.
    let counted = Arc::new(());
    loop {
        let Some(engine) = engine.upgrade() else { return };
        take_due(&engine, &mut queue);
        let room = (MAX_BATCHES + 1).saturating_sub(Arc::strong_count(&counted));
        for batch in queue.take_due(Moment::NEVER, room) {
            batches.push(renew_counted(Arc::clone(&engine), batch, Arc::clone(&counted)));
        }
        let (period, limit) =
            (engine.settings.watchdog_timeout.renewal_period(), engine.settings.usual_limit());
        engine.outage_log.check(clock::now(), retry_after(period) + limit);
        engine.metrics.publish(clock::now(), period);
        let next = engine.watchdog.next_due();
        let sleep_for = next.since(clock::now()).min(LONGEST_SLEEP);
        tokio::select! {
            biased;
            Some(()) = batches.next(), if !batches.is_empty() => {}
            () = engine.watchdog.wake.notified() => {}
            () = tokio::time::sleep(sleep_for) => {}
        }
        // With very many holds to check, other tasks run in between.
        if sleep_for.is_zero() {
            tokio::task::yield_now().await;
        }
    }
}

/// Renews a batch, which counts as under way for a while.
async fn renew_counted(engine: Arc<Engine>, batch: Batch, counted: Arc<()>) {
    let mut renewing = pin!(renew(Arc::clone(&engine), batch));
    if tokio::time::timeout(COUNTED_FOR, &mut renewing).await.is_err() {
        drop(counted);
        engine.watchdog.wake.notify_one();
        renewing.await;
    }
}

/// Takes the holds that are due from the schedule, and queues them in batches.
fn take_due(engine: &Engine, queue: &mut RenewalSchedule<Batch>) {
    let now = clock::now();
    let mut due = Vec::new();
    for hold in engine.watchdog.take_due(now) {
        if let Some(reason) = hold.lost_by(now) {
            engine.mark_lost(&hold, reason);
            continue;
        }
        hold.metrics.note_age(hold.held_since());
        // Before the plan, so that the hold is not handed over with a plan that skips the next renewal.
        let is_queued = hold.name.kind().is_leased() && RenewalUnderWay::queue(&hold);
        // Until the reply, only the end of the lease is to be watched.
        engine.watchdog.plan_end(&hold, now);
        if is_queued {
            due.push((lease_of(engine, &hold, now), hold));
        }
    }
    // Requests of limited size, each with one batch key.
    let key = |renewal: &DueRenewal| batch_key(engine, renewal);
    due.sort_by_cached_key(key);
    let mut due = due.into_iter();
    while let Some(first) = due.as_slice().first().map(key) {
        let mut size = 0;
        let fits = |renewal: &&DueRenewal| {
            let permits = renewal.1.permits as usize;
            size += permits;
            key(renewal) == first && size <= BATCH.max(permits)
        };
        let count = due.as_slice().iter().take_while(fits).count().max(1);
        let batch: Vec<_> = due.by_ref().take(count).collect();
        let ends = batch.iter().map(|(_, hold)| hold.valid_until());
        let end = ends.min().unwrap_or(Moment::NEVER);
        queue.insert(end, (first, batch));
    }
}

/// Renewals that share a request.
type Batch = (BatchKey, Vec<DueRenewal>);

/// What the renewals of one request share: the renewal command, the number of replicas, and the response
/// time-out.
///
/// A request has one time-out, so a short lease must not share a request with longer ones.
type BatchKey = (u8, u32, Duration);

fn batch_key(engine: &Engine, (lease, hold): &DueRenewal) -> BatchKey {
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
async fn renew(engine: Arc<Engine>, ((_, wanted, limit), due): Batch) {
    let now = clock::now();
    // They may have waited since they were due: some have ended, and others need another lease.
    let due = due.into_iter().filter_map(|(lease, hold)| {
        let renewal = RenewalUnderWay::begin(hold, now)?;
        let hold = &renewal.0;
        let may_renew = lease.is_some() || hold.replicas_wanted() == wanted;
        Some((lease_of(&engine, hold, now).filter(|_| may_renew), renewal))
    });
    let due: Vec<_> = due.collect();
    if due.is_empty() {
        return;
    }
    engine.metrics.count_renewal_batch(due.len());
    let steps = due.iter().map(|(lease, RenewalUnderWay(hold))| Step::Renew(hold.claim(1), *lease)).collect();
    let note_failure = |failure: &Failure, holds: usize| {
        if !engine.outage_log.note_failure("renewal", failure, clock::now()) {
            tracing::warn!(%failure, holds, "renewal failed, will retry");
        }
    };
    let (outcomes, sent, reached) =
        match engine.store.call_batch(steps, StepOptions::of_engine(limit, wanted)).await {
            Ok(StepReply { value, sent, replicas, failure, .. }) => {
                let without_outcome = value.iter().filter(|outcome| outcome.is_none()).count();
                // In a cluster, one server may fail while others reply: that is no end of an outage.
                match &failure {
                    Some(failure) => note_failure(failure, without_outcome),
                    None => engine.outage_log.note_reply(),
                }
                if replicas < wanted && without_outcome > 0 {
                    let holds = due.len();
                    tracing::warn!(replicas, wanted, holds, "renewal reached too few replicas, will retry");
                }
                for (_, RenewalUnderWay(hold)) in &due {
                    engine.client_record.write_if_due(&hold.name, sent.at, &engine.runtime);
                }
                (value, sent.at, replicas)
            }
            Err(failure) => {
                note_failure(&failure, due.len());
                (Vec::new(), now, 0)
            }
        };
    let now = clock::now();
    let failed = Bug::FailedRenewalCounts.is_planted().then_some(Reply::Renewed(Renewed::Renewed));
    let sent = if Bug::RenewalFromReply.is_planted() { now } else { sent };
    let shifted = usize::from(Bug::BatchShifted.is_planted());
    let outcomes = outcomes.into_iter().skip(shifted).chain(std::iter::repeat(failed));
    for ((lease, RenewalUnderWay(hold)), outcome) in due.iter().zip(outcomes) {
        match outcome {
            Some(Reply::Renewed(renewed @ (Renewed::Renewed | Renewed::Longer))) => {
                hold.metrics.count_renewal(RenewalOutcome::Confirmed);
                hold.confirm_held(sent);
                if let Some(lease) = *lease {
                    tracing::trace!(name = %hold.name, owner = %hold.owner, "renewed");
                    hold.confirm_for(lease, sent);
                    // With several servers, `reached` is the lowest number of any server. Each renewed hold
                    // reached `wanted`.
                    hold.note_replicas(wanted, reached.max(wanted));
                }
                engine.watchdog.plan_after(hold, sent, now);
                if renewed == Renewed::Longer {
                    engine.shorten_in_background(hold);
                }
            }
            Some(Reply::Renewed(Renewed::NotHeld)) => {
                hold.metrics.count_renewal(RenewalOutcome::NotHeld);
                // If the process was paused past the end of its lease, that is the reason.
                let reason = hold.lost().unwrap_or_else(|| engine.loss_reason(hold));
                engine.mark_lost(hold, reason);
            }
            // Unknown is not lost: retried until the end of the lease.
            _ => {
                hold.metrics.count_renewal(RenewalOutcome::Failed);
                if let Some(lease) = *lease {
                    hold.extend_may_last(lease);
                }
                engine.watchdog.plan_retry(hold, now);
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
        let _step = StepTurn::of(hold).await;
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
                if !self.outage_log.note_failure("shortening of a lease", failure, clock::now()) {
                    tracing::warn!(name = %hold.name, %failure, "shortening the lease failed, will retry");
                }
                let mut inner = hold.inner();
                inner.state.doubt = failure.merge_doubt(inner.state.doubt, need.as_duration());
            }
        }
        hold.inner().leases.end_shortening(outcome.err().as_ref());
        self.watchdog.watch(hold, clock::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{BoxFuture, ready};
    use turnlock_core::model::Acquired;
    use turnlock_core::{ClientId, LockName};
    use turnlock_store::{ReplyFuture, Sent, Signals, Store};

    use super::*;
    use crate::Guard;
    use crate::client::Client;
    use crate::config::Settings;

    /// The start of the names whose renewals get no reply.
    const HUNG: &str = "hung";

    /// Grants everything, and takes a while for each renewal request.
    #[derive(Debug, Default)]
    struct SlowRenewals {
        under_way: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        /// The leases of the renewal requests, in their order.
        leases: Arc<parking_lot::Mutex<Vec<Option<Lease>>>>,
    }

    impl Store for SlowRenewals {
        fn call(&self, _: Step, _: StepOptions) -> ReplyFuture<Reply> {
            let sent = Sent { connection: 1, at: clock::now() };
            Box::pin(ready(Ok(StepReply::new(Reply::Acquired(Acquired::Granted), sent))))
        }

        fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
            let (under_way, most) = (Arc::clone(&self.under_way), Arc::clone(&self.most));
            if let Some(Step::Renew(_, lease)) = steps.first() {
                self.leases.lock().push(*lease);
            }
            if steps.iter().any(|step| step.name().as_str().starts_with(HUNG)) {
                return Box::pin(async move {
                    tokio::time::sleep(options.limit).await;
                    Err(Failure::unavailable("no reply"))
                });
            }
            Box::pin(async move {
                let sent = Sent { connection: 1, at: clock::now() };
                most.fetch_max(under_way.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
                tokio::time::sleep(Duration::from_millis(20)).await;
                under_way.fetch_sub(1, Ordering::AcqRel);
                let renewed = Some(Reply::Renewed(Renewed::Renewed));
                Ok(StepReply::new(vec![renewed; steps.len()], sent))
            })
        }

        fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
            Box::pin(ready(()))
        }

        fn unsubscribe(&self, _: &LockName) {}

        fn attach(&self, _: Weak<dyn Signals>) {}
    }

    /// Returns a client and its store, with a lease of 30 s.
    fn client() -> (Client, Arc<Engine>, Arc<SlowRenewals>) {
        clock::follow_if_paused();
        let store = Arc::new(SlowRenewals::default());
        let settings = Settings::default().check("a test", false).expect("good settings");
        let engine = Engine::start(Arc::clone(&store) as _, ClientId::from_random([7; 16]), settings);
        (Client::new(Arc::clone(&engine)), engine, store)
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_renewal_requests_is_under_way() {
        let (client, engine, store) = client();
        let guards = acquire_batches(&client, MAX_BATCHES * 3).await;
        for checks_all in [false, true] {
            store.most.store(0, Ordering::Release);
            store.leases.lock().clear();
            if checks_all {
                engine.connection_changed();
            }
            tokio::time::sleep(Duration::from_secs(if checks_all { 1 } else { 12 })).await;
            assert_eq!(store.most.load(Ordering::Acquire), MAX_BATCHES, "checks_all: {checks_all}");
            assert!(store.leases.lock().len() >= MAX_BATCHES * 3, "checks_all: {checks_all}");
        }
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert!(guards.iter().all(Guard::is_valid));
        std::mem::forget(guards);
    }

    /// Returns the guards of that many batches.
    async fn acquire_batches(client: &Client, batches: usize) -> Vec<Guard> {
        acquire_all(client, "lock", BATCH * batches).await
    }

    async fn acquire_all(client: &Client, prefix: &str, count: usize) -> Vec<Guard> {
        let mut guards = Vec::new();
        for number in 0..count {
            guards.push(client.lock(&format!("{prefix}{number}")).lock().await.expect("free"));
        }
        guards
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_without_a_reply_do_not_hold_up_others() {
        let (client, _engine, _store) = client();
        let hung = acquire_all(&client, HUNG, BATCH * MAX_BATCHES * 5).await;
        // Their leases end later, so their renewals come after the others.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let healthy = acquire_batches(&client, MAX_BATCHES).await;
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert!(hung.iter().all(Guard::is_valid), "retried until the local end");
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(!hung.iter().any(Guard::is_valid));
        assert!(healthy.iter().all(Guard::is_valid));
        std::mem::forget((hung, healthy));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_has_one_renewal_that_waits_to_be_sent() {
        let (client, engine, store) = client();
        let guards = acquire_batches(&client, MAX_BATCHES * 3).await;
        // A third of the renewals is under way each time. Only these are needed again.
        for _ in 0..3 {
            engine.connection_changed();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(store.leases.lock().len(), MAX_BATCHES * 4);
        std::mem::forget(guards);
    }

    #[tokio::test(start_paused = true)]
    async fn the_leases_that_end_first_are_renewed_first() {
        let (client, engine, store) = client();
        let mut guards = acquire_batches(&client, MAX_BATCHES * 2).await;
        engine.connection_changed();
        // Half of the batches are under way, and the others wait.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(store.leases.lock().len(), MAX_BATCHES);
        let short = Lease::new(Duration::from_secs(3)).expect("a good lease");
        let lock = client.read_write_lock("short").reader().with_lease(short.as_duration());
        let guard = lock.lock().await.expect("free");
        engine.watchdog.plan_now(guard.hold());
        guards.push(guard);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leases = store.leases.lock().clone();
        let position = leases.iter().position(|lease| lease.is_some_and(|lease| lease <= short));
        assert_eq!((position, leases.len()), (Some(MAX_BATCHES), MAX_BATCHES * 2 + 1));
        std::mem::forget(guards);
    }
}
