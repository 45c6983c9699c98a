//! The properties: what must be true in every state, and what must happen in some.

use stateright::Property;

use crate::client::Client;
use crate::protocol::{Protocol, State, Violation};
use crate::turn::{Phase, Turn};

type ProtocolProperty = Property<Protocol>;

pub(crate) const COUNT_IS_RIGHT: &str = "the count is right";
pub(crate) const OTHER_HOLDS_UNCHANGED: &str = "no step changes the hold of another owner";
pub(crate) const VALID_HOLD_KEPT: &str = "no late step removes a hold that its client considers valid";
pub(crate) const LOSS_IS_TRUE: &str = "a hold reported as lost had expired";
pub(crate) const HOLDER_HAS_A_TURN: &str = "every hold has a turn that will end it";
pub(crate) const FREE_WHEN_IDLE: &str = "the lock is free when all clients are idle";
pub(crate) const ONE_AT_A_TIME: &str = "two clients consider the lock theirs only if a lease expired";

/// The safety properties: those checked by [`Property::always`].
pub(crate) const SAFETY: [&str; 7] = [
    COUNT_IS_RIGHT,
    OTHER_HOLDS_UNCHANGED,
    VALID_HOLD_KEPT,
    LOSS_IS_TRUE,
    HOLDER_HAS_A_TURN,
    FREE_WHEN_IDLE,
    ONE_AT_A_TIME,
];

pub(crate) fn all() -> Vec<ProtocolProperty> {
    vec![
        ProtocolProperty::always(COUNT_IS_RIGHT, |protocol, state| {
            turns(state).all(|(client, turn)| count_is_right(protocol, state, client, turn))
        }),
        ProtocolProperty::always(OTHER_HOLDS_UNCHANGED, |_, state| {
            state.violation != Some(Violation::OtherHoldChanged)
        }),
        ProtocolProperty::always(VALID_HOLD_KEPT, |_, state| {
            state.violation != Some(Violation::ValidHoldRemoved)
        }),
        ProtocolProperty::always(LOSS_IS_TRUE, |_, state| state.violation != Some(Violation::FalseLoss)),
        ProtocolProperty::always(HOLDER_HAS_A_TURN, |protocol, state| {
            is_free(state) || turns(state).any(|(client, turn)| holds(protocol, state, client, turn))
        }),
        // Follows from the property before, and is what a user would notice.
        ProtocolProperty::always(FREE_WHEN_IDLE, |_, state| {
            let all_idle = state.clients.iter().all(Client::is_idle);
            !all_idle || is_free(state)
        }),
        ProtocolProperty::always(ONE_AT_A_TIME, |_, state| {
            turns(state).filter(|(_, turn)| turn.is_holding() && !turn.expired).count() < 2
        }),
        ProtocolProperty::sometimes("both clients finish all turns", |protocol, state| {
            let mut clients = state.clients.iter().zip(protocol.bounds.clients);
            clients.all(|(client, profile)| client.turns_begun == profile.turns && client.is_idle())
        }),
        ProtocolProperty::sometimes("an acquire arrives late", |_, state| {
            let mut strays = state.clients.iter().flat_map(|client| &client.strays);
            strays.any(|stray| stray.arrived_late && stray.request.step.is_acquire())
        }),
        ProtocolProperty::sometimes("a repeated undo finds a hold to end", |protocol, state| {
            turns(state).any(|(client, turn)| {
                turn.phase == Phase::Undoing && turn.is_resending() && holds(protocol, state, client, turn)
            })
        }),
        ProtocolProperty::sometimes("a resend is granted, the first send in doubt", |_, state| {
            turns(state).any(|(_, turn)| turn.is_holding() && turn.doubt.is_some())
        }),
        ProtocolProperty::sometimes("a cancelled acquire is granted", |protocol, state| {
            turns(state)
                .any(|(client, turn)| turn.phase == Phase::Cancelled && holds(protocol, state, client, turn))
        }),
        ProtocolProperty::sometimes("a turn begins while the last one is being released", |_, state| {
            state.clients.iter().any(|client| client.turns.len() > 1)
        }),
        ProtocolProperty::sometimes("a lock is reentered", |_, state| {
            turns(state).any(|(_, turn)| turn.phase == Phase::Holding { count: 2 })
        }),
        ProtocolProperty::sometimes(
            "a client considers a lock its own that another client holds",
            |protocol, state| {
                turns(state).any(|(client, turn)| {
                    turn.is_holding() && !is_free(state) && !holds(protocol, state, client, turn)
                })
            },
        ),
    ]
}

/// A client without requests under way or in doubt has the count on the server that it assumes.
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

/// Returns `true` if the owner of this turn is the holder on the server.
fn holds(protocol: &Protocol, state: &State, client: usize, turn: &Turn) -> bool {
    let owner = protocol.owner(client, turn.number);
    state.snapshot().holders.iter().any(|holder| holder.owner == *owner)
}
