//! A client: its turns, and what it has on the way.

use crate::network::{Connection, Reply, Request, Step, Stray};
use crate::rules::{Habits, Rules};
use crate::turn::{Outcome, Phase, Turn};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) turns_begun: u8,
    reentries_left: u8,
    /// The turn that it is in, and older ones whose end it still sees to in the background.
    pub(crate) turns: Vec<Turn>,
    pub(crate) connection: Connection,
    /// Kept sorted: it is a bag, and two orders of it are one state.
    pub(crate) strays: Vec<Stray>,
}

/// A client took a hold for lost that was not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FalseLoss;

impl Client {
    pub(crate) fn new(habits: Habits) -> Self {
        Self {
            turns_begun: 0,
            reentries_left: habits.reentries,
            turns: Vec::new(),
            connection: Connection::first(),
            strays: Vec::new(),
        }
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.turns.is_empty() && self.connection.is_empty() && self.strays.is_empty()
    }

    pub(crate) fn may_begin(&self, habits: Habits) -> bool {
        let may_overlap = habits.hurries && self.turns.iter().all(Turn::is_ending);
        self.turns_begun < habits.turns && (self.turns.is_empty() || may_overlap)
    }

    pub(crate) fn begin(&mut self) {
        self.turns_begun += 1;
        self.turns.push(Turn::new(self.turns_begun));
        self.send(self.turns.len() - 1, Step::Acquire { target: 1 });
    }

    /// The steps of a turn that the caller may ask for now.
    pub(crate) fn possible_steps(&self, index: usize, habits: Habits) -> Vec<Step> {
        self.turns[index].possible_steps(habits.renews, self.reentries_left > 0)
    }

    pub(crate) fn send(&mut self, index: usize, step: Step) {
        let turn = &mut self.turns[index];
        if turn.would_reenter(step) {
            self.reentries_left -= 1;
        }
        turn.send(step, self.connection.number);
        self.connection.requests.push_back(Request { turn: turn.number, step, awaited: true });
    }

    /// The caller wants the lock no longer, while an acquire is on its way.
    pub(crate) fn cancel(&mut self, index: usize, rules: Rules) {
        let turn = &mut self.turns[index];
        if rules.undo_after_answer {
            turn.phase = Phase::Cancelled;
            return;
        }
        turn.phase = Phase::Undoing;
        turn.sent = None;
        let overtaken = self.connection.let_overtake(turn.number);
        self.add_strays(overtaken);
        self.see_to_ends();
    }

    /// The caller wants the lock no longer, while nothing is on its way.
    pub(crate) fn give_up(&mut self, index: usize) {
        self.end_unheld(index);
        self.see_to_ends();
    }

    /// No answer to the step of this turn came in time; the connection stays.
    pub(crate) fn time_out(&mut self, index: usize) {
        self.connection.stop_listening(self.turns[index].number);
        self.turns[index].hear_nothing();
        self.see_to_ends();
    }

    pub(crate) fn break_connection(&mut self) {
        let strays = self.connection.break_off();
        self.add_strays(strays);
        for turn in &mut self.turns {
            turn.hear_nothing();
        }
        self.see_to_ends();
    }

    /// Whether time may pass the window of this turn: not before what is in order has arrived in order.
    pub(crate) fn may_close_window(&self, index: usize) -> bool {
        let turn = &self.turns[index];
        turn.waits_for_window() && !self.connection.has_abandoned_acquire(turn.number)
    }

    /// From now on no acquire of this turn that was ever given up on can arrive.
    pub(crate) fn close_window(&mut self, index: usize) {
        let turn = &mut self.turns[index];
        turn.close_window();
        // Releases and renewals have no window: the protocol must bear them however late they come.
        let number = turn.number;
        self.strays.retain(|stray| stray.request.turn != number || !stray.request.step.is_acquire());
    }

    pub(crate) fn hear(&mut self, reply: Reply, rules: Rules) -> Result<(), FalseLoss> {
        let number = reply.request.turn;
        let Some(index) = self.turns.iter().position(|turn| turn.number == number) else {
            return Ok(());
        };
        let turn = &mut self.turns[index];
        match turn.hear(reply.answer, rules) {
            Outcome::GoesOn => {}
            Outcome::NeverHeld => self.end_unheld(index),
            Outcome::Lost if !turn.expired => return Err(FalseLoss),
            Outcome::Lost if rules.undo_when_lost => self.end_unheld(index),
            Outcome::Lost | Outcome::Ended => {
                self.turns.remove(index);
            }
        }
        self.see_to_ends();
        Ok(())
    }

    /// Ends a turn that holds nothing now. Only an acquire that may still arrive makes it need an undo.
    fn end_unheld(&mut self, index: usize) {
        if self.turns[index].doubt.is_some() {
            self.turns[index].phase = Phase::Undoing;
        } else {
            self.turns.remove(index);
        }
    }

    /// The last release of a turn does not wait for anybody: it is sent at once, and again, until the turn is ended.
    fn see_to_ends(&mut self) {
        for index in 0..self.turns.len() {
            if self.turns[index].is_ending() && self.turns[index].sent.is_none() {
                self.send(index, Step::Release { target: 0 });
            }
        }
    }

    fn add_strays(&mut self, strays: Vec<Stray>) {
        self.strays.extend(strays);
        self.strays.sort_unstable();
    }
}
