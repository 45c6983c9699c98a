use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::{Notify, Semaphore};
use turnlock_core::hold_state::{Action, Event, Facts, Phase};
use turnlock_core::model::{Claim, PermitId};
use turnlock_core::planted::Bug;
use turnlock_core::renewal::ScheduleKey;
use turnlock_core::request::REPEATED_FOR;
use turnlock_core::{Doubt, HoldState, Lease, LockName, Moment, OwnerId};

use super::call_site::CallSite;
use super::deadline::Deadline;
use super::leases::{LeaseMode, Leases};
use super::span::{HoldEnd, HoldSpan};
use crate::clock;
use crate::error::LostReason;
use crate::metrics::HoldMetrics;
use crate::sync::{Mutex, MutexGuard};
use turnlock_store::Sent;

/// One owner's hold on one lock, shared by its guards. A reentry adds a guard.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    /// Never used for another grant.
    pub(crate) owner: OwnerId,
    /// When the granted request was sent, or when the hold was handed over.
    pub(crate) began: Moment,
    /// When the store's grant arrived. A hand-over does not change it.
    pub(crate) granted: Moment,
    /// `true` if another waiter of this client held it before.
    pub(crate) was_handed_over: bool,
    /// Where it was acquired, if a caller did.
    pub(crate) call_site: Option<CallSite>,
    pub(crate) metrics: HoldMetrics,
    pub(crate) span: HoldSpan,
    /// The number of permits, for semaphores.
    pub(crate) permits: u32,
    /// Until when the store remembers the request id of the acquire, for permits without owners.
    pub(crate) remembered_until: Moment,
    /// Has one permit. The steps of one owner are sequential: [`StepTurn`](super::StepTurn).
    pub(super) steps: Semaphore,
    inner: Mutex<Inner>,
    /// Since when the body that runs under it is polled without a break, in microseconds; 0 if it is not.
    pub(crate) polled_since: AtomicU64,
    /// It was reported that the hold is stuck.
    pub(crate) is_reported_stuck: AtomicBool,
    /// Notified when the hold is lost, its lease is shortened, or the awaited end of its renewals has come.
    pub(super) changed: Notify,
}

/// What changes together during the life of a hold.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each read on its own")]
pub(crate) struct Inner {
    /// Where the hold is in its life, the number of its guards, and its requests in doubt.
    pub(crate) state: HoldState,
    /// Why it was lost, if it was.
    lost_reason: Option<LostReason>,
    pub(crate) leases: Leases,
    /// The local end of the lease.
    pub(super) valid_until: Moment,
    /// Until when the store may have the hold. Later than `valid_until`, since a request may arrive late.
    may_last_until: Moment,
    /// When the last request was sent that the store confirmed.
    pub(super) last_confirmed: Moment,
    /// The number of replicas that must acknowledge each renewal.
    replicas_wanted: u32,
    /// The number of replicas that acknowledged the last confirmation.
    replicas_reached: u32,
    /// The next check by the watchdog.
    pub(crate) appointment: Option<ScheduleKey>,
    /// The number of renewals under way.
    pub(crate) renewals_under_way: u32,
    /// A renewal waits to be sent, so that no other is needed.
    pub(crate) is_renewal_queued: bool,
    /// A task waits until no renewal is under way.
    pub(super) awaits_renewals: bool,
    /// The owner is known outside the engine, so the hold must not be handed over.
    pub(crate) is_bound_to_owner: bool,
    /// Another task than the first one may release it: it was reentered, or a guard was detached from its task.
    pub(crate) may_be_shared: bool,
}

impl Inner {
    fn has_renewal(&self) -> bool {
        self.is_renewal_queued || self.renewals_under_way > 0
    }
}

impl Hold {
    /// Creates the hold of a grant that arrives at `now`, with one guard. Its request was sent at `sent`.
    pub(crate) fn granted(
        Claim { name, owner, permits, .. }: Claim,
        lease_mode: LeaseMode,
        (sent, now): (Moment, Moment),
        doubt: Option<Doubt>,
    ) -> Self {
        let lease = lease_mode.lease();
        let mut leases = Leases::default();
        leases.add(lease_mode, now);
        Self {
            name,
            owner,
            began: sent,
            granted: now,
            was_handed_over: false,
            call_site: None,
            metrics: HoldMetrics::default(),
            span: HoldSpan::default(),
            permits,
            remembered_until: sent + REPEATED_FOR,
            steps: Semaphore::new(1),
            polled_since: AtomicU64::new(0),
            is_reported_stuck: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                state: HoldState::granted(doubt),
                lost_reason: None,
                leases,
                valid_until: lease.local_end(sent),
                may_last_until: now + lease.as_duration(),
                last_confirmed: sent,
                replicas_wanted: 0,
                replicas_reached: 0,
                appointment: None,
                renewals_under_way: 0,
                is_renewal_queued: false,
                awaits_renewals: false,
                is_bound_to_owner: false,
                may_be_shared: false,
            }),
            changed: Notify::new(),
        }
    }

    /// Creates the hold of the waiter to which this hold is handed over.
    ///
    /// `replicas` must not exceed the number that has acknowledged this hold.
    pub(crate) fn for_next_holder(&self, lease_mode: LeaseMode, replicas: u32, call_site: CallSite) -> Self {
        let now = clock::now();
        // Changed in place: a hold is large to move.
        let mut next = Self::granted(self.claim(1), lease_mode, (now, now), None);
        {
            let (from, to) = (self.inner(), next.inner.get_mut());
            to.valid_until = from.valid_until;
            to.may_last_until = from.may_last_until;
            to.last_confirmed = from.last_confirmed;
            to.replicas_wanted = replicas;
            to.replicas_reached = if replicas > 0 { from.replicas_reached } else { 0 };
        }
        next.granted = self.granted;
        next.remembered_until = self.remembered_until;
        next.was_handed_over = true;
        next.call_site = Some(call_site);
        next.metrics = self.metrics.hand_over(self.held_since(), now);
        next.span = HoldSpan::begin(&next.name, &next.owner, None);
        next
    }

    /// When its holder got it.
    pub(crate) fn held_since(&self) -> Moment {
        if self.was_handed_over { self.began } else { self.granted }
    }

    /// Tells observers that its last guard has ended, or that it is lost. Later calls have no effect.
    pub(crate) fn note_end(&self, how: HoldEnd, now: Moment) {
        self.metrics.end(self.held_since(), now);
        self.span.end(how, self.held_since(), now);
    }

    /// Applies an event to the state, and returns what is to be done.
    pub(crate) fn apply(&self, event: Event, now: Moment) -> Action {
        self.apply_to(&mut self.inner(), event, now)
    }

    fn apply_to(&self, inner: &mut Inner, event: Event, now: Moment) -> Action {
        let (state, action) = inner.state.next(event, &self.facts(inner, now));
        inner.state = state;
        action
    }

    fn facts(&self, inner: &Inner, now: Moment) -> Facts {
        Facts {
            now,
            valid_until: inner.valid_until,
            may_last_until: inner.may_last_until,
            is_leased: self.name.kind().is_leased(),
        }
    }

    /// Adds the guard of a confirmed reentry, unless the hold has ended meanwhile.
    pub(crate) fn confirm_reentry(&self, target: u32, lease_mode: LeaseMode) -> Action {
        let (mut inner, now) = (self.inner(), clock::now());
        let action = self.apply_to(&mut inner, Event::ReentryConfirmed { target }, now);
        if action == Action::Allow {
            inner.leases.add(lease_mode, now);
            inner.may_be_shared = true;
        }
        action
    }

    /// Records a confirmed release, which may settle requests in doubt.
    pub(crate) fn confirm_release(&self, target: u32, sent: Sent, now: Moment) -> Action {
        let mut inner = self.inner();
        inner.state.doubt = sent.unsettled(inner.state.doubt);
        self.apply_to(&mut inner, Event::ReleaseConfirmed { target }, now)
    }

    /// Ends a guard, unless the event is refused.
    pub(crate) fn end_guard(&self, lease_mode: LeaseMode, event: Event, now: Moment) -> Action {
        self.end_guard_of(&mut self.inner(), lease_mode, event, now)
    }

    fn end_guard_of(&self, inner: &mut Inner, lease_mode: LeaseMode, event: Event, now: Moment) -> Action {
        let action = self.apply_to(inner, event, now);
        if action != Action::Refuse {
            inner.leases.remove(lease_mode);
        }
        action
    }

    /// Ends the only guard, for a hand-over. Returns `false`, and changes nothing, if the hold cannot be
    /// handed over.
    ///
    /// It can if no request is under way or in doubt, and the owner is not known outside the engine.
    pub(crate) fn offer(&self, lease_mode: LeaseMode, now: Moment) -> bool {
        // A cancelled reentry may still be under way.
        let Ok(_step) = self.steps.try_acquire() else { return false };
        let mut inner = self.inner();
        !inner.has_renewal()
            && !inner.is_bound_to_owner
            && self.end_guard_of(&mut inner, lease_mode, Event::HandOverOffered, now) == Action::Allow
    }

    /// Transfers the hold on the store, and its next check, to the accepting waiter.
    ///
    /// Returns `None` if the hold may have changed: the watchdog has taken it up, or a late step of earlier
    /// guards is ending it.
    pub(crate) fn transfer(&self) -> Option<ScheduleKey> {
        let _step = self.steps.try_acquire().ok()?;
        let mut inner = self.inner();
        if inner.has_renewal() || inner.appointment.is_none() {
            return None;
        }
        // A later step of earlier guards finds nothing to release.
        let is_accepted = self.apply_to(&mut inner, Event::HandOverAccepted, clock::now()) == Action::Allow;
        inner.appointment.take_if(|_| is_accepted)
    }

    /// Returns `true` if a store that has the permits still remembers the acquire.
    ///
    /// Then a store that does not remember it never granted the permits, or lost the grant in a fail-over,
    /// and there is nothing to release.
    pub(crate) fn is_remembered(&self) -> bool {
        !self.name.kind().is_leased() && clock::now() < self.remembered_until
    }

    /// Records that `reached` replicas acknowledged a request that wanted `wanted`. From now on, no fewer are
    /// wanted.
    pub(crate) fn note_replicas(&self, wanted: u32, reached: u32) {
        if wanted > 0 {
            let mut inner = self.inner();
            inner.replicas_wanted = inner.replicas_wanted.max(wanted);
            inner.replicas_reached = reached;
        }
    }

    pub(crate) fn replicas_wanted(&self) -> u32 {
        self.inner().replicas_wanted
    }

    pub(crate) fn replicas_reached(&self) -> u32 {
        self.inner().replicas_reached
    }

    /// The claim of this owner with `target` as its count.
    pub(crate) fn claim(&self, target: u32) -> Claim {
        Claim { permits: self.permits, ..Claim::new(&self.name, &self.owner, target) }
    }

    /// The ids of its permits, for a permit semaphore.
    pub(crate) fn permit_ids(&self) -> impl Iterator<Item = OwnerId> + use<> {
        PermitId::of_hold(&self.owner, self.permits).map(PermitId::to_owner)
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The number of live guards.
    pub(crate) fn guards(&self) -> u32 {
        self.inner().state.guards
    }

    /// Until when a release of it may be sent again.
    pub(crate) fn release_end(&self) -> Moment {
        let inner = self.inner();
        inner.state.release_end(&self.facts(&inner, clock::now()))
    }

    /// Until when the store remembers an unanswered release of permits without owners. A later copy would count
    /// again.
    pub(crate) fn resend_end(&self) -> Moment {
        let inner = self.inner();
        inner.state.resend_end(&self.facts(&inner, clock::now()))
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.inner().valid_until
    }

    pub(crate) fn may_last_until(&self) -> Moment {
        self.inner().may_last_until
    }

    /// When the last request was sent that the store confirmed.
    pub(crate) fn last_confirmed(&self) -> Moment {
        self.inner().last_confirmed
    }

    /// Records that a request sent at `sent` confirmed the hold for `lease`. An expired hold stays expired.
    pub(crate) fn confirm_for(&self, lease: Lease, sent: Moment) {
        self.confirm_held(sent);
        self.extend_may_last(lease);
        let mut inner = self.inner();
        // A shortening that may still take effect limits the lease.
        let lease = inner.leases.shortened_to.map_or(lease, |shorter| lease.min(shorter));
        if clock::now() < inner.valid_until {
            inner.valid_until = inner.valid_until.max(lease.local_end(sent));
        }
    }

    /// Records that the store confirmed the hold in reply to a request sent at `sent`.
    pub(crate) fn confirm_held(&self, sent: Moment) {
        let mut inner = self.inner();
        inner.last_confirmed = inner.last_confirmed.max(sent);
    }

    /// Records that a request for `lease` may have arrived by now.
    pub(crate) fn extend_may_last(&self, lease: Lease) {
        let end = clock::now() + lease.as_duration();
        let mut inner = self.inner();
        inner.may_last_until = inner.may_last_until.max(end);
    }

    /// Limits the validity to `lease`, before a request that sets the lease is sent, until
    /// [`Leases::end_shortening`].
    ///
    /// Returns `false` if a renewal is under way, whose reply could confirm a longer lease. Then the request
    /// must not be sent.
    pub(crate) fn begin_shortening(&self, lease: Lease, now: Moment) -> bool {
        let mut inner = self.inner();
        if inner.renewals_under_way > 0 {
            return false;
        }
        inner.leases.begin_shortening(lease);
        inner.valid_until = inner.valid_until.min(lease.local_end(now));
        drop(inner);
        // Tasks that wait for the end must wait for the earlier one.
        self.changed.notify_waiters();
        true
    }

    /// Returns how long the body that runs under it has been polled without a break, if it is.
    pub(crate) fn polled_for(&self, now: Moment) -> Option<Duration> {
        let since = self.polled_since.load(Ordering::Relaxed);
        (since > 0).then(|| now.since(Moment::from_micros(since)))
    }

    pub(crate) fn is_valid(&self) -> bool {
        let inner = self.inner();
        inner.state.is_held() && clock::now() < inner.valid_until
    }

    /// Returns why the hold was lost, if it was. An expired lease counts before the watchdog has noticed it.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost_by(clock::now())
    }

    /// Returns why the hold was lost by `now`, as [`lost`](Self::lost).
    pub(crate) fn lost_by(&self, now: Moment) -> Option<LostReason> {
        let inner = self.inner();
        match inner.state.phase {
            Phase::Lost(_) => inner.lost_reason,
            Phase::Held { .. } if now >= inner.valid_until => Some(match inner.leases.renewal {
                Some(_) => LostReason::NotRenewed { unconfirmed_for: now.since(inner.last_confirmed) },
                None => LostReason::Expired,
            }),
            _ => None,
        }
    }

    /// Waits until the hold is lost. Never returns if it is released first.
    ///
    /// Returns at the local end of the lease even without the watchdog, which may have ended with the
    /// client's runtime.
    pub(crate) async fn until_lost(&self) -> LostReason {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.lost() {
                if Bug::LostNotReported.is_planted() && reason.is_local_end() {
                    return pending().await;
                }
                return reason;
            }
            let phase = self.inner().state.phase;
            match phase {
                Phase::Held { .. } => {}
                // Lost since the check above.
                Phase::Lost(_) => continue,
                _ => return pending().await,
            }
            // A renewal moves the end. Then the loop waits for the new one.
            if clock::is_followed_and_paused() {
                // Tokio advances a paused clock to its own timers only.
                let rest = self.valid_until().since(clock::now());
                let _ = tokio::time::timeout(rest, changed).await;
            } else {
                select(changed, Deadline::new(self.valid_until())).await;
            }
        }
    }

    /// Applies an event that may mean the loss of the hold, for `reason`.
    pub(crate) fn apply_loss(&self, event: Event, reason: LostReason) -> Action {
        let mut inner = self.inner();
        let action = self.apply_to(&mut inner, event, clock::now());
        if action == Action::ReportLoss {
            inner.lost_reason = Some(reason);
            drop(inner);
            self.changed.notify_waiters();
        }
        action
    }
}

#[cfg(test)]
#[path = "tests/hold.rs"]
mod tests;
