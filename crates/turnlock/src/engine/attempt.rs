use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::{Acquired, Claim};
use turnlock_core::request::{REPEATED_FOR, RetryWindow};
use turnlock_core::{Doubt, Kind, Moment, OwnerId};

use super::engine::Engine;
use super::grant::Grant;
use super::request::{AcquireRequest, WaitLimit};
use super::state::{HeartbeatEntry, Hold, Join, LeaseMode, QueueView, Waiter, Wakeup};
use crate::clock;
use turnlock_store::{Caller, Failure, FailureKind, StepOptions, StepReply};

/// The outcome of one request: a grant, the rest of the holder's lease, or a failure.
pub(super) type Outcome = Result<Result<Grant, Option<Duration>>, Failure>;

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
    heartbeat_entry: Option<HeartbeatEntry>,
}

/// Returns the number of acknowledging replicas that a handed-over hold must have. `None` if no hold is
/// accepted.
fn hand_over_replicas(engine: &Engine, request: &AcquireRequest) -> Option<u32> {
    let waits = request.wait_limit != WaitLimit::None && request.name.kind().allows_hand_over();
    let is_renewed = matches!(request.lease_mode, LeaseMode::Renewed(_));
    let is_on = !engine.settings.hand_over_window.is_zero();
    (request.accepts_hand_over && waits && is_renewed && is_on).then_some(request.replicas)
}

impl Attempt {
    /// Enters the local queue.
    pub(super) fn begin(
        engine: &Arc<Engine>,
        request: AcquireRequest,
        limit: Duration,
        began: Moment,
    ) -> (Self, QueueView) {
        let owner = match request.name.kind() {
            Kind::Permits => OwnerId::from_wire(&uuid::Uuid::new_v4().simple().to_string()),
            _ => engine.new_owner(),
        };
        let join = if request.under.is_some() { Join::NotQueued } else { Join::AtEnd };
        // A fair waiter has a queue of its own.
        let (name, replicas) = match request.name.kind() {
            Kind::Fair => (&request.name.for_waiter(&owner), None),
            _ => (&request.name, hand_over_replicas(engine, &request)),
        };
        let (waiter, view) =
            engine.wait_queues.enter(name, join, Wakeup::new(replicas, (request.call_site, began)));
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
        };
        (attempt, view)
    }

    /// Accepts the hold that was handed over, if there is one and it is still usable.
    pub(super) fn accept_hand_over(&mut self) -> Option<Grant> {
        let handed = self.waiter.wakeup.take_handed()?;
        let engine = &self.engine;
        if engine.may_hand_over(&handed) {
            let AcquireRequest { lease_mode, replicas, call_site, .. } = self.request;
            let hold = Arc::new(handed.for_next_holder(lease_mode, replicas, call_site));
            let window_end = engine.window_end(&hold);
            let watch = || engine.watchdog.transfer(&handed, &hold);
            if self.waiter.accept_hand_over(&handed, &hold, window_end, watch) {
                tracing::trace!(name = %self.request.name, "handed over");
                return Some(Grant::new(&self.engine, hold, lease_mode, None));
            }
        }
        engine.release_handed_over(handed);
        None
    }

    fn waits(&self) -> bool {
        self.request.wait_limit != WaitLimit::None
    }

    fn claim(&self) -> Claim {
        let under = self.request.under.as_ref().map(|hold| &hold.owner);
        Claim {
            permits: self.request.permits,
            under: under.cloned(),
            ..Claim::new(&self.request.name, &self.owner, 1)
        }
    }

    /// Sends one request, unless `caller` is gone before it can be sent. Returns itself and the outcome.
    pub(super) async fn send(mut self, caller: Caller) -> (Self, Outcome) {
        let outcome = self.send_request(caller).await;
        self.waiter.wakeup.end_request();
        (self, outcome)
    }

    async fn send_request(&mut self, caller: Caller) -> Outcome {
        let lease = self.request.lease_mode.lease();
        let options = self.engine.options(&self.request.name, lease, self.waits());
        let step_options =
            StepOptions { limit: self.limit, replicas: self.request.replicas, caller: caller.clone() };
        let began = clock::now();
        let request = self.engine.store.acquire(self.claim(), options, step_options);
        self.waiter.wakeup.begin_request();
        let StepReply { value, sent, replicas, .. } = request.await.inspect_err(|failure| {
            self.note_failure(failure);
            // A request that was not sent because its caller is gone proves nothing about the store.
            let is_outage = failure.in_doubt.is_some() || !caller.is_gone();
            if is_outage && matches!(failure.kind, FailureKind::Unavailable(_)) {
                self.waiter.set_outage(began, failure);
            }
        })?;
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
            Acquired::Busy { ttl } => {
                // A connection keeps the order of replies: an earlier request on it was refused too, or has
                // ended.
                self.doubt = sent.unsettled(self.doubt);
                if self.doubt.is_none() {
                    self.repeats.settle();
                }
                self.note_refusal();
                self.waiter.set_refusal(self.request.name.kind(), self.request.permits, sent.at);
                return Ok(Err(ttl));
            }
        };
        self.is_registered = false;
        self.heartbeat_entry = None;
        // An unacknowledged grant from before is this same hold.
        let doubt = self.doubt.take().filter(|doubt| !doubt.is_of_existing_hold());
        let mut hold = Hold::granted(self.claim(), self.request.lease_mode, sent.at, doubt);
        hold.note_replicas(self.request.replicas, replicas);
        // It may have been granted to an earlier copy of the request.
        hold.remembered_until = hold.remembered_until.min(self.repeats.end());
        hold.call_site = Some(self.request.call_site);
        let hold = Arc::new(hold);
        self.engine.watchdog.watch(&hold);
        for gone in self.waiter.leave_granted(&hold, self.request.under.as_ref()) {
            let reason = self.engine.loss_reason(&gone);
            self.engine.mark_lost(&gone, reason);
        }
        Ok(Ok(Grant::new(&self.engine, hold, self.request.lease_mode, token)))
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
    pub(super) async fn leave_queue(mut self) {
        if std::mem::take(&mut self.is_registered) {
            // A request in doubt is undone when this attempt is dropped.
            let left = self.engine.leave_queue(self.claim(), self.limit);
            let _ = tokio::time::timeout(self.limit, left).await;
        }
    }

    fn note_refusal(&mut self) {
        if !self.waits() {
            return;
        }
        let name = &self.request.name;
        self.is_registered = name.kind().stores_waiters();
        if let Some(heartbeat_entry) = &self.heartbeat_entry {
            heartbeat_entry.note_request();
        } else if name.kind() == Kind::Fair {
            let entry = HeartbeatEntry::new(&self.engine.heartbeats, name, &self.owner, &self.waiter.wakeup);
            self.heartbeat_entry = Some(entry);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.heartbeat_entry = None;
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
