use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::select;
use tokio::sync::Notify;
use turnlock_core::model::{Claim, PermitId};
use turnlock_core::renewal::ScheduleKey;
use turnlock_core::request::REPEATED_FOR;
use turnlock_core::{Doubt, Lease, LockName, Moment, OwnerId};

use super::call_site::CallSite;
use super::deadline::Deadline;
use crate::clock;
use crate::error::LostReason;

/// How the lease of a hold ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseMode {
    /// Renewed by the watchdog while the guard lives.
    Renewed(Lease),
    /// Not renewed: expires.
    Fixed(Lease),
}

impl LeaseMode {
    pub(crate) fn lease(self) -> Lease {
        match self {
            Self::Renewed(lease) | Self::Fixed(lease) => lease,
        }
    }
}

/// One owner's hold on one lock, shared by its guards. A reentry adds a guard.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) name: LockName,
    /// Never used for another grant.
    pub(crate) owner: OwnerId,
    /// When the granted request was sent, or when the hold was handed over.
    pub(crate) began: Moment,
    /// When the store's grant arrived. A hand-over does not change it.
    pub(super) granted: Moment,
    /// `true` if another waiter of this client held it before.
    pub(super) was_handed_over: bool,
    /// Where it was acquired, if a caller did.
    pub(super) call_site: Option<CallSite>,
    /// The number of permits, for semaphores.
    pub(crate) permits: u32,
    /// Until when the store remembers the request id of the acquire, for permits without owners.
    remembered_until: Moment,
    /// Held during a step: the steps of one owner are sequential.
    pub(crate) step_lock: tokio::sync::Mutex<()>,
    /// The local end of the lease, in microseconds of the local clock.
    valid_until: AtomicU64,
    /// When the last request was sent that the store confirmed.
    last_confirmed: AtomicU64,
    /// Until when the store may have the hold. Later than `valid_until`, since a request may arrive late.
    may_last_until: AtomicU64,
    /// The number of replicas that must acknowledge each renewal.
    replicas_wanted: AtomicU32,
    /// The number of replicas that acknowledged the last confirmation.
    replicas_reached: AtomicU32,
    state: Mutex<HoldState>,
    /// Notified when the hold is lost or its lease is shortened.
    end_changed: Notify,
    /// Notified when the last renewal under way has finished.
    pub(super) renewals_done: Notify,
}

#[derive(Debug)]
pub(crate) struct HoldState {
    pub(crate) status: HoldStatus,
    /// The number of live guards.
    pub(crate) guards: u32,
    /// The count that the store last confirmed.
    pub(crate) confirmed_count: u32,
    /// When a release to zero was first sent without a reply. A later "not held" may mean that it succeeded.
    pub(crate) unanswered_release: Option<Moment>,
    /// The store has replied that the hold is gone.
    pub(crate) found_gone: bool,
    /// The number of live guards that are renewed.
    pub(crate) renewed_guards: u32,
    /// The lease for renewals, while there is a guard that is renewed.
    pub(crate) renewal: Option<Lease>,
    /// The live guards with a fixed lease: the lease, and its latest end on the store.
    fixed: Vec<(Lease, Moment)>,
    /// A request that may shorten the lease.
    shortening: Option<Shortening>,
    /// The last shortening has failed. Renewals check whether the lease is still too long.
    pub(super) shortening_failed: bool,
    /// The next check by the watchdog.
    pub(crate) appointment: Option<ScheduleKey>,
    /// The number of renewals under way.
    pub(crate) renewals_under_way: u32,
    /// The requests of this hold in doubt.
    pub(crate) doubt: Option<Doubt>,
    /// The owner is known outside the engine, so the hold must not be handed over.
    pub(crate) is_bound_to_owner: bool,
}

/// A request that sets the lease of a hold, whatever was left of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortening {
    lease: Lease,
    /// It got no reply, so it may take effect at any time. Unlike other steps, a late one does harm: it takes
    /// time from a newer guard. So this stays `true` for the life of the hold.
    is_in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldStatus {
    Held,
    Lost(LostReason),
    /// The last guard is gone: the hold is or was released, or is left to its lease.
    Ended,
}

impl Hold {
    /// Creates the hold of a new grant, with one guard.
    pub(crate) fn granted(
        claim: Claim<'_>,
        lease_mode: LeaseMode,
        sent: Moment,
        doubt: Option<Doubt>,
    ) -> Self {
        Self {
            name: claim.name.clone(),
            owner: claim.owner.clone(),
            began: sent,
            granted: clock::now(),
            was_handed_over: false,
            call_site: None,
            permits: claim.permits,
            remembered_until: sent + REPEATED_FOR,
            step_lock: tokio::sync::Mutex::new(()),
            valid_until: AtomicU64::new(lease_mode.lease().local_end(sent).as_micros()),
            last_confirmed: AtomicU64::new(sent.as_micros()),
            may_last_until: AtomicU64::new((clock::now() + lease_mode.lease().as_duration()).as_micros()),
            replicas_wanted: AtomicU32::new(0),
            replicas_reached: AtomicU32::new(0),
            state: Mutex::new(HoldState { doubt, ..HoldState::new(lease_mode) }),
            end_changed: Notify::new(),
            renewals_done: Notify::new(),
        }
    }

    /// Creates the hold of the waiter to which this hold is handed over.
    ///
    /// `replicas` must not exceed the number that has acknowledged this hold.
    pub(super) fn for_next_holder(&self, lease_mode: LeaseMode, replicas: u32, now: Moment) -> Self {
        Self {
            name: self.name.clone(),
            owner: self.owner.clone(),
            began: now,
            granted: self.granted,
            was_handed_over: true,
            call_site: None,
            permits: self.permits,
            remembered_until: self.remembered_until,
            step_lock: tokio::sync::Mutex::new(()),
            valid_until: AtomicU64::new(self.valid_until.load(Ordering::Acquire)),
            last_confirmed: AtomicU64::new(self.last_confirmed.load(Ordering::Acquire)),
            may_last_until: AtomicU64::new(self.may_last_until.load(Ordering::Acquire)),
            replicas_wanted: AtomicU32::new(replicas),
            replicas_reached: AtomicU32::new(if replicas > 0 { self.replicas_reached() } else { 0 }),
            state: Mutex::new(HoldState::new(lease_mode)),
            end_changed: Notify::new(),
            renewals_done: Notify::new(),
        }
    }

    /// Records where it was acquired.
    pub(super) fn acquired_at(self, call_site: CallSite) -> Self {
        Self { call_site: Some(call_site), ..self }
    }

    /// Ends the only guard, for a hand-over. Returns `false`, and changes nothing, if the hold cannot be
    /// handed over.
    ///
    /// It can if no request is under way or in doubt, and the owner is not known outside the engine.
    pub(super) fn end_guard(&self, lease_mode: LeaseMode) -> bool {
        // A cancelled reentry may still be under way.
        let Ok(_step) = self.step_lock.try_lock() else { return false };
        let mut state = self.state();
        let can_hand_over = state.status == HoldStatus::Held
            && state.guards == 1
            && !state.is_bound_to_owner
            && state.is_as_granted();
        if can_hand_over {
            state.remove_guard(lease_mode);
        }
        can_hand_over
    }

    /// Transfers the hold on the store, and its next check, to the accepting waiter.
    ///
    /// Returns `None` if the hold may have changed: the watchdog has taken it up, or a late step of earlier
    /// guards is ending it.
    pub(super) fn transfer(&self) -> Option<ScheduleKey> {
        let _step = self.step_lock.try_lock().ok()?;
        let mut state = self.state();
        if !state.is_as_granted() {
            return None;
        }
        let appointment = state.appointment.take()?;
        // A later step of earlier guards finds nothing to release.
        state.confirmed_count = 0;
        Some(appointment)
    }

    /// Limits the time for which the store remembers the acquire: it may have been granted to an earlier copy
    /// of the request.
    pub(crate) fn remembered_until(mut self, end: Moment) -> Self {
        self.remembered_until = self.remembered_until.min(end);
        self
    }

    /// Returns `true` if a store that has the permits still remembers the acquire.
    ///
    /// Then a store that does not remember it never granted the permits, or lost the grant in a fail-over,
    /// and there is nothing to release.
    pub(super) fn is_remembered(&self) -> bool {
        !self.name.kind().is_leased() && clock::now() < self.remembered_until
    }

    /// Sets the number of replicas that were wanted and that acknowledged the grant.
    pub(crate) fn with_replicas(self, wanted: u32, reached: u32) -> Self {
        self.note_replicas(wanted, reached);
        self
    }

    /// Records that `reached` replicas acknowledged a request that wanted `wanted`. From now on, no fewer are
    /// wanted.
    pub(crate) fn note_replicas(&self, wanted: u32, reached: u32) {
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

    /// The claim of this owner with `target` as its count.
    pub(crate) fn claim(&self, target: u32) -> Claim<'_> {
        Claim { permits: self.permits, ..Claim::new(&self.name, &self.owner, target) }
    }

    /// The ids of its permits, for a permit semaphore.
    pub(crate) fn permit_ids(&self) -> impl Iterator<Item = OwnerId> + use<> {
        PermitId::of_hold(&self.owner, self.permits).map(PermitId::to_owner)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_micros(self.valid_until.load(Ordering::Acquire))
    }

    /// Records that a request sent at `sent` confirmed the hold for `lease`. An expired hold stays expired.
    pub(crate) fn confirm_for(&self, lease: Lease, sent: Moment) {
        self.confirm_held(sent);
        self.extend_may_last(lease);
        // Locked as in `lost` and `is_valid`, so that neither runs between the check of the clock and the new
        // end.
        let state = self.state();
        // A shortening that may still take effect limits the lease.
        let lease = state.shortening.map_or(lease, |shortening| lease.min(shortening.lease));
        if clock::now() < self.valid_until() {
            self.valid_until.fetch_max(lease.local_end(sent).as_micros(), Ordering::AcqRel);
        }
    }

    /// Records that the store confirmed the hold in reply to a request sent at `sent`.
    pub(crate) fn confirm_held(&self, sent: Moment) {
        self.last_confirmed.fetch_max(sent.as_micros(), Ordering::AcqRel);
    }

    /// When the last request was sent that the store confirmed.
    pub(crate) fn last_confirmed(&self) -> Moment {
        Moment::from_micros(self.last_confirmed.load(Ordering::Acquire))
    }

    /// Limits the validity to `lease`, before a request that sets the lease is sent, until
    /// [`Self::end_shortening`].
    ///
    /// Returns `false` if a renewal is under way, whose reply could confirm a longer lease. Then the request
    /// must not be sent.
    pub(super) fn begin_shortening(&self, lease: Lease, now: Moment) -> bool {
        let mut state = self.state();
        if state.renewals_under_way > 0 {
            return false;
        }
        let earlier = state.shortening.filter(|earlier| earlier.is_in_doubt);
        state.shortening = Some(Shortening {
            lease: earlier.map_or(lease, |earlier| lease.min(earlier.lease)),
            is_in_doubt: earlier.is_some(),
        });
        self.valid_until.fetch_min(lease.local_end(now).as_micros(), Ordering::AcqRel);
        drop(state);
        // Tasks that wait for the end must wait for the earlier one.
        self.end_changed.notify_waiters();
        true
    }

    /// Ends the shortening: its request got a reply, or is in doubt.
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

    /// Records that a request for `lease` may have arrived by now.
    pub(crate) fn extend_may_last(&self, lease: Lease) {
        let end = clock::now() + lease.as_duration();
        self.may_last_until.fetch_max(end.as_micros(), Ordering::AcqRel);
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.state().status == HoldStatus::Held && clock::now() < self.valid_until()
    }

    /// Returns why the hold was lost, if it was. An expired lease counts before the watchdog has noticed it.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        let state = self.state();
        match state.status {
            HoldStatus::Lost(reason) => Some(reason),
            HoldStatus::Held if clock::now() < self.valid_until() => None,
            HoldStatus::Held if state.renewal.is_some() => {
                Some(LostReason::NotRenewed { unconfirmed_for: clock::now().since(self.last_confirmed()) })
            }
            HoldStatus::Held => Some(LostReason::Expired),
            HoldStatus::Ended => None,
        }
    }

    /// Waits until the hold is lost. Never returns if it is released first.
    ///
    /// Returns at the local end of the lease even without the watchdog, which may have ended with the
    /// client's runtime.
    pub(crate) async fn until_lost(&self) -> LostReason {
        loop {
            let mut end_changed = pin!(self.end_changed.notified());
            end_changed.as_mut().enable();
            if let Some(reason) = self.lost() {
                return reason;
            }
            if self.state().status == HoldStatus::Ended {
                return pending().await;
            }
            // A renewal moves the end. Then the loop waits for the new one.
            let ended = select(end_changed, Deadline::new(self.valid_until()));
            if clock::is_followed_and_paused() {
                // Tokio advances a paused clock to its own timers only.
                let rest = self.valid_until().since(clock::now());
                let _ = tokio::time::timeout(rest, ended).await;
            } else {
                ended.await;
            }
        }
    }

    /// Marks the hold as lost. Returns `false` if it was lost or had ended before.
    pub(crate) fn mark_lost(&self, reason: LostReason) -> bool {
        let mut state = self.state();
        if state.status != HoldStatus::Held {
            return false;
        }
        state.status = HoldStatus::Lost(reason);
        drop(state);
        self.end_changed.notify_waiters();
        true
    }
}

impl HoldState {
    /// The state of a new hold with one guard.
    fn new(lease_mode: LeaseMode) -> Self {
        let mut state = Self {
            status: HoldStatus::Held,
            guards: 0,
            confirmed_count: 1,
            unanswered_release: None,
            found_gone: false,
            renewed_guards: 0,
            renewal: None,
            fixed: Vec::new(),
            shortening: None,
            shortening_failed: false,
            appointment: None,
            renewals_under_way: 0,
            doubt: None,
            is_bound_to_owner: false,
        };
        state.add_guard(lease_mode);
        state
    }

    /// Returns `true` if the store has a count of one and no request may have changed that.
    fn is_as_granted(&self) -> bool {
        (self.confirmed_count, self.renewals_under_way) == (1, 0)
            && self.doubt.is_none()
            && self.unanswered_release.is_none()
            && !self.found_gone
    }

    pub(crate) fn add_guard(&mut self, lease_mode: LeaseMode) {
        self.guards += 1;
        match lease_mode {
            LeaseMode::Renewed(lease) => {
                self.renewed_guards += 1;
                self.renewal = Some(lease);
            }
            LeaseMode::Fixed(lease) => self.fixed.push((lease, clock::now() + lease.as_duration())),
        }
    }

    /// The lease that a pending shortening leaves.
    pub(super) fn shortened_to(&self) -> Option<Lease> {
        self.shortening.map(|shortening| shortening.lease)
    }

    /// How long the live guards need the hold, from now on. `None` if no guard needs it.
    pub(super) fn needed_lease(&self, now: Moment, renews: bool) -> Option<Lease> {
        let rest = self.fixed.iter().map(|(_, end)| end.since(now)).max();
        let fixed = rest.and_then(|rest| Lease::new(rest).ok());
        self.renewal.filter(|_| renews).max(fixed)
    }

    /// The longest fixed lease of the live guards.
    pub(super) fn longest_fixed_lease(&self) -> Option<Lease> {
        self.fixed.iter().map(|(lease, _)| *lease).max()
    }

    /// Removes one guard. Returns `true` if it was the last.
    pub(crate) fn remove_guard(&mut self, lease_mode: LeaseMode) -> bool {
        self.guards -= 1;
        match lease_mode {
            LeaseMode::Renewed(_) => self.renewed_guards -= 1,
            LeaseMode::Fixed(lease) => {
                // With several equal leases, removes the oldest entry, so that the rest errs on the long
                // side.
                let index = self.fixed.iter().position(|(fixed, _)| *fixed == lease);
                index.map(|index| self.fixed.remove(index));
            }
        }
        if self.renewed_guards == 0 {
            self.renewal = None;
        }
        if self.guards == 0 && self.status == HoldStatus::Held {
            self.status = HoldStatus::Ended;
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

    fn hold(lease_mode: LeaseMode) -> Arc<Hold> {
        let (name, owner) = (LockName::parse("n").expect("a good name"), OwnerId::from_wire("a:1"));
        Arc::new(Hold::granted(Claim::new(&name, &owner, 1), lease_mode, clock::now(), None))
    }

    fn lease(millis: u64) -> Lease {
        Lease::new(Duration::from_millis(millis)).expect("a good lease")
    }

    /// Without a watchdog, as when it has ended or its runtime does not run.
    #[test]
    fn the_end_of_the_lease_is_noticed_without_a_watchdog() {
        let hold = hold(LeaseMode::Renewed(lease(100)));
        let (sender, receiver) = mpsc::channel();
        thread::spawn({
            let hold = Arc::clone(&hold);
            move || {
                let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let reason = bare.block_on(hold.until_lost());
                sender.send((reason, clock::now() >= hold.valid_until())).expect("a receiver");
            }
        });
        // A confirmation moves the end.
        hold.confirm_for(lease(300), clock::now());
        let (reason, is_over) = receiver.recv_timeout(Duration::from_secs(10)).expect("lost");
        assert!(is_over && matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
        hold.confirm_for(lease(60_000), clock::now());
        assert!(!hold.is_valid(), "a lost hold became valid again");
    }

    #[tokio::test]
    async fn the_lease_end_of_a_released_hold_is_not_a_loss() {
        let lease_mode = LeaseMode::Fixed(lease(20));
        let hold = hold(lease_mode);
        let mut lost = Box::pin(hold.until_lost());
        assert!(lost.as_mut().now_or_never().is_none());
        hold.state().remove_guard(lease_mode);
        let outcome = tokio::time::timeout(Duration::from_millis(100), lost).await;
        assert!(outcome.is_err(), "released, not lost");
        assert!(hold.until_lost().now_or_never().is_none());
    }
}
