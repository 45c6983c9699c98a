//! The life of a hold, from its grant until the store no longer has it.
//!
//! [`HoldState::next`] is the only place that decides what a release, a lost reply, a hand-over or a loss does to a
//! hold. It is a table of phases and events; the engine executes the [`Action`]s. The tests of this module list every
//! pair of a phase and an event.
//!
//! ```text
//! Held ── last guard ends ──> Releasing ── no reply ──> InDoubt ── a later reply ──> Released
//!  │                              └─ confirmed ──> Released, or Gone if the store did not have it
//!  ├── offered to a local waiter ──> Offered ── accepted ──> HandedOver (else as Releasing)
//!  ├── detached, or a delayed unlock ──> Left (as Releasing, if the store refuses the delayed unlock)
//!  └── lease ended, or the store reported it ──> Lost
//! ```

use crate::request::REPEATED_FOR;
use crate::{Doubt, Moment};

/// The state of a hold, as far as its release depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldState {
    /// Where the hold is in its life.
    pub phase: Phase,
    /// The number of live guards.
    pub guards: u32,
    /// The requests of this hold in doubt.
    pub doubt: Option<Doubt>,
}

/// Where a hold is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Guards use it.
    Held {
        /// The count that the store last confirmed, or may have: not below the number of guards.
        confirmed: u32,
    },
    /// The last guard has ended. A release is to be sent, or is under way.
    Releasing,
    /// A release to zero got no reply. A later "not held" may mean that it succeeded.
    InDoubt {
        /// When it was first sent.
        since: Moment,
    },
    /// The last guard has ended, and a local waiter may accept the hold. Until then a release can end it.
    Offered,
    /// A local waiter has accepted it under a hold of its own, so this one has nothing to release.
    HandedOver,
    /// The last guard was detached, or has a delayed unlock: the hold is left to its lease.
    Left,
    /// It was lost while a guard lived.
    Lost(Loss),
    /// The store did not have it when it was released.
    Gone,
    /// The store has released it, or it has expired there.
    Released,
}

/// How a loss was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The lease ended by the local clock. The store may still have the hold.
    LocalEnd,
    /// The store does not have the hold.
    Reported,
}

/// What happens to a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The store confirmed a reentry that raised the count to `target`.
    ReentryConfirmed {
        /// The count that was requested.
        target: u32,
    },
    /// A reentry got no reply. The store has the old count or `target`.
    ReentryInDoubt {
        /// The count that was requested.
        target: u32,
    },
    /// A guard was dropped or unlocked.
    GuardEnded,
    /// A guard was detached.
    GuardDetached,
    /// The only guard ends with a delayed unlock.
    UnlockDelayed,
    /// The only guard ends, to hand the hold over to a local waiter.
    HandOverOffered,
    /// A local waiter accepts the hold.
    HandOverAccepted,
    /// The hold was found to be lost.
    LossFound(Loss),
    /// A release is due: for the first time, or once more after a failure.
    ReleaseDue,
    /// The store lowered the count to `target`.
    ReleaseConfirmed {
        /// The count that was requested.
        target: u32,
    },
    /// The store replied to a release that it does not have the hold.
    ReleaseNotHeld {
        /// The count that was requested.
        target: u32,
    },
    /// A release got no reply, so it may have taken effect.
    ReleaseInDoubt {
        /// The count that was requested.
        target: u32,
        /// When it was sent.
        sent: Moment,
    },
    /// A release failed, and is not sent again by the same call.
    ReleaseFailed {
        /// The count that was requested.
        target: u32,
        /// A retry cannot help: the store refuses it.
        is_refused: bool,
    },
    /// The request of a delayed unlock is due.
    DelayedUnlockDue {
        /// The time at which the hold was to end.
        until: Moment,
    },
    /// The store replied to a delayed unlock that it does not have the hold.
    DelayedUnlockNotHeld,
    /// The store refused a delayed unlock, so the hold is released instead.
    DelayedUnlockRefused,
}

/// What a transition depends on besides the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The time of the event.
    pub now: Moment,
    /// The local end of the lease.
    pub valid_until: Moment,
    /// Until when the store may have the hold.
    pub may_last_until: Moment,
    /// `false` for permits without owners: the store remembers their requests for a limited time.
    pub is_leased: bool,
}

/// What to do after a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// The event is possible, and has changed the state.
    Allow,
    /// The event is not possible, and has changed nothing.
    Refuse,
    /// No guard is left: stop to renew.
    StopRenewal,
    /// Tell the guards, stop to renew, and wake the next waiter.
    ReportLoss,
    /// Send the request: a release with this count, or the delayed unlock.
    Send {
        /// The count to send.
        target: u32,
    },
    /// Return to the caller, and undo in the background what is in doubt.
    Finish {
        /// What the caller learns.
        report: Report,
        /// What is to be undone.
        undo: Option<Doubt>,
    },
}

/// What the caller of a release, a reentry or a delayed unlock learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Done.
    Done,
    /// The hold was lost before.
    Lost,
    /// The lease has ended by the local clock.
    Expired,
    /// The store does not have the hold.
    Gone,
    /// Not confirmed.
    InDoubt,
    /// Refused by the store.
    Refused,
    /// The hold has no guard.
    NotHeld,
}

impl HoldState {
    /// Creates the state of a new hold with one guard. `doubt` is about earlier copies of its request.
    pub fn granted(doubt: Option<Doubt>) -> Self {
        Self { phase: Phase::Held { confirmed: 1 }, guards: 1, doubt }
    }

    /// Returns `true` if guards use the hold, as far as known.
    pub fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held { .. })
    }

    /// Returns until when a release may be sent again.
    ///
    /// That is until the hold must have expired. A release of permits without owners counts once more if the store has
    /// forgotten an earlier copy.
    pub fn release_end(&self, facts: &Facts) -> Moment {
        facts.may_last_until.min(self.resend_end(facts))
    }

    /// Returns until when the store remembers an unanswered release of permits without owners.
    pub fn resend_end(&self, facts: &Facts) -> Moment {
        match self.phase {
            Phase::InDoubt { since } if !facts.is_leased => since + REPEATED_FOR,
            _ => Moment::NEVER,
        }
    }

    /// Returns the state after `event`, and what is to be done.
    #[must_use]
    #[expect(clippy::match_same_arms, reason = "the arms are the lines of a table, event by event")]
    pub fn next(self, event: Event, facts: &Facts) -> (Self, Action) {
        use Phase::{Gone, HandedOver, Held, InDoubt, Left, Lost, Offered, Released, Releasing};
        match (event, self.phase) {
            (Event::ReentryConfirmed { target }, Held { .. }) if facts.now < facts.valid_until => {
                // Guards may have ended since the request was sent, so the target is not their number.
                let guards = self.guards + 1;
                let confirmed = target.max(guards);
                (Self { guards, ..self.in_phase(Held { confirmed }) }, Action::Allow)
            }
            (Event::ReentryConfirmed { target }, Held { .. }) => {
                self.in_phase(Held { confirmed: target }).report(Report::Expired)
            }
            (Event::ReentryConfirmed { .. }, Lost(_)) => self.report(Report::Lost),
            // The release of the last guard waits for the reentry, and then ends the hold whatever its count is.
            (Event::ReentryConfirmed { .. }, _) => self.report(Report::NotHeld),

            (Event::ReentryInDoubt { target }, Held { .. }) => {
                (self.in_phase(Held { confirmed: target }), Action::None)
            }
            (Event::ReentryInDoubt { .. }, _) => (self, Action::None),

            (Event::GuardEnded, _) => self.without_guard(Releasing),
            (Event::GuardDetached, _) => self.without_guard(Left),
            (Event::UnlockDelayed, _) if self.guards > 1 => (self, Action::Refuse),
            (Event::UnlockDelayed, _) => self.without_guard(Left),

            // Only a hold that is as it was granted: no request may have changed it, or may still.
            (Event::HandOverOffered, Held { confirmed: 1 }) if self.guards == 1 && self.doubt.is_none() => {
                (Self { guards: 0, ..self.in_phase(Offered) }, Action::Allow)
            }
            (Event::HandOverAccepted, Offered) if self.doubt.is_none() => {
                (self.in_phase(HandedOver), Action::Allow)
            }
            (Event::HandOverOffered | Event::HandOverAccepted, _) => (self, Action::Refuse),

            (Event::LossFound(loss), Held { .. }) => (self.in_phase(Lost(loss)), Action::ReportLoss),
            (Event::LossFound(_), _) => (self, Action::None),

            (Event::ReleaseDue, Held { confirmed }) if confirmed > self.guards => self.send(self.guards),
            (Event::ReleaseDue, Held { .. }) => self.report(Report::Done),
            (Event::ReleaseDue, Lost(loss)) if self.guards == 0 => {
                self.finish_lost(loss, Report::Lost, facts)
            }
            (Event::ReleaseDue, Lost(_)) => self.report(Report::Lost),
            (Event::ReleaseDue, Releasing | InDoubt { .. } | Offered) => self.send(0),
            // A retry of the release of an earlier guard: what the last guard left must not end with it.
            (Event::ReleaseDue, Left) => self.report(Report::Done),
            (Event::ReleaseDue, Gone) => self.finish(Report::Gone, facts),
            (Event::ReleaseDue, HandedOver | Released) => self.finish(Report::Done, facts),

            (Event::ReleaseConfirmed { target: 0 }, _) => self.in_phase(Released).finish(Report::Done, facts),
            (Event::ReleaseConfirmed { target }, Held { .. }) => {
                self.in_phase(Held { confirmed: target }).report(Report::Done)
            }
            (Event::ReleaseConfirmed { .. }, _) => self.report(Report::Done),

            // A resend finds the effect of the first send, if the lease cannot have ended.
            (Event::ReleaseNotHeld { .. }, InDoubt { .. }) => {
                let report = if facts.now < facts.valid_until { Report::Done } else { Report::InDoubt };
                self.in_phase(Released).finish(report, facts)
            }
            (Event::ReleaseNotHeld { target: 0 }, _) => self.in_phase(Gone).finish(Report::Gone, facts),
            (Event::ReleaseNotHeld { .. }, Held { .. }) => {
                (self.in_phase(Lost(Loss::Reported)), Action::ReportLoss)
            }
            (Event::ReleaseNotHeld { .. }, Lost(_)) => self.report(Report::Gone),
            // The last guard has ended since.
            (Event::ReleaseNotHeld { .. }, _) => self.in_phase(Gone).report(Report::Gone),

            // Only a release to zero removes the hold, so only then can "not held" mean its success.
            (Event::ReleaseInDoubt { target: 0, sent }, Releasing | Offered) => {
                (self.in_phase(InDoubt { since: sent }), Action::None)
            }
            (Event::ReleaseInDoubt { .. }, _) => (self, Action::None),

            (Event::ReleaseFailed { target, is_refused }, _) => {
                let report = if is_refused { Report::Refused } else { Report::InDoubt };
                if target == 0 { self.finish(report, facts) } else { self.report(report) }
            }

            (Event::DelayedUnlockDue { .. }, Lost(loss)) => self.finish_lost(loss, Report::Lost, facts),
            // Not confirmed in time, so the hold may last longer than requested. It is released now.
            (Event::DelayedUnlockDue { until }, _) if facts.now >= until => {
                self.finish_lost(Loss::LocalEnd, Report::InDoubt, facts)
            }
            (Event::DelayedUnlockDue { .. }, _) if facts.now >= facts.may_last_until => {
                self.finish(Report::Expired, facts)
            }
            (Event::DelayedUnlockDue { .. }, _) => self.send(1),
            (Event::DelayedUnlockNotHeld, _) => self.finish(Report::Gone, facts),
            (Event::DelayedUnlockRefused, Left) => (self.in_phase(Releasing), Action::None),
            (Event::DelayedUnlockRefused, _) => (self, Action::None),
        }
    }

    fn in_phase(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    fn send(self, target: u32) -> (Self, Action) {
        (self, Action::Send { target })
    }

    fn report(self, report: Report) -> (Self, Action) {
        (self, Action::Finish { report, undo: None })
    }

    /// Ends one guard. After the last one, a hold that is not lost is in phase `last`.
    fn without_guard(self, last: Phase) -> (Self, Action) {
        let Some(guards) = self.guards.checked_sub(1) else { return (self, Action::Refuse) };
        let phase = if guards == 0 && self.is_held() { last } else { self.phase };
        (Self { phase, guards, ..self }, if guards == 0 { Action::StopRenewal } else { Action::None })
    }

    /// Reports, and undoes the requests in doubt of a hold that has ended.
    fn finish(self, report: Report, facts: &Facts) -> (Self, Action) {
        // The store may have forgotten the acquire of permits without owners. An undo would then void a granted
        // request.
        let undo = self.doubt.filter(|doubt| facts.is_leased || !doubt.has_expired_by(facts.now));
        (Self { doubt: None, ..self }, Action::Finish { report, undo })
    }

    /// Reports, and undoes what a lost hold may have left on the store.
    ///
    /// If the store reported the loss, only requests in doubt are left.
    fn finish_lost(self, loss: Loss, report: Report, facts: &Facts) -> (Self, Action) {
        let end = facts.may_last_until;
        let left =
            || self.doubt.map_or_else(|| Doubt::of_existing_hold(end), |doubt| doubt.lasting_until(end));
        let doubt = if loss == Loss::LocalEnd { Some(left()) } else { self.doubt };
        Self { doubt, ..self }.finish(report, facts)
    }
}

#[cfg(test)]
mod tests;
