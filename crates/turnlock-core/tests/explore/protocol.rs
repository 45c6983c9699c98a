//! Two clients and a server, and everything that can happen between them.

use stateright::{Model, Property};
use turnlock_core::model::{LockState, Snapshot};
use turnlock_core::{Lease, Moment, OwnerId};

use crate::client::Client;
use crate::network::{Answer, Reply, Request, Step};
use crate::properties;
use crate::rules::{Bounds, Faults, Rules};
use crate::turn::Phase;

/// The server's clock stands still: a lease ends by [`Action::Expire`], at any time, and by nothing else.
const NOW: Moment = Moment::from_micros(0);

#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) rules: Rules,
    pub(crate) bounds: Bounds,
    /// The owners of each client's turns, made once: making their texts would take most of the time.
    owners: [Vec<OwnerId>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) lock: LockState,
    pub(crate) clients: [Client; 2],
    pub(crate) faults_left: Faults,
    /// Something that must not happen, and did.
    pub(crate) harm: Option<Harm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Harm {
    /// A step changed a hold of another owner.
    OthersHoldChanged,
    /// A step removed a hold that its client believed in and was not giving back.
    BelievedHoldRemoved,
    /// A client was told that its hold is lost, and it had not expired.
    FalseLoss,
}

/// Numbers are those of the client, and of the turn or stray in its list.
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
        let [first, second] = bounds.clients.map(|habits| 1..=habits.turns);
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

    /// The server takes one step.
    fn apply(&self, state: &mut State, client: usize, request: Request) -> Answer {
        let owner = self.owner(client, request.turn);
        let before = state.snapshot();
        let lock = &mut state.lock;
        let answer = match self.as_the_server_reads_it(request.step, &before, owner) {
            Step::Acquire { target } => Answer::Acquired(lock.acquire(NOW, owner, target, Lease::WATCHDOG)),
            Step::Release { target } => Answer::Released(lock.release(NOW, owner, target)),
            Step::Renew => Answer::Renewed(lock.renew(NOW, owner, Some(Lease::WATCHDOG))),
        };
        let after = state.snapshot();
        state.harm = state.harm.or(self.harm_done(state, client, owner, &before, &after));
        answer
    }

    /// With relative counts, what a step does depends on what the server has.
    fn as_the_server_reads_it(&self, step: Step, before: &Snapshot, owner: &OwnerId) -> Step {
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

    fn harm_done(
        &self,
        state: &State,
        client: usize,
        owner: &OwnerId,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Option<Harm> {
        let holder = before.holders.first()?;
        if holder.owner != *owner {
            return (before != after).then_some(Harm::OthersHoldChanged);
        }
        // A client that gives its hold back believes in it no longer, so its own current release is not meant here.
        let believed = state.clients[client]
            .turns
            .iter()
            .any(|turn| turn.believes() && self.owner(client, turn.number) == owner);
        (believed && after.holders.is_empty()).then_some(Harm::BelievedHoldRemoved)
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
        let habits = self.bounds.clients[number];
        if client.may_begin(habits) {
            actions.push(Action::Begin(number));
        }
        for (index, turn) in client.turns.iter().enumerate() {
            let steps = client.possible_steps(index, habits);
            actions.extend(steps.into_iter().map(|step| Action::Send(number, index, step)));
            match (turn.phase, turn.sent) {
                (Phase::Asking, Some(_)) => actions.push(Action::Cancel(number, index)),
                (Phase::Asking, None) => actions.push(Action::GiveUp(number, index)),
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
        // A break while nothing is on its way or in doubt would change the number of the connection and nothing else.
        let matters = !client.connection.is_empty() || client.turns.iter().any(|turn| turn.doubt.is_some());
        if matters && state.faults_left.breaks > 0 {
            actions.push(Action::Break(number));
        }
        actions.extend((0..client.strays.len()).map(|stray| Action::DeliverStray(number, stray)));
    }

    fn deliver_request(&self, state: &mut State, number: usize) -> Option<()> {
        let request = state.clients[number].connection.requests.pop_front()?;
        let answer = self.apply(state, number, request);
        if request.awaited {
            let replies = &mut state.clients[number].connection.replies;
            replies.push_back(Reply { request, answer });
        }
        Some(())
    }

    fn deliver_reply(&self, state: &mut State, number: usize) -> Option<()> {
        let client = &mut state.clients[number];
        let reply = client.connection.replies.pop_front()?;
        if client.hear(reply, self.rules).is_err() {
            state.harm = Some(Harm::FalseLoss);
        }
        Some(())
    }

    fn deliver_stray(&self, state: &mut State, number: usize, index: usize) {
        let mut stray = state.clients[number].strays.remove(index);
        self.apply(state, number, stray.request);
        stray.deliveries_left -= 1;
        stray.came_late = true;
        if stray.deliveries_left > 0 {
            let strays = &mut state.clients[number].strays;
            strays.push(stray);
            strays.sort_unstable();
        }
    }
}

impl State {
    pub(crate) fn snapshot(&self) -> Snapshot {
        // Looking could let a lease end, so the model wants it mutable; with this clock nothing ends.
        self.lock.clone().snapshot(NOW)
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
            harm: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.harm.is_some() {
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
