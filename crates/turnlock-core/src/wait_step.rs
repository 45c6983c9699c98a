//! What the head of the local queue does next: ask, listen, or sleep.
//!
//! A wake-up is a hint and never a grant. So the head listens first, asks again, and then waits for a message, for the
//! holder's lease to end, or for the poll that bounds what a lost message can cost.

use std::time::Duration;

use crate::Moment;

/// What the head of the queue knows.
#[derive(Clone, Debug)]
pub struct WaitView {
    /// Since when it has been the head.
    pub head_since: Moment,
    /// When it last asked, and the rest of the holder's lease as of then, if the holder has one.
    pub refused: Option<(Moment, Option<Duration>)>,
    /// Whether releases by others are being listened for.
    pub listening: bool,
    /// Whether something happened since it last asked: a message, a local release, a new connection.
    pub hint: bool,
    /// Whether a hold of this very process is known to stand.
    pub held_here: bool,
    /// Until when others go first.
    pub not_before: Moment,
    /// The longest time between two looks.
    pub poll: Duration,
    /// Where nothing is told by messages: how long to pause after a refusal.
    pub pause: Option<Duration>,
}

/// The next move of the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMove {
    /// Ask the server.
    Ask,
    /// Listen for releases, then look again.
    Listen,
    /// Sleep until then, or until a hint.
    SleepUntil(Moment),
}

/// How long the head trusts that a hold of its own process will be released by its own process, before it starts to
/// listen for others that might end it; and the shortest time between two questions while such a hold stands.
pub const TRUST_LOCAL_HOLD: Duration = Duration::from_millis(100);

/// The shortest sleep after a refusal, for a holder whose lease has under a millisecond left.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Decides the next move.
pub fn next_move(now: Moment, view: &WaitView) -> WaitMove {
    let last_look = view.refused.map_or(view.head_since, |(asked, _)| asked);
    if view.held_here {
        // The local release is told directly, so the messages that it causes need no question of their own.
        let trusted = last_look + TRUST_LOCAL_HOLD;
        if now < trusted {
            return WaitMove::SleepUntil(trusted);
        }
    }
    if now < view.not_before {
        return WaitMove::SleepUntil(view.not_before);
    }
    let can_listen = view.pause.is_none() && !view.listening;
    let Some((asked, ttl)) = view.refused else {
        return if view.held_here && can_listen { WaitMove::Listen } else { WaitMove::Ask };
    };
    if can_listen {
        return WaitMove::Listen;
    }
    let longest = view.pause.unwrap_or(view.poll);
    let look_again = asked + ttl.unwrap_or(longest).clamp(SHORTEST_SLEEP, longest.max(SHORTEST_SLEEP));
    if view.hint || now >= look_again { WaitMove::Ask } else { WaitMove::SleepUntil(look_again) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_micros(0);
    const POLL: Duration = Duration::from_secs(1);

    fn fresh() -> WaitView {
        WaitView {
            head_since: START,
            refused: None,
            listening: false,
            hint: false,
            held_here: false,
            not_before: START,
            poll: POLL,
            pause: None,
        }
    }

    fn refused(ttl_ms: Option<u64>) -> WaitView {
        WaitView { refused: Some((START, ttl_ms.map(Duration::from_millis))), listening: true, ..fresh() }
    }

    fn at(ms: u64) -> Moment {
        START + Duration::from_millis(ms)
    }

    #[test]
    fn a_new_head_asks_at_once() {
        assert_eq!(next_move(START, &fresh()), WaitMove::Ask);
    }

    #[test]
    fn a_refused_head_listens_then_asks_again_then_sleeps() {
        let view = WaitView { listening: false, ..refused(Some(500)) };
        assert_eq!(next_move(START, &view), WaitMove::Listen);
        let view = WaitView { hint: true, ..refused(Some(500)) };
        assert_eq!(next_move(START, &view), WaitMove::Ask);
        assert_eq!(next_move(START, &refused(Some(500))), WaitMove::SleepUntil(at(500)));
        assert_eq!(next_move(at(500), &refused(Some(500))), WaitMove::Ask);
    }

    #[test]
    fn a_sleep_is_bounded_by_the_poll_whatever_the_lease_says() {
        for ttl in [None, Some(60_000), Some(1_000)] {
            assert_eq!(next_move(START, &refused(ttl)), WaitMove::SleepUntil(at(1_000)));
        }
        assert_eq!(next_move(START, &refused(Some(0))), WaitMove::SleepUntil(at(1)));
    }

    #[test]
    fn where_nothing_is_told_a_pause_takes_the_place_of_listening() {
        let pause = Some(Duration::from_millis(8));
        let spin = |ttl| WaitView { pause, listening: false, ..refused(ttl) };
        assert_eq!(next_move(START, &spin(Some(500))), WaitMove::SleepUntil(at(8)));
        assert_eq!(next_move(START, &spin(Some(3))), WaitMove::SleepUntil(at(3)));
        assert_eq!(next_move(at(8), &spin(None)), WaitMove::Ask);
        let local = WaitView { pause, held_here: true, ..fresh() };
        assert_eq!(next_move(START, &local), WaitMove::SleepUntil(at(100)));
        assert_eq!(next_move(at(100), &local), WaitMove::Ask);
    }

    #[test]
    fn whoever_lets_others_go_first_neither_asks_nor_listens_meanwhile() {
        let polite = WaitView { not_before: at(2), hint: true, ..fresh() };
        assert_eq!(next_move(at(1), &polite), WaitMove::SleepUntil(at(2)));
        assert_eq!(next_move(at(2), &polite), WaitMove::Ask);
        let polite = WaitView { not_before: at(2), hint: true, ..refused(Some(500)) };
        assert_eq!(next_move(at(1), &polite), WaitMove::SleepUntil(at(2)));
        assert_eq!(next_move(at(2), &polite), WaitMove::Ask);
    }

    #[test]
    fn a_local_hold_is_trusted_then_listened_around_then_polled() {
        let local = WaitView { held_here: true, ..fresh() };
        assert_eq!(next_move(START, &local), WaitMove::SleepUntil(at(100)));
        assert_eq!(next_move(at(100), &local), WaitMove::Listen);
        assert_eq!(next_move(at(100), &WaitView { listening: true, ..local }), WaitMove::Ask);
        let local = WaitView { held_here: true, hint: true, ..refused(Some(30_000)) };
        assert_eq!(next_move(at(99), &local), WaitMove::SleepUntil(at(100)));
        assert_eq!(next_move(at(100), &local), WaitMove::Ask);
        let local = WaitView { hint: false, ..local };
        assert_eq!(next_move(at(100), &local), WaitMove::SleepUntil(at(1_000)));
    }
}
