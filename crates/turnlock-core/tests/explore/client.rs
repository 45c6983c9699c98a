//! A client: its turns, and its requests on the network.

use crate::network::{Connection, Reply, Request, Step, Stray};
use crate::rules::{ClientProfile, Rules};
use crate::turn::{Outcome, Phase, Turn};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) turns_begun: u8,
    reentries_left: u8,
    /// The current turn, and older ones that are still being released in the background.
    pub(crate) turns: Vec<Turn>,
    pub(crate) connection: Connection,
    /// A multiset, sorted so that equal ones are one state.
    pub(crate) strays: Vec<Stray>,
}

/// A client considered a hold lost that was not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FalseLoss;

impl Client {
    pub(crate) fn new(profile: ClientProfile) -> Self {
        Self {
            turns_begun: 0,
            reentries_left: profile.reentries,
            turns: Vec::new(),
            connection: Connection::first(),
            strays: Vec::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.turns.is_empty() && self.connection.is_empty() && self.strays.is_empty()
    }

    pub(crate) fn may_begin(&self, profile: ClientProfile) -> bool {
        let may_overlap = profile.overlaps_turns && self.turns.iter().all(Turn::is_ending);
        self.turns_begun < profile.turns && (self.turns.is_empty() || may_overlap)
    }

    pub(crate) fn begin(&mut self) {
        self.turns_begun += 1;
        self.turns.push(Turn::new(self.turns_begun));
        self.send(self.turns.len() - 1, Step::Acquire { target: 1 });
    }

    /// The steps of a turn that the client may send now.
    pub(crate) fn possible_steps(&self, index: usize, profile: ClientProfile) -> Vec<Step> {
        self.turns[index].possible_steps(profile.renews, self.reentries_left > 0)
    }

    pub(crate) fn send(&mut self, index: usize, step: Step) {
        let turn = &mut self.turns[index];
        if turn.would_reenter(step) {
            self.reentries_left -= 1;
        }
        turn.send(step, self.connection.number);
        self.connection.requests.push_back(Request { turn: turn.number, step, awaited: true });
    }

    /// The caller gives up while an acquire is under way.
    pub(crate) fn cancel(&mut self, index: usize, rules: Rules) {
        let turn = &mut self.turns[index];
        if rules.undo_after_reply {
            turn.phase = Phase::Cancelled;
            return;
        }
        turn.phase = Phase::Undoing;
        turn.sent = None;
        let overtaken = self.connection.detach_requests(turn.number);
        self.add_strays(overtaken);
        self.send_final_releases();
    }

    /// The caller gives up while no request is under way.
    pub(crate) fn give_up(&mut self, index: usize) {
        self.end_unheld(index);
        self.send_final_releases();
    }

    /// The reply to the step of this turn times out. The connection stays.
    pub(crate) fn time_out(&mut self, index: usize) {
        self.connection.abandon_replies(self.turns[index].number);
        self.turns[index].lose_reply();
        self.send_final_releases();
    }

    pub(crate) fn break_connection(&mut self) {
        let strays = self.connection.break_off();
        self.add_strays(strays);
        for turn in &mut self.turns {
            turn.lose_reply();
        }
        self.send_final_releases();
    }

    /// Returns `true` if the arrival window of this turn may end.
    ///
    /// Not before the requests on the connection have arrived in order.
    pub(crate) fn may_close_window(&self, index: usize) -> bool {
        let turn = &self.turns[index];
        turn.waits_for_window() && !self.connection.has_abandoned_acquire(turn.number)
    }

    /// Ends the arrival window: no abandoned acquire of this turn can arrive any more.
    pub(crate) fn close_window(&mut self, index: usize) {
        let turn = &mut self.turns[index];
        turn.close_window();
        // Releases and renewals have no window: the protocol must tolerate them however late they arrive.
        let number = turn.number;
        self.strays.retain(|stray| stray.request.turn != number || !stray.request.step.is_acquire());
    }

    pub(crate) fn receive(&mut self, reply: Reply, rules: Rules) -> Result<(), FalseLoss> {
        let number = reply.request.turn;
        let Some(index) = self.turns.iter().position(|turn| turn.number == number) else {
            return Ok(());
        };
        let turn = &mut self.turns[index];
        match turn.receive(reply.value, rules) {
            Outcome::Continues => {}
            Outcome::NeverHeld => self.end_unheld(index),
            Outcome::Lost if !turn.expired => return Err(FalseLoss),
            Outcome::Lost if rules.undo_when_lost => self.end_unheld(index),
            Outcome::Lost | Outcome::Ended => {
                self.turns.remove(index);
            }
        }
        self.send_final_releases();
        Ok(())
    }

    /// Ends a turn that holds nothing. It needs an undo only if one of its acquires may still arrive.
    fn end_unheld(&mut self, index: usize) {
        if self.turns[index].doubt.is_some() {
            self.turns[index].phase = Phase::Undoing;
        } else {
            self.turns.remove(index);
        }
    }

    /// Sends the final release of each ending turn, at once and again until the turn has ended.
    fn send_final_releases(&mut self) {
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
