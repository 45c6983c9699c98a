//! One outermost hold as the client sees it: its state, its next steps, and how it handles replies.

use std::time::Duration;

use turnlock_core::hold_state::{self, Event, Facts, HoldState};
use turnlock_core::model::{Acquired, Released, Renewed};
use turnlock_core::{Doubt, Moment};

use crate::network::{ReplyValue, Step};
use crate::rules::Rules;

/// How long a request may still arrive. The exploration ends the window at any time, so its length does not
/// matter.
const WINDOW: Duration = Duration::from_secs(1);
/// A connection that no client uses, to check whether time alone settles a doubt.
const OTHER_CONNECTION: u64 = u64::MAX;

/// One outermost hold, from the first acquire to its certain end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    pub(crate) number: u8,
    pub(crate) phase: Phase,
    /// The step under way. There is at most one.
    pub(crate) sent: Option<Sent>,
    /// The step to resend: it got no reply, or one that settled nothing.
    resend: Option<Step>,
    /// Acquires that may still arrive.
    pub(crate) doubt: Option<Doubt>,
    /// The time by which doubts are checked. It moves when the window ends.
    now: Moment,
    /// `true` if a hold of this turn expired. The client does not know: only the properties may read it.
    pub(crate) expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// It sends acquires.
    Acquiring,
    /// The caller gave up, and the reply to the acquire is awaited.
    Cancelled,
    /// It considers the hold valid.
    Holding { count: u32 },
    /// It releases its hold.
    Releasing,
    /// It releases a hold that it may have and does not want.
    Undoing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    step: Step,
    connection: u64,
    at: Moment,
    resent: bool,
}

/// The effect of a reply on a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Continues,
    /// It held nothing, and the caller gave up.
    NeverHeld,
    /// The server replied that the hold is gone.
    Lost,
    /// Its final release got a reply, and nothing is in doubt.
    Ended,
}

impl Turn {
    pub(crate) fn new(number: u8) -> Self {
        Self {
            number,
            phase: Phase::Acquiring,
            sent: None,
            resend: None,
            doubt: None,
            now: Moment::default(),
            expired: false,
        }
    }

    pub(crate) fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Releasing | Phase::Undoing)
    }

    /// Returns `true` if the step under way was sent before.
    pub(crate) fn is_resending(&self) -> bool {
        self.sent.is_some_and(|sent| sent.resent)
    }

    /// Returns `true` if no step is under way, and none can still arrive.
    pub(crate) fn is_certain(&self) -> bool {
        self.sent.is_none() && self.resend.is_none() && self.doubt.is_none()
    }

    pub(crate) fn possible_steps(&self, may_renew: bool, may_reenter: bool) -> Vec<Step> {
        if self.sent.is_some() {
            return Vec::new();
        }
        match (self.phase, self.resend) {
            (Phase::Acquiring, _) => vec![Step::Acquire { target: 1 }],
            // A reentry in doubt is retried or undone.
            (Phase::Holding { count }, Some(step @ Step::Acquire { .. })) => {
                vec![step, Step::Release { target: count }]
            }
            (Phase::Holding { .. }, Some(step)) => vec![step],
            (Phase::Holding { count }, None) => {
                let mut steps = vec![Step::Release { target: count - 1 }];
                if may_reenter {
                    steps.push(Step::Acquire { target: count + 1 });
                }
                if may_renew {
                    steps.push(Step::Renew);
                }
                steps
            }
            (Phase::Cancelled | Phase::Releasing | Phase::Undoing, _) => Vec::new(),
        }
    }

    /// Returns `true` if `step` is a reentry that was not sent before.
    pub(crate) fn would_reenter(&self, step: Step) -> bool {
        self.is_holding() && step.is_acquire() && self.resend.is_none()
    }

    pub(crate) fn send(&mut self, step: Step, connection: u64) {
        if self.is_holding() && step == (Step::Release { target: 0 }) {
            self.phase = Phase::Releasing;
        }
        self.sent = Some(Sent { step, connection, at: self.now, resent: self.resend == Some(step) });
        self.resend = None;
    }

    /// Returns `true` if there is a doubt that time has yet to settle.
    pub(crate) fn waits_for_window(&self) -> bool {
        self.doubt.is_some_and(|doubt| !doubt.is_settled_by(OTHER_CONNECTION, self.now))
    }

    pub(crate) fn close_window(&mut self) {
        self.now = self.now + WINDOW;
    }

    /// The reply to the step under way will not arrive.
    pub(crate) fn lose_reply(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        if sent.step.is_acquire() {
            // Counted from now instead of from the send, which is never too early.
            let doubt = Doubt::new(sent.connection, self.now, WINDOW);
            self.doubt = Some(self.doubt.map_or(doubt, |earlier| earlier.and(doubt)));
        }
        match self.phase {
            Phase::Acquiring => {}
            Phase::Cancelled => self.phase = Phase::Undoing,
            Phase::Holding { .. } if sent.step == Step::Renew => {}
            Phase::Holding { .. } | Phase::Releasing | Phase::Undoing => self.resend = Some(sent.step),
        }
    }

    pub(crate) fn receive(&mut self, value: ReplyValue, rules: Rules) -> Outcome {
        let Some(sent) = self.sent.take() else {
            return Outcome::Continues;
        };
        self.settle(sent);
        match value {
            ReplyValue::Acquired(acquired) => self.receive_acquired(acquired, sent, rules),
            ReplyValue::Released(released) => self.receive_released(released, sent, rules),
            ReplyValue::Renewed(Renewed::Renewed | Renewed::Longer) => Outcome::Continues,
            ReplyValue::Renewed(Renewed::NotHeld) => Outcome::Lost,
        }
    }

    /// Drops the doubt if the step came after every acquire in doubt and set the count whatever they did.
    ///
    /// A renewal leaves the count as it is, so it settles nothing.
    fn settle(&mut self, sent: Sent) {
        let is_settled = |doubt: Doubt| doubt.is_settled_by(sent.connection, sent.at);
        if sent.step != Step::Renew && self.doubt.is_some_and(is_settled) {
            self.doubt = None;
            // Only doubts depend on the time, so without one all times are the same state.
            self.now = Moment::default();
        }
    }

    fn receive_acquired(&mut self, acquired: Acquired, sent: Sent, rules: Rules) -> Outcome {
        match acquired {
            Acquired::Granted | Acquired::GrantedWith { .. } => {
                if !rules.grant_preserves_doubt {
                    self.doubt = None;
                }
                self.phase = match (self.phase, sent.step) {
                    (Phase::Cancelled, _) => Phase::Undoing,
                    (_, Step::Acquire { target }) => Phase::Holding { count: target },
                    (phase, _) => phase,
                };
                Outcome::Continues
            }
            Acquired::Busy { .. } | Acquired::Queued if self.phase == Phase::Cancelled => Outcome::NeverHeld,
            Acquired::Busy { .. } | Acquired::Queued => Outcome::Continues,
            Acquired::Gone => Outcome::Lost,
        }
    }

    fn receive_released(&mut self, released: Released, sent: Sent, rules: Rules) -> Outcome {
        match (self.phase, sent.step) {
            // An inner release that succeeded leaves a hold, so a resend must find one, too.
            (Phase::Holding { .. }, _) if released == Released::NotHeld => Outcome::Lost,
            (Phase::Holding { .. }, Step::Release { target }) => {
                self.phase = Phase::Holding { count: target };
                Outcome::Continues
            }
            (Phase::Releasing, _) if released == Released::NotHeld && is_lost(sent) => Outcome::Lost,
            _ if self.doubt.is_none() || !rules.undo_repeated => Outcome::Ended,
            _ => {
                self.resend = Some(sent.step);
                Outcome::Continues
            }
        }
    }
}

/// Classifies the reply "not held" to a final release.
///
/// The local end is not modelled: past it, a client would be in doubt where this one has released, and both
/// are done with the hold.
fn is_lost(sent: Sent) -> bool {
    let phase = if sent.resent {
        hold_state::Phase::InDoubt { since: sent.at }
    } else {
        hold_state::Phase::Releasing
    };
    let (valid_until, may_last_until) = (Moment::NEVER, Moment::NEVER);
    let facts = Facts { now: sent.at, valid_until, may_last_until, is_leased: true };
    let releasing = HoldState { phase, guards: 0, doubt: None };
    releasing.next(Event::ReleaseNotHeld { target: 0 }, &facts).0.phase == hold_state::Phase::Gone
}
