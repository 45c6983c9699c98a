use std::sync::Arc;
use std::time::Duration;

use turnlock_core::model::{Acquired, Claim};
use turnlock_core::request::{REPEATED_FOR, Repeats};
use turnlock_core::{Doubt, Kind, LockName, OwnerId};

use super::Engine;
use super::acquire::{Ask, Patience};
use super::attendance::Attendee;
use super::hold::{Hold, Term};
use super::question::check_age;
use super::rooms::{Join, Look, Seat};
use crate::backend::{Answer, Caller, Care, Failure, FailureKind};
use crate::clock;
use crate::error::Error;
use crate::guard::Guard;

/// What one request came to: a guard, the rest of another's lease, or a failure.
pub(super) type Outcome = Result<Result<Guard, Option<Duration>>, Failure>;

/// One attempt at one hold: everything that a request needs, and what has to be done if it is given up.
pub(super) struct Attempt {
    pub(super) engine: Arc<Engine>,
    pub(super) name: LockName,
    owner: OwnerId,
    term: Term,
    pub(super) limit: Duration,
    permits: u32,
    replicas: u32,
    under: Option<Arc<Hold>>,
    waits: bool,
    pub(super) seat: Seat,
    /// A request of this attempt that got no answer: it may have been granted, or may still be.
    doubt: Option<Doubt>,
    /// The last request was granted, but is not to count: what it took stands on the store.
    stands: bool,
    /// For how long it may ask again, where the store knows the request only by its memory.
    repeats: Repeats,
    /// Whether it was refused and has left its place or its word on the store.
    left_traces: bool,
    attendee: Option<Attendee>,
}

/// Whether one who asks so may be handed a hold of this process: one that is acknowledged by so many replicas.
fn takes(engine: &Engine, ask: &Ask) -> Option<u32> {
    let waits = ask.patience != Patience::None && ask.name.kind().is_handed_over();
    let is_renewed = matches!(ask.term, Term::Renewed(_));
    let is_on = !engine.shared.settings.hand_over_window.is_zero();
    (ask.is_anybodys && waits && is_renewed && is_on).then_some(ask.replicas)
}

impl Attempt {
    /// Takes a seat.
    pub(super) fn begin(engine: &Arc<Engine>, ask: &Ask, limit: Duration) -> (Self, Look) {
        let shared = &engine.shared;
        let owner = match ask.name.kind() {
            Kind::Permits => OwnerId::from_wire(&uuid::Uuid::new_v4().simple().to_string()),
            _ => shared.new_owner(),
        };
        let join = if ask.under.is_some() { Join::Aside } else { Join::AtEnd };
        let (seat, look) = match ask.name.kind() {
            Kind::Fair => shared.rooms.enter(&ask.name.for_waiter(&owner), join),
            _ => shared.rooms.enter_as(&ask.name, join, takes(engine, ask)),
        };
        let attempt = Self {
            engine: Arc::clone(engine),
            name: ask.name.clone(),
            owner,
            term: ask.term,
            limit,
            permits: ask.permits,
            replicas: ask.replicas,
            under: ask.under.clone(),
            waits: ask.patience != Patience::None,
            seat,
            doubt: None,
            stands: false,
            repeats: Repeats::default(),
            left_traces: false,
            attendee: None,
        };
        (attempt, look)
    }

    /// What it was handed by another of this process, if it is still good.
    pub(super) fn take_over(&mut self) -> Option<Guard> {
        let handed = self.seat.bell.take_handed()?;
        let shared = &self.engine.shared;
        if shared.may_hand_over(&handed) {
            let hold = Arc::new(handed.handed_over(self.term, self.replicas, clock::now()));
            let window_end = shared.window_end(&hold);
            let watch = || shared.watchdog.hand_over(&handed, &hold);
            if self.seat.take_over(&handed, &hold, window_end, watch) {
                tracing::trace!(name = %self.name, "handed over");
                return Some(Guard::new(Arc::clone(&self.engine), hold, self.term, None));
            }
        }
        shared.give_back_handed(handed);
        None
    }

    fn claim(&self) -> Claim<'_> {
        let under = self.under.as_ref().map(|hold| &hold.owner);
        Claim { permits: self.permits, under, ..Claim::new(&self.name, &self.owner, 1) }
    }

    /// An error when it must not ask again, since the store may have forgotten the first time.
    pub(super) fn check_age(&self) -> Result<(), Error> {
        check_age(&self.name, self.repeats)
    }

    /// Asks the store once, if `caller` is still there when that can be sent. Gives itself back, with a guard, the rest of
    /// another's lease, or a failure.
    pub(super) async fn send(mut self, caller: Caller) -> (Self, Outcome) {
        let lease = self.term.lease();
        let wish = self.engine.shared.wish(&self.name, lease, self.waits);
        let care = Care { limit: self.limit, replicas: self.replicas, caller: caller.clone() };
        let began = clock::now();
        let asked = self.engine.shared.backend.acquire(self.claim(), wish, care);
        self.seat.bell.begin_asking();
        let (answer, sent, replicas) = match asked.await {
            Ok(Answer { value, sent, replicas, .. }) => (value, sent, replicas),
            Err(failure) => {
                self.has_failed(&failure);
                // What was not sent for want of its caller says nothing of the store.
                let is_outage = failure.in_doubt.is_some() || !caller.is_gone();
                if is_outage && matches!(failure.kind, FailureKind::Unavailable(_)) {
                    self.seat.set_outage(began, &failure);
                }
                self.seat.bell.end_asking();
                return (self, Err(failure));
            }
        };
        self.stands = false;
        self.engine.shared.introduce_if_due(&self.name, sent.at);
        let token = match answer {
            Acquired::Granted => None,
            Acquired::GrantedWith { token } => {
                self.engine.shared.tokens.saw(&self.name, token);
                Some(token)
            }
            // A reentry was gone, which this is not, or a semaphore's request was taken back, which it was not.
            Acquired::Gone => {
                self.seat.bell.end_asking();
                return (self, Ok(Err(None)));
            }
            Acquired::Busy { ttl } => {
                // On one connection answers come in order: an earlier request on it was refused too, or has ended.
                self.doubt = sent.leaves_of(self.doubt);
                if self.doubt.is_none() {
                    self.repeats.are_settled();
                }
                self.was_refused();
                self.seat.set_refusal(self.name.kind(), self.permits, sent.at);
                self.seat.bell.end_asking();
                return (self, Ok(Err(ttl)));
            }
        };
        self.left_traces = false;
        self.attendee = None;
        // What stood before and was not to count is this very hold.
        let doubt = self.doubt.take().filter(|doubt| !doubt.is_of_standing_hold());
        let hold = Hold::granted(self.claim(), self.term, sent.at, doubt);
        let hold = hold.remembered_until(self.repeats.end());
        let hold = Arc::new(hold.acknowledged_by(self.replicas, replicas));
        self.engine.shared.watchdog.watch(&hold);
        for gone in self.seat.trade_for(&hold, self.under.as_ref()) {
            let reason = self.engine.shared.reason_of_absence(&gone);
            self.engine.shared.lose(&gone, reason);
        }
        let guard = Guard::new(Arc::clone(&self.engine), hold, self.term, token);
        (self, Ok(Ok(guard)))
    }

    fn has_failed(&mut self, failure: &Failure) {
        self.stands = failure.stands || (self.stands && failure.in_doubt.is_none());
        let is_leased = self.name.kind().is_leased();
        let lasts = if is_leased { self.term.lease().as_duration() } else { REPEATED_FOR };
        self.doubt = failure.adds_doubt_to(self.doubt, lasts);
        if let Some(sent) = failure.in_doubt.filter(|_| !is_leased) {
            // What was begun does not end by itself, but can be undone while the store knows of it.
            self.doubt = self.doubt.map(|doubt| doubt.lasting_until(sent.at + REPEATED_FOR));
            self.repeats.are_in_doubt_since(sent.at);
        }
    }

    /// Gives back what stands on the store and is not to count, and waits for that: who is told of the failure finds the
    /// lock free, if the store answers.
    pub(super) async fn give_back(&mut self) {
        if !std::mem::take(&mut self.stands) {
            return;
        }
        if let Some(doubt) = self.doubt.take() {
            let shared = Arc::clone(&self.engine.shared);
            let _ = tokio::time::timeout(self.limit, shared.undo(self.claim(), self.limit, doubt)).await;
        }
    }

    /// Gives up, and waits until the store knows, if there is something to know: who comes next finds no trace.
    pub(super) async fn leave(mut self) {
        if std::mem::take(&mut self.left_traces) {
            let shared = Arc::clone(&self.engine.shared);
            // The doubt, if there is one, is seen to when this attempt is dropped.
            let gone = shared.withdraw(self.claim(), self.limit);
            let _ = tokio::time::timeout(self.limit, gone).await;
        }
    }

    fn was_refused(&mut self) {
        if !self.waits {
            return;
        }
        self.left_traces = self.name.kind().leaves_traces();
        match &self.attendee {
            Some(attendee) => attendee.has_asked(),
            None if self.name.kind() == Kind::Fair => {
                let shared = &self.engine.shared;
                self.attendee = Some(Attendee::new(shared, &self.name, &self.owner, &self.seat.bell));
            }
            None => {}
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.attendee = None;
        let shared = &self.engine.shared;
        if let Some(handed) = self.seat.give_up() {
            shared.hand_on(handed);
        }
        if let Some(doubt) = self.doubt.take() {
            shared.sweep(self.claim(), self.limit, doubt);
        } else if self.left_traces {
            drop(shared.withdraw(self.claim(), self.limit));
        }
    }
}
