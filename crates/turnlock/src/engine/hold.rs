use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::select;
use tokio::sync::Notify;
use turnlock_core::model::{Claim, PermitId};
use turnlock_core::renewal::Appointment;
use turnlock_core::request::REPEATED_FOR;
use turnlock_core::{Doubt, Lease, LockName, Moment, OwnerId};

use super::deadline::Deadline;
use crate::clock;
use crate::error::LostReason;

/// How long a hold lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    /// Renewed by the watchdog while its guard lives.
    Renewed(Lease),
    /// Ends by itself.
    Fixed(Lease),
}

impl Term {
    pub(crate) fn lease(self) -> Lease {
        match self {
            Self::Renewed(lease) | Self::Fixed(lease) => lease,
        }
    }
}

/// One owner's hold on one lock: what its guards, which are several after a reentry, have in common.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    /// Used for this hold and never again.
    pub(crate) owner: OwnerId,
    /// When it was asked for, the time that it was granted; or when it was handed over.
    pub(crate) began: Moment,
    /// When the store's grant was heard of, whoever has had it since.
    pub(super) granted: Moment,
    /// Whether another of this process had it before.
    pub(super) was_handed_over: bool,
    /// How many permits it is, where there are permits.
    pub(crate) permits: u32,
    /// Until when a store that has the permits remembers who took them, where they have no owners.
    remembered_until: Moment,
    /// Held while a step of this hold is under way: steps of one owner go one after the other.
    pub(crate) lane: tokio::sync::Mutex<()>,
    /// Until when this process may believe in the hold, in microseconds of our clock.
    believed_until: AtomicU64,
    /// When the last request was sent to which the store replied that it has the hold.
    seen_at: AtomicU64,
    /// Until when the store may have it, for all that was sent: later, since a request may have arrived late.
    may_last_until: AtomicU64,
    /// How many replicas must acknowledge what is done for it.
    replicas_wanted: AtomicU32,
    /// How many had, at the last confirmation that asked for it.
    replicas_reached: AtomicU32,
    state: Mutex<HoldState>,
    ended: Notify,
    /// The last of the renewals that were under way is over.
    pub(super) renewed: Notify,
}

#[derive(Debug)]
pub(crate) struct HoldState {
    pub(crate) standing: Standing,
    /// Guards that live.
    pub(crate) guards: u32,
    /// The count that the store last confirmed.
    pub(crate) confirmed: u32,
    /// A release to zero was sent and not answered, first at that time: "not held" may be its success.
    pub(crate) end_sent: Option<Moment>,
    /// The store has answered that it is gone.
    pub(crate) found_gone: bool,
    /// How many of the living guards want renewal.
    pub(crate) renewed_guards: u32,
    /// The lease to renew for, while one of them does.
    pub(crate) renewal: Option<Lease>,
    /// The living guards with a fixed lease: the lease, and when it ends on the store at the latest.
    fixed: Vec<(Lease, Moment)>,
    /// A request that may make its lease shorter.
    shortening: Option<Shortening>,
    /// The last one has failed: renewals find out whether the lease is still too long.
    pub(super) is_to_be_shortened: bool,
    /// When the watchdog looks at it next.
    pub(crate) appointment: Option<Appointment>,
    /// Renewals that are under way.
    pub(crate) renewals: u32,
    /// A request of this hold that got no answer.
    pub(crate) doubt: Option<Doubt>,
    /// Not to be handed over: somebody knows the owner as one of their own.
    pub(crate) is_personal: bool,
}

/// A request that sets the lease of a hold, however long that was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortening {
    lease: Lease,
    /// It got no answer, so it may take effect at any time. Unlike other steps, one that arrives late does harm: it takes time
    /// from a guard that came after it. So this stays true as long as the hold lasts.
    is_in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Held,
    Lost(LostReason),
    /// The last guard is gone: the hold is being given back or left to its lease, or was.
    Ended,
}

impl Hold {
    /// A hold that the store has just granted to one guard.
    pub(crate) fn granted(claim: Claim<'_>, term: Term, sent: Moment, doubt: Option<Doubt>) -> Self {
        Self {
            name: claim.name.clone(),
            owner: claim.owner.clone(),
            began: sent,
            granted: clock::now(),
            was_handed_over: false,
            permits: claim.permits,
            remembered_until: sent + REPEATED_FOR,
            lane: tokio::sync::Mutex::new(()),
            believed_until: AtomicU64::new(term.lease().local_end(sent).as_micros()),
            seen_at: AtomicU64::new(sent.as_micros()),
            may_last_until: AtomicU64::new((clock::now() + term.lease().as_duration()).as_micros()),
            replicas_wanted: AtomicU32::new(0),
            replicas_reached: AtomicU32::new(0),
            state: Mutex::new(HoldState { doubt, ..HoldState::new(term) }),
            ended: Notify::new(),
            renewed: Notify::new(),
        }
    }

    /// The same hold of the store, for the next one who has it here and wants it acknowledged by so many replicas, which are
    /// not more than those that have.
    pub(super) fn handed_over(&self, term: Term, replicas: u32, now: Moment) -> Self {
        Self {
            name: self.name.clone(),
            owner: self.owner.clone(),
            began: now,
            granted: self.granted,
            was_handed_over: true,
            permits: self.permits,
            remembered_until: self.remembered_until,
            lane: tokio::sync::Mutex::new(()),
            believed_until: AtomicU64::new(self.believed_until.load(Ordering::Acquire)),
            seen_at: AtomicU64::new(self.seen_at.load(Ordering::Acquire)),
            may_last_until: AtomicU64::new(self.may_last_until.load(Ordering::Acquire)),
            replicas_wanted: AtomicU32::new(replicas),
            replicas_reached: AtomicU32::new(if replicas > 0 { self.replicas_reached() } else { 0 }),
            state: Mutex::new(HoldState::new(term)),
            ended: Notify::new(),
            renewed: Notify::new(),
        }
    }

    /// Ends what the only guard stands for, if the store can be left to believe that nothing has changed: nothing is under way
    /// or in doubt, and nobody knows the owner. Whether it did.
    pub(super) fn end_turn(&self, term: Term) -> bool {
        // A step may be under way although nobody waits for it any more: a reentry that was cancelled.
        let Ok(_no_step) = self.lane.try_lock() else { return false };
        let mut state = self.state();
        let is_clean = state.standing == Standing::Held
            && state.guards == 1
            && !state.is_personal
            && state.stands_as_granted();
        if is_clean {
            state.remove_guard(term);
        }
        is_clean
    }

    /// Leaves what it has on the store to the one that it was handed to, and the next look at it. `None` when something may have
    /// happened to it: the watchdog has looked, or a step of guards that are long gone, which came late, ends it now.
    pub(super) fn pass_on(&self) -> Option<Appointment> {
        let _no_step = self.lane.try_lock().ok()?;
        let mut state = self.state();
        if !state.stands_as_granted() {
            return None;
        }
        let appointment = state.appointment.take()?;
        // Such a step finds nothing to end from now on.
        state.confirmed = 0;
        Some(appointment)
    }

    /// The same, which may have been taken by an earlier send, and so is remembered until `end` at the most.
    pub(crate) fn remembered_until(mut self, end: Moment) -> Self {
        self.remembered_until = self.remembered_until.min(end);
        self
    }

    /// Whether a store that has the permits remembers who took them. Then one that does not remember it never granted them,
    /// or has lost the grant: a promoted replica that had not heard of it. There is nothing to give back to it.
    pub(super) fn is_remembered(&self) -> bool {
        !self.name.kind().is_leased() && clock::now() < self.remembered_until
    }

    /// The same, acknowledged by `reached` replicas where `wanted` had to.
    pub(crate) fn acknowledged_by(self, wanted: u32, reached: u32) -> Self {
        self.was_acknowledged_by(wanted, reached);
        self
    }

    /// Something was done for it that `wanted` replicas had to acknowledge, and `reached` did. From now on, not fewer have to.
    pub(crate) fn was_acknowledged_by(&self, wanted: u32, reached: u32) {
        if wanted > 0 {
            self.replicas_wanted.fetch_max(wanted, Ordering::AcqRel);
            self.replicas_reached.store(reached, Ordering::Release);
        }
    }

    pub(crate) fn replicas_wanted(&self) -> u32 {
        self.replicas_wanted.load(Ordering::Acquire)
    }

    pub(crate) fn replicas_reached(&self) -> u32 {
        self.replicas_reached.load(Ordering::Acquire)
    }

    /// What this owner shall have of the lock.
    pub(crate) fn claim(&self, target: u32) -> Claim<'_> {
        Claim { permits: self.permits, ..Claim::new(&self.name, &self.owner, target) }
    }

    /// The ids of its permits, where those have ids.
    pub(crate) fn permit_ids(&self) -> impl Iterator<Item = OwnerId> + use<> {
        PermitId::of_hold(&self.owner, self.permits).map(PermitId::to_owner)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn believed_until(&self) -> Moment {
        Moment::from_micros(self.believed_until.load(Ordering::Acquire))
    }

    /// A request sent at `sent` confirmed the hold for `lease`. Too late for one that was given up already: what was told
    /// to be lost does not come back.
    pub(crate) fn confirmed_for(&self, lease: Lease, sent: Moment) {
        self.was_seen(sent);
        self.may_last_for(lease);
        // As in `lost` and `is_valid`: none of them comes between the look at the clock and the new end.
        let state = self.state();
        // One that may still take effect after this request leaves no more than its own lease.
        let lease = state.shortening.map_or(lease, |shortening| lease.min(shortening.lease));
        if clock::now() < self.believed_until() {
            self.believed_until.fetch_max(lease.local_end(sent).as_micros(), Ordering::AcqRel);
        }
    }

    /// The store replied to a request sent at `sent` that it has the hold.
    pub(crate) fn was_seen(&self, sent: Moment) {
        self.seen_at.fetch_max(sent.as_micros(), Ordering::AcqRel);
    }

    /// When the last request was sent to which the store replied that it has the hold.
    pub(crate) fn seen_at(&self) -> Moment {
        Moment::from_micros(self.seen_at.load(Ordering::Acquire))
    }

    /// A request is to be sent that sets the lease to this: from now on, no more is believed in, until it has
    /// [ended](Self::end_shortening). False when a renewal is under way, whose answer could speak of more: then it must not be sent.
    pub(super) fn begin_shortening(&self, lease: Lease, now: Moment) -> bool {
        let mut state = self.state();
        if state.renewals > 0 {
            return false;
        }
        let earlier = state.shortening.filter(|earlier| earlier.is_in_doubt);
        state.shortening = Some(Shortening {
            lease: earlier.map_or(lease, |earlier| lease.min(earlier.lease)),
            is_in_doubt: earlier.is_some(),
        });
        self.believed_until.fetch_min(lease.local_end(now).as_micros(), Ordering::AcqRel);
        drop(state);
        // Who waits for the end waits for a sooner one from now on.
        self.ended.notify_waiters();
        true
    }

    /// The request was answered, or is in doubt.
    pub(super) fn end_shortening(&self, is_in_doubt: bool) {
        let mut state = self.state();
        state.shortening = state.shortening.and_then(|shortening| {
            let is_in_doubt = is_in_doubt || shortening.is_in_doubt;
            is_in_doubt.then_some(Shortening { is_in_doubt, ..shortening })
        });
    }

    pub(crate) fn may_last_until(&self) -> Moment {
        Moment::from_micros(self.may_last_until.load(Ordering::Acquire))
    }

    /// A request for `lease` may have arrived by now.
    pub(crate) fn may_last_for(&self, lease: Lease) {
        let end = clock::now() + lease.as_duration();
        self.may_last_until.fetch_max(end.as_micros(), Ordering::AcqRel);
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.state().standing == Standing::Held && clock::now() < self.believed_until()
    }

    /// How it was lost, if it was. A lease that ran out counts although the watchdog has not looked yet.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        let state = self.state();
        match state.standing {
            Standing::Lost(reason) => Some(reason),
            Standing::Held if clock::now() < self.believed_until() => None,
            Standing::Held if state.renewal.is_some() => {
                Some(LostReason::NotRenewed { unconfirmed_for: clock::now().since(self.seen_at()) })
            }
            Standing::Held => Some(LostReason::Expired),
            Standing::Ended => None,
        }
    }

    /// Waits until the hold is lost. Never ready when it is given back first.
    ///
    /// Ready by the local end of the lease without the watchdog, which may have ended with the runtime of its client.
    pub(crate) async fn until_lost(&self) -> LostReason {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(reason) = self.lost() {
                return reason;
            }
            if self.state().standing == Standing::Ended {
                return pending().await;
            }
            // A renewal moves the end on: then there is another one to wait for.
            select(ended, Deadline::new(self.believed_until())).await;
        }
    }

    /// Declares the hold lost. Whether that is news.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        let mut state = self.state();
        if state.standing != Standing::Held {
            return false;
        }
        state.standing = Standing::Lost(reason);
        drop(state);
        self.ended.notify_waiters();
        true
    }
}

impl HoldState {
    /// What one guard holds.
    fn new(term: Term) -> Self {
        let mut state = Self {
            standing: Standing::Held,
            guards: 0,
            confirmed: 1,
            end_sent: None,
            found_gone: false,
            renewed_guards: 0,
            renewal: None,
            fixed: Vec::new(),
            shortening: None,
            is_to_be_shortened: false,
            appointment: None,
            renewals: 0,
            doubt: None,
            is_personal: false,
        };
        state.add_guard(term);
        state
    }

    /// Whether the store has it once, and nothing was sent that might change that.
    fn stands_as_granted(&self) -> bool {
        (self.confirmed, self.renewals) == (1, 0)
            && self.doubt.is_none()
            && self.end_sent.is_none()
            && !self.found_gone
    }

    pub(crate) fn add_guard(&mut self, term: Term) {
        self.guards += 1;
        match term {
            Term::Renewed(lease) => {
                self.renewed_guards += 1;
                self.renewal = Some(lease);
            }
            Term::Fixed(lease) => self.fixed.push((lease, clock::now() + lease.as_duration())),
        }
    }

    /// The lease that a request leaves which may make it shorter, if there is one.
    pub(super) fn shortened_to(&self) -> Option<Lease> {
        self.shortening.map(|shortening| shortening.lease)
    }

    /// For how long from now on the living guards need the hold, those that are renewed and those with a fixed lease. `None` when
    /// none of them needs it any more.
    pub(super) fn need(&self, now: Moment, renews: bool) -> Option<Lease> {
        let rest = self.fixed.iter().map(|(_, end)| end.since(now)).max();
        let fixed = rest.and_then(|rest| Lease::new(rest).ok());
        self.renewal.filter(|_| renews).max(fixed)
    }

    /// The longest lease of the living guards whose lease is fixed.
    pub(super) fn longest_fixed(&self) -> Option<Lease> {
        self.fixed.iter().map(|(lease, _)| *lease).max()
    }

    /// One guard less. Whether it was the last.
    pub(crate) fn remove_guard(&mut self, term: Term) -> bool {
        self.guards -= 1;
        match term {
            Term::Renewed(_) => self.renewed_guards -= 1,
            Term::Fixed(lease) => {
                // Of several with the same lease it may be any of them: the first, so that what remains is rather too long.
                let place = self.fixed.iter().position(|(fixed, _)| *fixed == lease);
                place.map(|place| self.fixed.remove(place));
            }
        }
        if self.renewed_guards == 0 {
            self.renewal = None;
        }
        if self.guards == 0 && self.standing == Standing::Held {
            self.standing = Standing::Ended;
        }
        self.guards == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn hold(term: Term) -> Arc<Hold> {
        let (name, owner) = (LockName::parse("n").expect("a good name"), OwnerId::from_wire("a:1"));
        Arc::new(Hold::granted(Claim::new(&name, &owner, 1), term, clock::now(), None))
    }

    fn lease(millis: u64) -> Lease {
        Lease::new(Duration::from_millis(millis)).expect("a good lease")
    }

    /// No watchdog looks after it: as when the watchdog has ended, or its runtime does not run.
    #[test]
    fn the_end_is_told_without_a_watchdog() {
        let hold = hold(Term::Renewed(lease(100)));
        let (tell, told) = mpsc::channel();
        thread::spawn({
            let hold = Arc::clone(&hold);
            move || {
                let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let reason = bare.block_on(hold.until_lost());
                tell.send((reason, clock::now() >= hold.believed_until())).expect("somebody waits");
            }
        });
        // Confirmed once: the end moves on.
        hold.confirmed_for(lease(300), clock::now());
        let (reason, is_over) = told.recv_timeout(Duration::from_secs(10)).expect("the end is told");
        assert!(is_over && matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
        hold.confirmed_for(lease(60_000), clock::now());
        assert!(!hold.is_valid(), "what was told to be lost does not come back");
    }

    #[tokio::test]
    async fn the_end_of_what_was_given_back_is_not_told() {
        let term = Term::Fixed(lease(20));
        let hold = hold(term);
        let mut lost = Box::pin(hold.until_lost());
        assert!(lost.as_mut().now_or_never().is_none());
        hold.state().remove_guard(term);
        let outcome = tokio::time::timeout(Duration::from_millis(100), lost).await;
        assert!(outcome.is_err(), "it was given back");
        assert!(hold.until_lost().now_or_never().is_none());
    }
}
