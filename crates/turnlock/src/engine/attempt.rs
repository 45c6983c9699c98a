use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use turnlock_core::model::{Acquired, Claim};
use turnlock_core::planted::Bug;
use turnlock_core::request::{REPEATED_FOR, RetryWindow};
use turnlock_core::{Doubt, Kind, Moment, OwnerId};

use super::engine::Engine;
use super::grant::Grant;
use super::request::{AcquireRequest, WaitLimit};
use super::state::{
    Caller as WaitingCaller, FoundOutcome, HeartbeatEntry, Hold, HoldEnd, HoldSpan, Join, LeaseMode,
    PassedOn, QueueView, Waiter, Wakeup,
};
use crate::clock;
use crate::error::Error;
use crate::identity::random_bytes;
use turnlock_store::{Caller, Failure, Presence, Sent, StepOptions, StepReply, TypedCall};

/// The outcome of one request: a grant, the rest of the holder's lease, or a failure.
pub(super) type Outcome = Result<Result<Grant, Option<Duration>>, Failure>;

/// What follows from the release of a local holder that requested the lock for an attempt.
pub(super) enum PassedOnMove {
    Granted(Grant),
    Failed(Failure),
    /// The attempt did not run in time, and its owner must not be used again.
    BeginAgain,
}

/// The place of an attempt in the queue of a fair lock, after its last request.
#[derive(Clone, Copy)]
enum FairPlace {
    Unknown,
    Next,
    /// Behind other waiters of turnlock, which notify it.
    BehindOurs,
}

/// One attempt to acquire a hold: the parameters of its requests, and what must be undone if it is dropped.
pub(super) struct Attempt {
    pub(super) engine: Arc<Engine>,
    pub(super) request: AcquireRequest,
    owner: OwnerId,
    /// The response time-out of a request.
    pub(super) limit: Duration,
    pub(super) waiter: Waiter,
    /// The requests in doubt: each may have been granted, or may still be.
    doubt: Option<Doubt>,
    /// Too few replicas acknowledged the last grant, so it does not count, but the store has it.
    has_unacknowledged_grant: bool,
    /// How long requests may be resent, for a store that recognises them by a remembered request id.
    pub(super) repeats: RetryWindow,
    /// It was refused, and its queue entry or the mark of a waiting writer is on the store.
    is_registered: bool,
    heartbeat_entry: Option<Box<HeartbeatEntry>>,
    /// The request under way, and when it was made. The mutex is never locked: it makes the attempt `Sync`.
    call: Mutex<Option<(TypedCall<Acquired>, Moment)>>,
    fair_place: FairPlace,
}

/// The rest of a lease for which [`Bug::BusyIsGrant`] takes the lock.
const BUSY_IS_GRANT: Duration = Duration::from_millis(300);

/// Returns the number of acknowledging replicas that a handed-over hold must have. `None` if no hold is
/// accepted.
fn hand_over_replicas(engine: &Engine, request: &AcquireRequest) -> Option<u32> {
    let waits = request.wait_limit != WaitLimit::None && request.name.kind().allows_hand_over();
    let is_renewed = matches!(request.lease_mode, LeaseMode::Renewed(_));
    let is_on = !engine.settings.hand_over_window.is_zero();
    (request.accepts_hand_over && waits && is_renewed && is_on).then_some(request.replicas)
}

fn caller_of(request: &AcquireRequest, owner: u64, began: Moment) -> WaitingCaller {
    let AcquireRequest { name, wait_limit, call_site, .. } = request;
    WaitingCaller { call_site: *call_site, began, ends: wait_limit.end(), name: name.clone(), owner }
}

impl Attempt {
    /// Enters the local queue.
    pub(super) fn begin(
        engine: &Arc<Engine>,
        request: AcquireRequest,
        limit: Duration,
        began: Moment,
    ) -> (Self, QueueView) {
        let (owner, number) = if request.name.kind() == Kind::Permits {
            let id = uuid::Builder::from_random_bytes(random_bytes()).into_uuid();
            (OwnerId::from_wire(&id.simple().to_string()), 0)
        } else {
            let number = engine.new_owner_number();
            (engine.client.owner(number), number)
        };
        let join = if request.under.is_some() { Join::NotQueued } else { Join::AtEnd };
        // A fair waiter has a queue of its own.
        let (name, replicas) = match request.name.kind() {
            Kind::Fair => (&request.name.for_waiter(&owner), None),
            _ => (&request.name, hand_over_replicas(engine, &request)),
        };
        let (waiter, view) =
            engine.wait_queues.enter(name, join, Wakeup::new(replicas, caller_of(&request, number, began)));
        let attempt = Self {
            engine: Arc::clone(engine),
            request,
            owner,
            limit,
            waiter,
            doubt: None,
            has_unacknowledged_grant: false,
            repeats: RetryWindow::default(),
            is_registered: false,
            heartbeat_entry: None,
            call: Mutex::default(),
            fair_place: FairPlace::Unknown,
        };
        (attempt, view)
    }

    /// Accepts the hold that was handed over, if there is one and it is still usable.
    pub(super) fn accept_hand_over(&mut self) -> Option<Grant> {
        let handed = self.waiter.wakeup.take_handed()?;
        let engine = &self.engine;
        if engine.may_hand_over(&handed, clock::now()) {
            let AcquireRequest { lease_mode, replicas, call_site, .. } = self.request;
            let hold = Arc::new(handed.for_next_holder(lease_mode, replicas, call_site));
            let window_end = engine.window_end(&hold);
            let watch = || engine.watchdog.transfer(&handed, &hold);
            if self.waiter.accept_hand_over(&handed, &hold, window_end, watch) {
                tracing::trace!(name = %self.request.name, "handed over");
                engine.wait_queues.durations.note_handed_over(&hold.name, handed.began, hold.began);
                return Some(Grant::new(&self.engine, hold, lease_mode, None));
            }
            hold.span.end(HoldEnd::Released, hold.began, hold.began);
        }
        engine.release_handed_over(handed);
        None
    }

    /// Returns the error of a wait that must end because it is part of a deadlock.
    pub(super) fn deadlock_error(&self) -> Option<Error> {
        let reason = self.waiter.wakeup.deadlock()?.to_owned();
        Some(Error::WouldDeadlock { name: self.request.name.to_string(), reason })
    }

    fn waits(&self) -> bool {
        self.request.wait_limit != WaitLimit::None
    }

    fn claim(&self) -> Claim {
        let under = self.request.under.as_ref().map(|hold| Box::new(hold.owner.clone()));
        Claim { permits: self.request.permits, under, ..Claim::new(&self.request.name, &self.owner, 1) }
    }

    /// Reserves the next request. Returns `false` if the release of a local holder requests the lock for this attempt,
    /// or has an [outcome](Self::take_passed_on) for it.
    pub(super) fn reserve_request(&self) -> bool {
        self.heartbeat_entry.as_ref().is_none_or(|entry| entry.waiter.begin_request())
    }

    /// Takes the outcome of the release of a local holder that requested the lock for this attempt.
    pub(super) fn take_passed_on(&mut self) -> Option<PassedOnMove> {
        let waiter = &self.heartbeat_entry.as_ref()?.waiter;
        let now = clock::now();
        Some(match waiter.take_outcome(now - self.limit)? {
            FoundOutcome::Granted(sent) => PassedOnMove::Granted(self.granted(sent, 0, None)),
            FoundOutcome::Outdated => {
                self.note_unseen_grant(now);
                self.waiter.wakeup.set_hint();
                return None;
            }
            FoundOutcome::InDoubt(failure) => {
                self.note_failure(&failure);
                PassedOnMove::Failed(failure)
            }
            FoundOutcome::Undone => PassedOnMove::BeginAgain,
        })
    }

    /// Records that the store granted a hold that is not used: it is undone, unless a request confirms it.
    fn note_unseen_grant(&mut self, now: Moment) {
        let lease = self.request.lease_mode.lease().as_duration();
        self.doubt = Some(Doubt::of_existing_hold(now + lease));
    }

    /// Returns another attempt for the same request, with a new owner.
    pub(super) fn begin_again(&self, now: Moment) -> (Self, QueueView) {
        Self::begin(&self.engine, self.request.clone(), self.limit, now)
    }

    /// Returns `true` if it is notified of its turn without a subscription of its own.
    ///
    /// The waiters of a fair lock share one, for messages of turnlock. A holder of Redisson notifies the next waiter on
    /// a channel of its own; so does a waiter of Redisson that is ahead, once it holds the lock.
    pub(super) fn shares_subscription(&self) -> bool {
        self.heartbeat_entry.is_some()
            && self.engine.store.shares_fair_subscriptions()
            && match self.fair_place {
                FairPlace::Unknown => false,
                FairPlace::Next => self.engine.wait_queues.has_holds(&self.request.name),
                FairPlace::BehindOurs => true,
            }
    }

    /// Makes one request at `now`. [`outcome`](Self::outcome) sends it.
    pub(super) fn begin_request(&mut self, now: Moment) {
        let lease = self.request.lease_mode.lease();
        let options = self.engine.options(&self.request.name, lease, self.waits());
        let caller = Caller::with(Arc::clone(&self.waiter.wakeup) as Arc<dyn Presence>);
        let step_options = StepOptions { limit: self.limit, replicas: self.request.replicas, caller };
        let call = self.engine.store.acquire(self.claim(), options, step_options);
        *self.call.get_mut() = Some((call, now));
        self.waiter.wakeup.begin_request();
    }

    /// Sends the request, and returns its outcome.
    pub(super) async fn outcome(&mut self) -> Outcome {
        let under_way = self.call.get_mut();
        let (reply, began) = poll_fn(|context| {
            // Taken out during the poll, so that a request that panicked is not polled again in the background.
            let Some((mut call, began)) = under_way.take() else { return Poll::Pending };
            let poll = Pin::new(&mut call).poll(context).map(|reply| (reply, began));
            if poll.is_pending() {
                *under_way = Some((call, began));
            }
            poll
        })
        .await;
        let outcome = self.note_reply(reply, began);
        self.waiter.wakeup.end_request();
        if let Some(entry) = &self.heartbeat_entry {
            entry.waiter.end_request();
        }
        outcome
    }

    fn note_reply(&mut self, reply: Result<StepReply<Acquired>, Failure>, began: Moment) -> Outcome {
        let StepReply { value, sent, replicas, .. } = reply.inspect_err(|failure| {
            self.note_failure(failure);
            // A request that was not sent because its caller is gone proves nothing about the store.
            if failure.in_doubt.is_none() && self.waiter.wakeup.is_gone() {
                return;
            }
            // Here, so that the requests of callers that give up early count too.
            if self.engine.outage_log.note_failure("acquire", failure, clock::now()) {
                self.waiter.set_outage(began, failure);
            } else {
                tracing::warn!(name = %self.request.name, %failure, "acquire failed");
            }
        })?;
        self.engine.outage_log.note_reply();
        let value = match value {
            Acquired::Busy { ttl: Some(ttl) } if Bug::BusyIsGrant.is_planted() && ttl < BUSY_IS_GRANT => {
                Acquired::Granted
            }
            value => value,
        };
        self.has_unacknowledged_grant = false;
        self.engine.client_record.write_if_due(&self.request.name, sent.at, &self.engine.runtime);
        let token = match value {
            Acquired::Granted => None,
            Acquired::GrantedWith { token } => {
                self.engine.tokens.observe(&self.request.name, token);
                Some(token)
            }
            // Only a lost reentry or a voided semaphore request is `Gone`, and this is neither.
            Acquired::Gone => return Ok(Err(None)),
            Acquired::Busy { .. } | Acquired::Queued => {
                self.fair_place = match value {
                    Acquired::Queued => FairPlace::BehindOurs,
                    Acquired::Busy { ttl: Some(_) } => FairPlace::Next,
                    _ => FairPlace::Unknown,
                };
                // A connection keeps the order of replies: an earlier request on it was refused too, or has
                // ended.
                self.doubt = sent.unsettled(self.doubt);
                if self.doubt.is_none() {
                    self.repeats.settle();
                }
                self.note_refusal(sent.at);
                self.waiter.set_refusal(self.request.name.kind(), self.request.permits, sent.at);
                return Ok(Err(if let Acquired::Busy { ttl } = value { ttl } else { None }));
            }
        };
        Ok(Ok(self.granted(sent, replicas, token)))
    }

    /// Makes the grant of a request that was sent at `sent`.
    fn granted(&mut self, sent: Sent, replicas: u32, token: Option<u64>) -> Grant {
        self.is_registered = false;
        self.heartbeat_entry = None;
        // An unacknowledged grant from before is this same hold.
        let doubt = self.doubt.take().filter(|doubt| !doubt.is_of_existing_hold());
        let now = clock::now();
        let sent_at = if Bug::LeaseFromReply.is_planted() { now } else { sent.at };
        let mut hold = Hold::granted(self.claim(), self.request.lease_mode, (sent_at, now), doubt);
        hold.note_replicas(self.request.replicas, replicas);
        // It may have been granted to an earlier copy of the request.
        hold.remembered_until = hold.remembered_until.min(self.repeats.end());
        hold.call_site = Some(self.request.call_site);
        // A grant without a caller is undone, and is no hold to observers.
        if !self.waiter.wakeup.is_gone() {
            hold.metrics = self.engine.metrics.begin_hold(&self.request.name);
            hold.span = HoldSpan::begin(&hold.name, &hold.owner, token);
        }
        let hold = Arc::new(hold);
        self.engine.watchdog.watch(&hold, now);
        for gone in self.waiter.leave_granted(&hold, self.request.under.as_ref()) {
            let reason = self.engine.loss_reason(&gone);
            self.engine.mark_lost(&gone, reason);
        }
        Grant::new(&self.engine, hold, self.request.lease_mode, token)
    }

    fn note_failure(&mut self, failure: &Failure) {
        self.has_unacknowledged_grant =
            failure.took_effect || (self.has_unacknowledged_grant && failure.in_doubt.is_none());
        let is_leased = self.request.name.kind().is_leased();
        let lasts = if is_leased { self.request.lease_mode.lease().as_duration() } else { REPEATED_FOR };
        self.doubt = failure.merge_doubt(self.doubt, lasts);
        if let Some(sent) = failure.in_doubt.filter(|_| !is_leased) {
            // Permits without a lease do not expire, but can be undone while the store remembers the request.
            self.doubt = self.doubt.map(|doubt| doubt.lasting_until(sent.at + REPEATED_FOR));
            self.repeats.mark_in_doubt(sent.at);
        }
    }

    /// Undoes a grant that too few replicas acknowledged, and waits for that.
    ///
    /// If the store replies, the caller sees the error only when the lock is free.
    pub(super) async fn undo_unacknowledged_grant(&mut self) {
        if let Some(doubt) = self.doubt.take_if(|_| std::mem::take(&mut self.has_unacknowledged_grant)) {
            let undone = self.engine.undo(self.claim(), self.limit, doubt);
            let _ = tokio::time::timeout(self.limit, undone).await;
        }
    }

    /// Leaves the queue on the store, and waits for that, so that the next caller is not behind it.
    pub(super) async fn leave_queue(&mut self) {
        if std::mem::take(&mut self.is_registered) {
            // A request in doubt is undone when this attempt is dropped.
            let left = self.engine.leave_queue(self.claim(), self.limit);
            let _ = tokio::time::timeout(self.limit, left).await;
        }
    }

    fn note_refusal(&mut self, sent: Moment) {
        if !self.waits() {
            return;
        }
        let name = &self.request.name;
        self.is_registered = name.kind().stores_waiters();
        if self.heartbeat_entry.is_none() && name.kind() == Kind::Fair {
            // Only a request of its own can be acknowledged by replicas.
            let lease = (self.request.replicas == 0).then(|| self.request.lease_mode.lease());
            let entry = self.engine.heartbeats.add(name, &self.owner, &self.waiter.wakeup, lease, sent);
            self.heartbeat_entry = Some(Box::new(entry));
        }
    }
}

impl Attempt {
    /// Moves the attempt out of this one, which has nothing to undo then.
    fn take(&mut self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            request: self.request.clone(),
            owner: self.owner.clone(),
            limit: self.limit,
            waiter: self.waiter.take(),
            doubt: self.doubt.take(),
            has_unacknowledged_grant: self.has_unacknowledged_grant,
            repeats: self.repeats,
            is_registered: std::mem::take(&mut self.is_registered),
            heartbeat_entry: self.heartbeat_entry.take(),
            fair_place: self.fair_place,
            call: std::mem::take(&mut self.call),
        }
    }
}

/// A request under way is completed in the background. Then its effect is undone.
impl Drop for Attempt {
    fn drop(&mut self) {
        // In the background, there is no other one.
        if self.call.get_mut().is_some() && self.waiter.wakeup.set_gone() {
            let mut attempt = self.take();
            return self.engine.background.spawn(async move {
                let outcome = attempt.outcome().await;
                if Bug::CancelledGrantKept.is_planted() {
                    std::mem::forget(outcome);
                }
            });
        }
        match self.heartbeat_entry.take().and_then(|entry| entry.close()) {
            None => {}
            Some(PassedOn::Ok(_)) => self.note_unseen_grant(clock::now()),
            Some(PassedOn::Err(failure)) => self.note_failure(&failure),
        }
        let engine = &self.engine;
        if let Some(handed) = self.waiter.give_up() {
            engine.hand_over_or_release(handed);
        }
        if let Some(doubt) = self.doubt.take() {
            engine.undo_request(self.claim(), self.limit, doubt);
        } else if self.is_registered {
            drop(engine.leave_queue(self.claim(), self.limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use turnlock_core::ClientId;
    use turnlock_store::{Memory, MemoryStore};

    use super::*;
    use crate::client::Client;
    use crate::config::Settings;

    #[tokio::test]
    async fn turns_that_are_handed_over_are_among_the_last_holds() {
        let settings = Settings { hand_over_window: Some(Duration::from_secs(3)), ..Settings::default() };
        let (settings, id) = (settings.check("a test", false).expect("good settings"), [7; 16]);
        let store = Arc::new(Memory::new(MemoryStore::new(), ClientId::from_random(id)));
        let engine = Engine::start(store, ClientId::from_random(id), settings);
        let lock = Client::new(Arc::clone(&engine)).lock("turns");
        let mut guard = lock.lock().await.expect("free");
        let durations = &engine.wait_queues.durations;
        // One turn in 16 is noted, and 20 are needed.
        for _ in 0..10_000 {
            let mut next = lock.lock().boxed();
            assert!((&mut next).now_or_never().is_none());
            guard.unlock().await.expect("held");
            guard = next.await.expect("handed over");
            if durations.is_unusual(&guard.hold().name, Duration::from_secs(100_000)) {
                return;
            }
        }
        panic!("no turn is known");
    }
}
