//! What must be true in every state, and what must happen in some.

use stateright::Property;

use crate::client::Client;
use crate::protocol::{Harm, Protocol, State};
use crate::turn::{Phase, Turn};

type Claim = Property<Protocol>;

pub(crate) const COUNT_IS_RIGHT: &str = "the count is right";
pub(crate) const OTHERS_UNHARMED: &str = "no step changes the hold of another owner";
pub(crate) const BELIEF_UNHARMED: &str = "no old step removes a hold that its client believes in";
pub(crate) const LOSS_IS_TRUE: &str = "what is called lost had expired";
pub(crate) const HOLDER_HAS_A_TURN: &str = "who holds has a turn that will end it";
pub(crate) const FREE_AT_REST: &str = "the lock is free when all is at rest";
pub(crate) const ONE_AT_A_TIME: &str = "two believe only if a lease ended";

/// The safety properties: all that [`Property::always`] is about.
pub(crate) const SAFETY: [&str; 7] = [
    COUNT_IS_RIGHT,
    OTHERS_UNHARMED,
    BELIEF_UNHARMED,
    LOSS_IS_TRUE,
    HOLDER_HAS_A_TURN,
    FREE_AT_REST,
    ONE_AT_A_TIME,
];

pub(crate) fn all() -> Vec<Claim> {
    vec![
        Claim::always(COUNT_IS_RIGHT, |protocol, state| {
            turns(state).all(|(client, turn)| count_is_right(protocol, state, client, turn))
        }),
        Claim::always(OTHERS_UNHARMED, |_, state| state.harm != Some(Harm::OthersHoldChanged)),
        Claim::always(BELIEF_UNHARMED, |_, state| state.harm != Some(Harm::BelievedHoldRemoved)),
        Claim::always(LOSS_IS_TRUE, |_, state| state.harm != Some(Harm::FalseLoss)),
        Claim::always(HOLDER_HAS_A_TURN, |protocol, state| {
            is_free(state) || turns(state).any(|(client, turn)| holds(protocol, state, client, turn))
        }),
        // Follows from the one before, and is what a user would notice.
        Claim::always(FREE_AT_REST, |_, state| {
            let at_rest = state.clients.iter().all(Client::is_at_rest);
            !at_rest || is_free(state)
        }),
        Claim::always(ONE_AT_A_TIME, |_, state| {
            turns(state).filter(|(_, turn)| turn.believes() && !turn.expired).count() < 2
        }),
        Claim::sometimes("both clients finish all turns", |protocol, state| {
            let mut clients = state.clients.iter().zip(protocol.bounds.clients);
            clients.all(|(client, habits)| client.turns_begun == habits.turns && client.is_at_rest())
        }),
        Claim::sometimes("an acquire comes late", |_, state| {
            let mut strays = state.clients.iter().flat_map(|client| &client.strays);
            strays.any(|stray| stray.came_late && stray.request.step.is_acquire())
        }),
        Claim::sometimes("an undo that is repeated finds something to undo", |protocol, state| {
            turns(state).any(|(client, turn)| {
                turn.phase == Phase::Undoing && turn.sends_again() && holds(protocol, state, client, turn)
            })
        }),
        Claim::sometimes("a resend is granted, the first send in doubt", |_, state| {
            turns(state).any(|(_, turn)| turn.believes() && turn.doubt.is_some())
        }),
        Claim::sometimes("a cancelled acquire is granted", |protocol, state| {
            turns(state)
                .any(|(client, turn)| turn.phase == Phase::Cancelled && holds(protocol, state, client, turn))
        }),
        Claim::sometimes("a turn begins while the last one is being ended", |_, state| {
            state.clients.iter().any(|client| client.turns.len() > 1)
        }),
        Claim::sometimes("a lock is reentered", |_, state| {
            turns(state).any(|(_, turn)| turn.phase == Phase::Holding { count: 2 })
        }),
        Claim::sometimes("a client believes in a hold that another has", |protocol, state| {
            turns(state).any(|(client, turn)| {
                turn.believes() && !is_free(state) && !holds(protocol, state, client, turn)
            })
        }),
    ]
}

/// A client that knows all there is to know has, on the server, the count that it believes in.
fn count_is_right(protocol: &Protocol, state: &State, client: usize, turn: &Turn) -> bool {
    let Phase::Holding { count } = turn.phase else {
        return true;
    };
    if turn.expired || !turn.is_certain() {
        return true;
    }
    let holders = state.snapshot().holders;
    let [holder] = &holders[..] else { return false };
    (&holder.owner, holder.count) == (protocol.owner(client, turn.number), u64::from(count))
}

fn turns(state: &State) -> impl Iterator<Item = (usize, &Turn)> {
    let clients = state.clients.iter().enumerate();
    clients.flat_map(|(number, client)| client.turns.iter().map(move |turn| (number, turn)))
}

fn is_free(state: &State) -> bool {
    state.snapshot().holders.is_empty()
}

/// Whether the server has this turn as the holder.
fn holds(protocol: &Protocol, state: &State, client: usize, turn: &Turn) -> bool {
    let owner = protocol.owner(client, turn.number);
    state.snapshot().holders.iter().any(|holder| holder.owner == *owner)
}
