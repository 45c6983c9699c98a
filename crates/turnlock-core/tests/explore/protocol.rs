//! Two clients, a server, and all actions that are possible between them.

use stateright::{Model, Property};
use turnlock_core::model::{LockState, Model as _, Now, Snapshot};
use turnlock_core::{Lease, Moment, OwnerId};

use crate::client::Client;
use crate::network::{Reply, ReplyValue, Request, Step};
use crate::properties;
use crate::rules::{Bounds, Faults, Rules};
use crate::turn::Phase;

/// The server's clock stands still: a lease expires by [`Action::Expire`] only, at any time.
const NOW: Moment = Moment::from_micros(0);

#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
    /// The owners of each client's turns, created once: formatting them would take most of the time.
    owners: [Vec<OwnerId>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) lock: LockState,
    pub(crate) clients: [Client; 2],
    pub(crate) faults_left: Faults,
    /// A safety violation that happened.
    pub(crate) violation: Option<Violation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Violation {
    /// A step changed the hold of another owner.
    OtherHoldChanged,
    /// A step removed a hold that its client considered valid and was not releasing.
    ValidHoldRemoved,
    /// A client considered its hold lost, and it had not expired.
    FalseLoss,
}

/// The numbers are those of the client, and of the turn or stray in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Begin(usize),
    Send(usize, usize, Step),
    Cancel(usize, usize),
    GiveUp(usize, usize),
    DeliverRequest(usize),
    DeliverReply(usize),
    DeliverStray(usize, usize),
    CloseWindow(usize, usize),
    TimeOut(usize, usize),
    Break(usize),
    Expire,
}

impl Protocol {
    pub(crate) fn new(rules: Rules, bounds: Bounds) -> Self {
        let owner = |client: &str, turn: u8| {
            let number = if rules.new_number_for_every_hold { turn } else { 1 };
            OwnerId::from_wire(&format!("{client}:{number}"))
        };
        let [first, second] = bounds.clients.map(|profile| 1..=profile.turns);
        Self {
            rules,
            bounds,
            owners: [
                first.map(|turn| owner("a", turn)).collect(),
                second.map(|turn| owner("b", turn)).collect(),
            ],
        }
    }

    pub(crate) fn owner(&self, client: usize, turn: u8) -> &OwnerId {
        &self.owners[client][usize::from(turn) - 1]
    }

    /// Executes one step on the server.
    fn apply(&self, state: &mut State, client: usize, request: Request) -> ReplyValue {
        let owner = self.owner(client, request.turn);
        let before = state.snapshot();
        let lock = &mut state.lock;
        let value = match self.resolve_relative_count(request.step, &before, owner) {
            Step::Acquire { target } => {
                ReplyValue::Acquired(lock.acquire(NOW, owner, target, Lease::WATCHDOG))
            }
            Step::Release { target } => ReplyValue::Released(lock.release(NOW, owner, target)),
            Step::Renew => ReplyValue::Renewed(lock.renew(NOW, owner, Some(Lease::WATCHDOG))),
        };
        let after = state.snapshot();
        state.violation = state.violation.or(self.violation_by(state, client, owner, &before, &after));
        value
    }

    /// With relative counts, the effect of a step depends on the count on the server.
    fn resolve_relative_count(&self, step: Step, before: &Snapshot, owner: &OwnerId) -> Step {
        let held = before.holders.iter().find(|holder| holder.owner == *owner);
        let Some(held) = held.filter(|_| !self.rules.absolute_counts) else {
            return step;
        };
        let count = u32::try_from(held.count).expect("counts are small here");
        match step {
            Step::Acquire { .. } => Step::Acquire { target: count + 1 },
            Step::Release { .. } => Step::Release { target: count - 1 },
            Step::Renew => Step::Renew,
        }
    }

    fn violation_by(
        &self,
        state: &State,
        client: usize,
        owner: &OwnerId,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Option<Violation> {
        let holder = before.holders.first()?;
        if holder.owner != *owner {
            return (before != after).then_some(Violation::OtherHoldChanged);
        }
        // A client that releases its hold does not consider it valid any more, so its own release is no
        // violation.
        let is_valid = state.clients[client]
            .turns
            .iter()
            .any(|turn| turn.is_holding() && self.owner(client, turn.number) == owner);
        (is_valid && after.holders.is_empty()).then_some(Violation::ValidHoldRemoved)
    }

    fn expire(&self, state: &mut State) {
        let held = state.snapshot();
        state.lock.expire();
        for client in 0..state.clients.len() {
            for turn in &mut state.clients[client].turns {
                let owner = self.owner(client, turn.number);
                turn.expired |= held.holders.iter().any(|holder| holder.owner == *owner);
            }
        }
    }

    fn actions_of(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[number];
        let profile = self.bounds.clients[number];
        if client.may_begin(profile) {
            actions.push(Action::Begin(number));
        }
        for (index, turn) in client.turns.iter().enumerate() {
            let steps = client.possible_steps(index, profile);
            actions.extend(steps.into_iter().map(|step| Action::Send(number, index, step)));
            match (turn.phase, turn.sent) {
                (Phase::Acquiring, Some(_)) => actions.push(Action::Cancel(number, index)),
                (Phase::Acquiring, None) => actions.push(Action::GiveUp(number, index)),
                _ => {}
            }
            if turn.sent.is_some() && state.faults_left.timeouts > 0 {
                actions.push(Action::TimeOut(number, index));
            }
            if client.may_close_window(index) {
                actions.push(Action::CloseWindow(number, index));
            }
        }
        if !client.connection.requests.is_empty() {
            actions.push(Action::DeliverRequest(number));
        }
        if !client.connection.replies.is_empty() {
            actions.push(Action::DeliverReply(number));
        }
        // A break while nothing is on its way or in doubt would change the number of the connection and
        // nothing else.
        let matters = !client.connection.is_empty() || client.turns.iter().any(|turn| turn.doubt.is_some());
        if matters && state.faults_left.breaks > 0 {
            actions.push(Action::Break(number));
        }
        actions.extend((0..client.strays.len()).map(|stray| Action::DeliverStray(number, stray)));
    }

    fn deliver_request(&self, state: &mut State, number: usize) -> Option<()> {
        let request = state.clients[number].connection.requests.pop_front()?;
        let value = self.apply(state, number, request);
        if request.awaited {
            let replies = &mut state.clients[number].connection.replies;
            replies.push_back(Reply { request, value });
        }
        Some(())
    }

    fn deliver_reply(&self, state: &mut State, number: usize) -> Option<()> {
        let client = &mut state.clients[number];
        let reply = client.connection.replies.pop_front()?;
        if client.receive(reply, self.rules).is_err() {
            state.violation = Some(Violation::FalseLoss);
        }
        Some(())
    }

    fn deliver_stray(&self, state: &mut State, number: usize, index: usize) {
        let mut stray = state.clients[number].strays.remove(index);
        self.apply(state, number, stray.request);
        stray.deliveries_left -= 1;
        stray.arrived_late = true;
        if stray.deliveries_left > 0 {
            let strays = &mut state.clients[number].strays;
            strays.push(stray);
            strays.sort_unstable();
        }
    }
}

impl State {
    pub(crate) fn snapshot(&self) -> Snapshot {
        // A snapshot can expire a lease, so it needs a mutable state. With this clock nothing expires.
        self.lock.clone().snapshot(Now { moment: NOW, wall: 0 })
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            lock: LockState::default(),
            clients: self.bounds.clients.map(Client::new),
            faults_left: self.bounds.faults,
            violation: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        for number in 0..state.clients.len() {
            self.actions_of(state, number, actions);
        }
        if state.faults_left.expiries > 0 && !state.snapshot().holders.is_empty() {
            actions.push(Action::Expire);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let clients = &mut state.clients;
        match action {
            Action::Begin(number) => clients[number].begin(),
            Action::Send(number, turn, step) => clients[number].send(turn, step),
            Action::Cancel(number, turn) => clients[number].cancel(turn, self.rules),
            Action::GiveUp(number, turn) => clients[number].give_up(turn),
            Action::DeliverRequest(number) => self.deliver_request(&mut state, number)?,
            Action::DeliverReply(number) => self.deliver_reply(&mut state, number)?,
            Action::DeliverStray(number, stray) => self.deliver_stray(&mut state, number, stray),
            Action::CloseWindow(number, turn) => clients[number].close_window(turn),
            Action::TimeOut(number, turn) => {
                clients[number].time_out(turn);
                state.faults_left.timeouts -= 1;
            }
            Action::Break(number) => {
                clients[number].break_connection();
                state.faults_left.breaks -= 1;
            }
            Action::Expire => {
                self.expire(&mut state);
                state.faults_left.expiries -= 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
