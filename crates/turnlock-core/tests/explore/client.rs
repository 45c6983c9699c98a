//! A client: what it believes, what it may do next, and what it makes of an answer.

use std::time::Duration;

use turnlock_core::model::{Acquired, Released, Renewed};
use turnlock_core::verdict::{NotHeld, not_held};
use turnlock_core::{Doubt, Moment};

use crate::network::{Answer, Connection, Reply, Request, Step, Stray};
use crate::rules::Rules;

/// How long a request may still arrive. Its length means nothing here: it closes when the exploration says so.
const WINDOW: Duration = Duration::from_secs(1);
/// The number of a connection that nobody uses, to ask whether time alone settles a doubt.
const ELSEWHERE: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) turns_begun: u8,
    pub(crate) reentries_left: u8,
    /// The turn that it is in, and older ones whose end it still sees to in the background.
    pub(crate) turns: Vec<Turn>,
    pub(crate) connection: Connection,
    /// Kept sorted: it is a bag, and two orders of it are one state.
    pub(crate) strays: Vec<Stray>,
}

/// One outermost hold, from the first acquire to the end that is certain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Turn {
    pub(crate) number: u8,
    pub(crate) phase: Phase,
    /// The step that was sent and has no answer yet. There is never a second one.
    pub(crate) sent: Option<Sent>,
    /// The step to send again: it got no answer, or an answer that settled nothing.
    pub(crate) again: Option<Step>,
    /// Acquires that may still arrive.
    pub(crate) doubt: Option<Doubt>,
    /// The time of the doubts of this turn; it moves when their window closes.
    pub(crate) now: Moment,
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
enum Outcome {
    GoesOn,
    Finished,
    /// The server says that the hold is gone.
    Lost,
}

/// A client took a hold for lost that was not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FalseLoss;

impl Client {
    pub(crate) fn new(reentries_left: u8) -> Self {
        Self {
            turns_begun: 0,
            reentries_left,
            turns: Vec::new(),
            connection: Connection::first(),
            strays: Vec::new(),
        }
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.turns.is_empty() && self.connection.is_empty() && self.strays.is_empty()
    }

    /// A turn may begin while an older one is still being ended: they have different owners.
    pub(crate) fn may_begin(&self, rules: Rules) -> bool {
        self.turns.iter().all(|turn| rules.new_number_for_every_hold && turn.is_ending())
    }

    pub(crate) fn begin(&mut self) {
        self.turns_begun += 1;
        self.turns.push(Turn::new(self.turns_begun));
        let index = self.turns.len() - 1;
        self.send(index, Step::Acquire { target: 1 });
    }

    pub(crate) fn send(&mut self, index: usize, step: Step) {
        let turn = &mut self.turns[index];
        if let (Phase::Holding { .. }, Step::Release { target: 0 }) = (turn.phase, step) {
            turn.phase = Phase::Releasing;
        }
        if let (Phase::Holding { count }, Step::Acquire { target }) = (turn.phase, step)
            && target > count
            && turn.again.is_none()
        {
            self.reentries_left -= 1;
        }
        turn.sent = Some(Sent {
            step,
            connection: self.connection.number,
            at: turn.now,
            resent: turn.again == Some(step),
        });
        turn.again = None;
        self.connection.requests.push_back(Request { turn: turn.number, step, awaited: true });
    }

    /// The caller wants the lock no longer, while an acquire is on its way.
    pub(crate) fn cancel(&mut self, index: usize, rules: Rules) {
        let turn = &mut self.turns[index];
        if rules.undo_after_answer {
            turn.phase = Phase::Cancelled;
        } else {
            turn.phase = Phase::Undoing;
            turn.sent = None;
            let number = turn.number;
            let overtaken = self.connection.let_overtake(number);
            self.add_strays(overtaken);
        }
    }

    /// The caller wants the lock no longer, while nothing is on its way.
    pub(crate) fn give_up(&mut self, index: usize) {
        let turn = &mut self.turns[index];
        turn.phase = Phase::Undoing;
        self.drop_turn_without_traces(index);
    }

    /// No answer to the step of this turn came in time; the connection stays.
    pub(crate) fn time_out(&mut self, index: usize) {
        self.connection.stop_listening(self.turns[index].number);
        self.turns[index].hear_nothing();
    }

    pub(crate) fn break_connection(&mut self) {
        let strays = self.connection.break_off();
        self.add_strays(strays);
        for turn in &mut self.turns {
            turn.hear_nothing();
        }
    }

    /// From now on no acquire of this turn that was ever given up on can arrive.
    pub(crate) fn close_window(&mut self, index: usize) {
        let turn = &mut self.turns[index];
        turn.now = turn.now + WINDOW;
        let number = turn.number;
        // Releases and renewals have no window: the protocol must bear them however late they come.
        self.strays.retain(|stray| stray.request.turn != number || !stray.request.step.is_acquire());
    }

    /// Whether time may pass the window of this turn: not before what is in order has arrived in order.
    pub(crate) fn may_close_window(&self, index: usize) -> bool {
        let turn = &self.turns[index];
        turn.doubt.is_some_and(|doubt| !doubt.is_settled_by(ELSEWHERE, turn.now))
            && !self.connection.has_abandoned_acquire(turn.number)
    }

    pub(crate) fn hear(&mut self, reply: Reply, rules: Rules) -> Result<(), FalseLoss> {
        let number = reply.request.turn;
        let Some(index) = self.turns.iter().position(|turn| turn.number == number) else {
            return Ok(());
        };
        let turn = &mut self.turns[index];
        match turn.hear(reply.answer, rules) {
            Outcome::GoesOn => {}
            Outcome::Finished => {
                self.turns.remove(index);
            }
            Outcome::Lost if !turn.expired => return Err(FalseLoss),
            Outcome::Lost => {
                turn.phase = Phase::Undoing;
                turn.again = None;
                if !rules.undo_when_lost {
                    turn.doubt = None;
                }
                self.drop_turn_without_traces(index);
            }
        }
        Ok(())
    }

    /// A turn that has nothing on the server, and nothing on the way there, needs no undo.
    fn drop_turn_without_traces(&mut self, index: usize) {
        if self.turns[index].doubt.is_none() {
            self.turns.remove(index);
        }
    }

    fn add_strays(&mut self, strays: Vec<Stray>) {
        self.strays.extend(strays);
        self.strays.sort_unstable();
    }
}

impl Turn {
    fn new(number: u8) -> Self {
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

    fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Releasing | Phase::Undoing)
    }

    /// Whether the client knows all there is to know: nothing is on its way, and nothing can still arrive.
    pub(crate) fn is_certain(&self) -> bool {
        self.sent.is_none() && self.again.is_none() && self.doubt.is_none()
    }

    /// The steps that a correct client may send now.
    pub(crate) fn possible_steps(&self, reentries_left: u8) -> Vec<Step> {
        if self.sent.is_some() {
            return Vec::new();
        }
        match (self.phase, self.again) {
            (Phase::Asking, _) => vec![Step::Acquire { target: 1 }],
            (Phase::Cancelled, _) => Vec::new(),
            // A reentry in doubt is tried again or taken back.
            (Phase::Holding { count }, Some(step @ Step::Acquire { .. })) => {
                vec![step, Step::Release { target: count }]
            }
            (Phase::Holding { .. }, Some(step)) => vec![step],
            (Phase::Holding { count }, None) => {
                let mut steps = vec![Step::Renew, Step::Release { target: count - 1 }];
                if reentries_left > 0 {
                    steps.push(Step::Acquire { target: count + 1 });
                }
                steps
            }
            (Phase::Releasing | Phase::Undoing, _) => vec![Step::Release { target: 0 }],
        }
    }

    fn hear_nothing(&mut self) {
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

    fn hear(&mut self, answer: Answer, rules: Rules) -> Outcome {
        let Some(sent) = self.sent.take() else {
            return Outcome::GoesOn;
        };
        if self.doubt.is_some_and(|doubt| doubt.is_settled_by(sent.connection, sent.at)) {
            self.doubt = None;
        }
        match answer {
            Answer::Acquired(acquired) => self.hear_acquired(acquired, sent, rules),
            Answer::Released(released) => self.hear_released(released, sent, rules),
            Answer::Renewed(Renewed::Renewed) => Outcome::GoesOn,
            Answer::Renewed(Renewed::NotHeld) => Outcome::Lost,
        }
    }

    fn hear_acquired(&mut self, acquired: Acquired, sent: Sent, rules: Rules) -> Outcome {
        match acquired {
            Acquired::Granted => {
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
            Acquired::Busy { .. } if self.phase == Phase::Cancelled => {
                self.phase = Phase::Undoing;
                if self.doubt.is_none() { Outcome::Finished } else { Outcome::GoesOn }
            }
            Acquired::Busy { .. } => Outcome::GoesOn,
            Acquired::Gone => Outcome::Lost,
        }
    }

    fn hear_released(&mut self, released: Released, sent: Sent, rules: Rules) -> Outcome {
        match self.phase {
            Phase::Holding { .. } => match (released, sent.step) {
                // An inner release that succeeded leaves a hold, so also a resend of it must find one.
                (Released::NotHeld, _) => Outcome::Lost,
                (_, Step::Release { target }) => {
                    self.phase = Phase::Holding { count: target };
                    Outcome::GoesOn
                }
                _ => Outcome::GoesOn,
            },
            Phase::Releasing if released == Released::NotHeld && is_lost(sent) => Outcome::Lost,
            _ if self.doubt.is_none() || !rules.undo_repeated => Outcome::Finished,
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
