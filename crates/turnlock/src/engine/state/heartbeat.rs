use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use turnlock_core::model::{QueuePosition, Reply, Step};
use turnlock_core::name::NameMap;
use turnlock_core::{ClientId, Lease, LockName, Moment, OwnerId};

use super::fair_waiter::{FairWaiter, IgnoredOutcome, PassedOn, UNRESPONSIVE_AFTER};
use super::lock_queue::Wakeup;
use super::outage_log::OutageLog;
use crate::clock;
use crate::engine::CheckedSettings;
use crate::sync::Mutex;
use turnlock_store::{StepOptions, StepReply, Store, simulation};

/// How often a fair waiter sends a heartbeat. The store skips a waiter whose last heartbeat is four periods
/// old.
const PERIOD: Duration = Duration::from_secs(1);

/// The number of waiters per request.
const BATCH: usize = 256;

/// The number of waiters of which one can be named in a release.
const MAX_NAMED: usize = 4;

/// The waiters of this client in the fair queues of the store.
///
/// All waiters of one lock share a subscription, on stores where that is possible. It lasts for a moment longer than
/// they wait, since contention would cause a stream of subscriptions otherwise.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    client: ClientId,
    locks: Mutex<NameMap<LockWaiters>>,
    /// Notified when a lock needs a subscription or a heartbeat before the next period.
    is_due: Notify,
}

/// The waiters for one lock.
#[derive(Debug, Default)]
struct LockWaiters {
    /// By the send time of the request that queued them, which is nearly the order of the queue on the store.
    waiters: BTreeMap<QueueKey, Arc<FairWaiter>>,
    next_number: u64,
    is_subscribed: bool,
    /// A message may have been missed: the next heartbeat is due now, and wakes the waiter whose turn it is.
    needs_check: bool,
    /// Since when there are no waiters.
    idle_since: Option<Moment>,
}

/// The send time of the request that queued a waiter, and a number that no other waiter for the lock has.
type QueueKey = (Moment, u64);

/// Sends heartbeats for a waiter until it is dropped.
pub(crate) struct HeartbeatEntry {
    heartbeats: Arc<Heartbeats>,
    name: LockName,
    key: QueueKey,
    pub(crate) waiter: Arc<FairWaiter>,
}

impl Heartbeats {
    pub(crate) fn new(client: ClientId) -> Self {
        Self { client, locks: Mutex::default(), is_due: Notify::new() }
    }

    /// Adds a waiter that was queued by a request sent at `queued`.
    ///
    /// If it accepts a lease, a local holder may pass the lock on to it.
    pub(crate) fn add(
        self: &Arc<Self>,
        name: &LockName,
        owner: &OwnerId,
        wakeup: &Arc<Wakeup>,
        accepted_lease: Option<Lease>,
        queued: Moment,
    ) -> HeartbeatEntry {
        let waiter = Arc::new(FairWaiter::new(owner, wakeup, accepted_lease));
        let mut locks = self.locks.lock();
        let lock = locks.entry(name.clone()).or_insert_with(|| {
            self.is_due.notify_one();
            LockWaiters::default()
        });
        let key = (queued, lock.next_number);
        lock.next_number += 1;
        lock.idle_since = None;
        lock.waiters.insert(key, Arc::clone(&waiter));
        drop(locks);
        HeartbeatEntry { heartbeats: Arc::clone(self), name: name.clone(), key, waiter }
    }

    /// Names one of the first waiters of this client in a release of `name`. Returns it with its lease.
    ///
    /// Mostly the first one. One that is not polled any more cannot be named, and stays in the queue for a while.
    /// [`FairWaiter::end_release`] must follow.
    pub(crate) fn name_next(&self, name: &LockName) -> Option<(Arc<FairWaiter>, Lease)> {
        let locks = self.locks.lock();
        let mut first = locks.get(name)?.waiters.values().take(MAX_NAMED);
        first.find_map(|waiter| Some((Arc::clone(waiter), waiter.name_in_release()?)))
    }

    /// Sends heartbeats for the lock of a channel now, if it is that of this client: a message may be lost.
    pub(crate) fn check(&self, channel: &LockName) {
        let mut locks = self.locks.lock();
        let is_channel = |name: &LockName| self.channel(name) == *channel;
        if let Some((_, lock)) = locks.iter_mut().find(|(name, _)| is_channel(name)) {
            lock.needs_check = true;
            self.is_due.notify_one();
        }
    }

    /// The name for the channel that the waiters of this client share.
    fn channel(&self, name: &LockName) -> LockName {
        name.for_client_of(&self.client.owner(0))
    }

    /// Subscribes to the channels of new locks, and ends the subscriptions of those without waiters.
    fn update_subscriptions(self: &Arc<Self>, store: &Arc<dyn Store>) {
        let (now, can_share) = (clock::now(), store.shares_fair_subscriptions());
        let mut locks = self.locks.lock();
        locks.retain(|name, lock| {
            if can_share && !lock.is_subscribed {
                lock.is_subscribed = true;
                let (this, name) = (Arc::downgrade(self), name.clone());
                let subscribed = store.subscribe(&self.channel(&name));
                simulation::spawn(&Handle::current(), async move {
                    subscribed.await;
                    // Messages before the subscription are missed.
                    if let Some(this) = this.upgrade() {
                        this.check(&this.channel(&name));
                    }
                });
            }
            if !lock.waiters.is_empty() {
                return true;
            }
            let is_kept = now < *lock.idle_since.get_or_insert(now) + PERIOD;
            if !is_kept && lock.is_subscribed {
                store.unsubscribe(&self.channel(name));
            }
            is_kept
        });
    }

    /// Returns the waiters whose heartbeat is due, those of one lock after each other; and whether the store
    /// is asked for lost messages.
    fn due(&self, is_period_over: bool, now: Moment) -> Vec<(LockName, Arc<FairWaiter>, bool)> {
        // The waiters behind one that ignores its turn, as a future that is not polled, must not wait for it.
        let ignored_since = now - UNRESPONSIVE_AFTER;
        let mut due = Vec::new();
        for (name, lock) in self.locks.lock().iter_mut() {
            let is_check = std::mem::take(&mut lock.needs_check);
            if is_period_over || is_check {
                let waiters = lock.waiters.values().filter(|waiter| waiter.needs_heartbeat(ignored_since));
                due.extend(waiters.map(|waiter| (name.clone(), Arc::clone(waiter), is_check)));
            }
        }
        due
    }

    /// Returns the waiters that have not seen an outcome for too long, what to do about it, and the lease of the grant.
    fn take_ignored(&self, now: Moment) -> Vec<(LockName, Arc<FairWaiter>, IgnoredOutcome, Lease)> {
        let mut all = Vec::new();
        for (name, lock) in self.locks.lock().iter() {
            for waiter in lock.waiters.values() {
                if let Some((ignored, lease)) = waiter.take_ignored(now) {
                    all.push((name.clone(), Arc::clone(waiter), ignored, lease));
                }
            }
        }
        all
    }
}

impl HeartbeatEntry {
    /// Ends the waiter. Returns the outcome of a release that named it, if it has not seen that.
    pub(crate) fn close(self) -> Option<PassedOn> {
        self.waiter.close()
    }
}

impl Drop for HeartbeatEntry {
    fn drop(&mut self) {
        self.waiter.close();
        if let Some(lock) = self.heartbeats.locks.lock().get_mut(&self.name) {
            lock.waiters.remove(&self.key);
        }
    }
}

/// Sends the heartbeats of all waiters once per second. Ends with the engine.
///
/// `on_ignored` handles an outcome that a waiter has not seen in time.
pub(crate) async fn run(
    engine: Weak<Heartbeats>,
    store: Weak<dyn Store>,
    settings: CheckedSettings,
    outage_log: Arc<OutageLog>,
    on_ignored: impl Fn(&LockName, Arc<FairWaiter>, IgnoredOutcome, Lease),
) {
    let mut next_period = clock::now();
    while let (Some(heartbeats), Some(store)) = (engine.upgrade(), store.upgrade()) {
        let started = clock::now();
        let is_period_over = started >= next_period;
        if is_period_over {
            next_period = started + PERIOD;
            for (name, waiter, ignored, lease) in heartbeats.take_ignored(started) {
                tracing::debug!(%name, "lock taken back from a waiter that did not run in time");
                on_ignored(&name, waiter, ignored, lease);
            }
        }
        heartbeats.update_subscriptions(&store);
        for batch in heartbeats.due(is_period_over, started).chunks(BATCH) {
            send_batch(&*store, &settings, &outage_log, batch).await;
        }
        drop(store);
        // Times out also to notice that the engine is gone.
        let time_left = next_period.since(clock::now());
        let _ = tokio::time::timeout(time_left, heartbeats.is_due.notified()).await;
    }
}

async fn send_batch(
    store: &dyn Store,
    settings: &CheckedSettings,
    outage_log: &OutageLog,
    batch: &[(LockName, Arc<FairWaiter>, bool)],
) {
    let step = |(name, waiter, _): &(LockName, Arc<FairWaiter>, bool)| {
        Step::Heartbeat(name.clone(), waiter.owner.clone())
    };
    let options = StepOptions::of_engine(settings.usual_limit(), 0);
    let (replies, failure) = match store.call_batch(batch.iter().map(step).collect(), options).await {
        Ok(StepReply { value, failure, .. }) => (value, failure),
        Err(failure) => (Vec::new(), Some(Box::new(failure))),
    };
    if let Some(failure) = failure {
        if !outage_log.note_failure("heartbeat", &failure, clock::now()) {
            tracing::warn!(%failure, waiters = batch.len(), "heartbeat failed, will retry");
        }
    } else {
        outage_log.note_reply();
    }
    let (now, poll) = (clock::now(), settings.poll_interval);
    for ((name, waiter, is_check), reply) in batch.iter().zip(replies) {
        let Some(Reply::Position(position)) = reply else { continue };
        let was_its_turn = waiter.note_turn(position == QueuePosition::ItsTurn, now);
        match position {
            // A request of its own may have been granted since.
            QueuePosition::NotInQueue if waiter.only_waits() => {
                tracing::warn!(%name, owner = %waiter.owner, "waiter is missing from the fair queue, queueing again");
                waiter.wakeup.wake();
            }
            // A message announces the turn too, so the first report wakes the waiter only with a short poll
            // interval. Later, the message may have been lost, or the waiter ahead may have died.
            QueuePosition::ItsTurn if poll <= PERIOD || was_its_turn || *is_check => waiter.wakeup.wake(),
            _ => {}
        }
    }
}
