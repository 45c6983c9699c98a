//! One outermost hold: what the client believes, what it may do next, and what it makes of an answer.

use std::time::Duration;

use turnlock_core::model::{Acquired, Released, Renewed};
use turnlock_core::verdict::{NotHeld, not_held};
use turnlock_core::{Doubt, Moment};

use crate::network::{Answer, Step};
use crate::rules::Rules;

/// How long a request may still arrive. Its length means nothing here: it closes when the exploration says so.
const WINDOW: Duration = Duration::from_secs(1);
/// The number of a connection that nobody uses, to ask whether time alone settles a doubt.
const ELSEWHERE: u64 = u64::MAX;

/// One outermost hold, from the first acquire to an end that is certain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    pub(crate) number: u8,
    pub(crate) phase: Phase,
    /// The step that has no answer yet. There is never a second one.
    pub(crate) sent: Option<Sent>,
    /// The step to send again: it got no answer, or an answer that settled nothing.
    again: Option<Step>,
    /// Acquires that may still arrive.
    pub(crate) doubt: Option<Doubt>,
    /// The time of the doubt; it moves when its window closes.
    now: Moment,
    /// Whether a hold of this turn expired. The client does not know: only the properties may read it.
    pub(crate) expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// It wants the lock.
    Asking,
    /// It wants it no longer, but has to hear what became of its acquire.
    Cancelled,
    /// It believes that it holds.
    Holding { count: u32 },
    /// It gives back what it held.
    Releasing,
    /// It gives back what it may hold without wanting it.
    Undoing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    step: Step,
    connection: u64,
    at: Moment,
    resent: bool,
}

/// What an answer does to a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    GoesOn,
    /// It held nothing and wants nothing.
    NeverHeld,
    /// The server says that the hold is gone.
    Lost,
    /// Its last release was answered, and nothing is in doubt.
    Ended,
}

impl Turn {
    pub(crate) fn new(number: u8) -> Self {
        Self {
            number,
            phase: Phase::Asking,
            sent: None,
            again: None,
            doubt: None,
            now: Moment::default(),
            expired: false,
        }
    }

    pub(crate) fn believes(&self) -> bool {
        matches!(self.phase, Phase::Holding { .. })
    }

    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Releasing | Phase::Undoing)
    }

    /// Whether what is on its way was sent before.
    pub(crate) fn sends_again(&self) -> bool {
        self.sent.is_some_and(|sent| sent.resent)
    }

    /// Whether the client knows all there is to know: nothing is on its way, and nothing can still arrive.
    pub(crate) fn is_certain(&self) -> bool {
        self.sent.is_none() && self.again.is_none() && self.doubt.is_none()
    }

    pub(crate) fn possible_steps(&self, may_renew: bool, may_reenter: bool) -> Vec<Step> {
        if self.sent.is_some() {
            return Vec::new();
        }
        match (self.phase, self.again) {
            (Phase::Asking, _) => vec![Step::Acquire { target: 1 }],
            // A reentry in doubt is tried again or taken back.
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

    /// Whether `step` is a reentry that was not tried before.
    pub(crate) fn would_reenter(&self, step: Step) -> bool {
        self.believes() && step.is_acquire() && self.again.is_none()
    }

    pub(crate) fn send(&mut self, step: Step, connection: u64) {
        if self.believes() && step == (Step::Release { target: 0 }) {
            self.phase = Phase::Releasing;
        }
        self.sent = Some(Sent { step, connection, at: self.now, resent: self.again == Some(step) });
        self.again = None;
    }

    /// Whether the doubt is one that time has yet to settle.
    pub(crate) fn waits_for_window(&self) -> bool {
        self.doubt.is_some_and(|doubt| !doubt.is_settled_by(ELSEWHERE, self.now))
    }

    pub(crate) fn close_window(&mut self) {
        self.now = self.now + WINDOW;
    }

    /// The answer to the step on its way will not come.
    pub(crate) fn hear_nothing(&mut self) {
        let Some(sent) = self.sent.take() else { return };
        if sent.step.is_acquire() {
            // Dated from the moment of giving up, which is never too early.
            let doubt = Doubt::new(sent.connection, self.now, WINDOW);
            self.doubt = Some(self.doubt.map_or(doubt, |earlier| earlier.and(doubt)));
        }
        match self.phase {
            Phase::Asking => {}
            Phase::Cancelled => self.phase = Phase::Undoing,
            Phase::Holding { .. } if sent.step == Step::Renew => {}
            Phase::Holding { .. } | Phase::Releasing | Phase::Undoing => self.again = Some(sent.step),
        }
    }

    pub(crate) fn hear(&mut self, answer: Answer, rules: Rules) -> Outcome {
        let Some(sent) = self.sent.take() else {
            return Outcome::GoesOn;
        };
        self.settle(sent);
        match answer {
            Answer::Acquired(acquired) => self.hear_acquired(acquired, sent, rules),
            Answer::Released(released) => self.hear_released(released, sent, rules),
            Answer::Renewed(Renewed::Renewed | Renewed::Longer) => Outcome::GoesOn,
            Answer::Renewed(Renewed::NotHeld) => Outcome::Lost,
        }
    }

    /// Drops the doubt if the step that was answered came after every acquire in doubt, and left the count that the
    /// client believes in whatever they did. A renewal leaves what it finds, so it settles nothing.
    fn settle(&mut self, sent: Sent) {
        let came_last = |doubt: Doubt| doubt.is_settled_by(sent.connection, sent.at);
        if sent.step != Step::Renew && self.doubt.is_some_and(came_last) {
            self.doubt = None;
            // Only doubts look at the time, so without one all times are the same state.
            self.now = Moment::default();
        }
    }

    fn hear_acquired(&mut self, acquired: Acquired, sent: Sent, rules: Rules) -> Outcome {
        match acquired {
            Acquired::Granted | Acquired::GrantedWith { .. } => {
                if !rules.grant_keeps_doubt {
                    self.doubt = None;
                }
                self.phase = match (self.phase, sent.step) {
                    (Phase::Cancelled, _) => Phase::Undoing,
                    (_, Step::Acquire { target }) => Phase::Holding { count: target },
                    (phase, _) => phase,
                };
                Outcome::GoesOn
            }
            Acquired::Busy { .. } if self.phase == Phase::Cancelled => Outcome::NeverHeld,
            Acquired::Busy { .. } => Outcome::GoesOn,
            Acquired::Gone => Outcome::Lost,
        }
    }

    fn hear_released(&mut self, released: Released, sent: Sent, rules: Rules) -> Outcome {
        match (self.phase, sent.step) {
            // An inner release that succeeded leaves a hold, so also a resend of it must find one.
            (Phase::Holding { .. }, _) if released == Released::NotHeld => Outcome::Lost,
            (Phase::Holding { .. }, Step::Release { target }) => {
                self.phase = Phase::Holding { count: target };
                Outcome::GoesOn
            }
            (Phase::Releasing, _) if released == Released::NotHeld && is_lost(sent) => Outcome::Lost,
            _ if self.doubt.is_none() || !rules.undo_repeated => Outcome::Ended,
            _ => {
                self.again = Some(sent.step);
                Outcome::GoesOn
            }
        }
    }
}

/// What "not held" means to the release that was to end a hold. The local end is out of sight: a client that is past
/// it would be in doubt where this one says "released", and both are done with the hold.
fn is_lost(sent: Sent) -> bool {
    not_held(sent.resent, sent.at, Moment::NEVER) == NotHeld::Lost
}
