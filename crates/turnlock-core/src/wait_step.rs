//! What a waiter at the front of the local queue does next: send, subscribe, or sleep.
//!
//! A wake-up is a hint and never a grant. So a refused waiter first subscribes, then sends its request again,
//! since the lock may have been released in between. Then it sleeps until a message, the end of the holder's
//! lease, or the poll interval, which bounds what a lost message can cost.

use std::time::Duration;

use crate::Moment;
use crate::planted::Bug;

/// What a waiter at the front of the queue knows.
#[derive(Clone, Debug)]
pub struct WaitView {
    /// Since when it has been at the front.
    pub head_since: Moment,
    /// When it last sent a request, and the rest of the holder's lease in the reply, if the holder has one.
    pub refused: Option<(Moment, Option<Duration>)>,
    /// `true` while releases by other clients are subscribed to.
    pub listening: bool,
    /// `true` if a message, a local release or a reconnect came since the last request.
    pub hint: bool,
    /// `true` while this process itself holds the lock, as far as it knows.
    pub held_here: bool,
    /// Until when it yields to other processes.
    pub not_before: Moment,
    /// The longest time between two requests.
    pub poll: Duration,
    /// For kinds that publish no releases: the pause after a refusal.
    pub pause: Option<Duration>,
}

/// The next move of a waiter at the front of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMove {
    /// Send the acquire request to the store.
    Send,
    /// Subscribe to releases, then decide again.
    Listen,
    /// Sleep until then, or until a hint.
    SleepUntil(Moment),
}

/// How long the front relies on a local hold to be released locally.
///
/// During that time it neither sends a request nor subscribes. While a local hold lasts, this is also the
/// shortest time between two requests.
pub const TRUST_LOCAL_HOLD: Duration = Duration::from_millis(100);

/// The shortest sleep after a refusal, for a holder whose lease has under a millisecond left.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Decides the next move.
pub fn next_move(now: Moment, view: &WaitView) -> WaitMove {
    let last_request = view.refused.map_or(view.head_since, |(sent, _)| sent);
    if view.held_here {
        // A local release wakes the queue directly, so the messages that it causes need no request of their
        // own.
        let trusted = last_request + TRUST_LOCAL_HOLD;
        if now < trusted {
            return WaitMove::SleepUntil(trusted);
        }
    }
    if now < view.not_before {
        return WaitMove::SleepUntil(view.not_before);
    }
    let can_listen = view.pause.is_none() && !view.listening;
    let Some((sent, ttl)) = view.refused else {
        return if view.held_here && can_listen { WaitMove::Listen } else { WaitMove::Send };
    };
    if can_listen {
        return WaitMove::Listen;
    }
    let longest = view.pause.unwrap_or(view.poll);
    if let Some(ttl) = ttl.filter(|_| Bug::WakeUpsIgnored.is_planted()) {
        return if now >= sent + ttl { WaitMove::Send } else { WaitMove::SleepUntil(sent + ttl) };
    }
    let next_request = sent + ttl.unwrap_or(longest).clamp(SHORTEST_SLEEP, longest.max(SHORTEST_SLEEP));
    if view.hint || now >= next_request { WaitMove::Send } else { WaitMove::SleepUntil(next_request) }
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
    fn a_new_waiter_at_the_front_sends_at_once() {
        assert_eq!(next_move(START, &fresh()), WaitMove::Send);
    }

    #[test]
    fn a_refused_waiter_subscribes_then_sends_again_then_sleeps() {
        let view = WaitView { listening: false, ..refused(Some(500)) };
        assert_eq!(next_move(START, &view), WaitMove::Listen);
        let view = WaitView { hint: true, ..refused(Some(500)) };
        assert_eq!(next_move(START, &view), WaitMove::Send);
        assert_eq!(next_move(START, &refused(Some(500))), WaitMove::SleepUntil(at(500)));
        assert_eq!(next_move(at(500), &refused(Some(500))), WaitMove::Send);
    }

    #[test]
    fn a_sleep_is_bounded_by_the_poll_interval_whatever_the_lease() {
        for ttl in [None, Some(60_000), Some(1_000)] {
            assert_eq!(next_move(START, &refused(ttl)), WaitMove::SleepUntil(at(1_000)));
        }
        assert_eq!(next_move(START, &refused(Some(0))), WaitMove::SleepUntil(at(1)));
    }

    #[test]
    fn without_messages_a_pause_replaces_the_subscription() {
        let pause = Some(Duration::from_millis(8));
        let spin = |ttl| WaitView { pause, listening: false, ..refused(ttl) };
        assert_eq!(next_move(START, &spin(Some(500))), WaitMove::SleepUntil(at(8)));
        assert_eq!(next_move(START, &spin(Some(3))), WaitMove::SleepUntil(at(3)));
        assert_eq!(next_move(at(8), &spin(None)), WaitMove::Send);
        let local = WaitView { pause, held_here: true, ..fresh() };
        assert_eq!(next_move(START, &local), WaitMove::SleepUntil(at(100)));
        assert_eq!(next_move(at(100), &local), WaitMove::Send);
    }

    #[test]
    fn a_yielding_waiter_neither_sends_nor_subscribes() {
        let yielding = WaitView { not_before: at(2), hint: true, ..fresh() };
        assert_eq!(next_move(at(1), &yielding), WaitMove::SleepUntil(at(2)));
        assert_eq!(next_move(at(2), &yielding), WaitMove::Send);
        let yielding = WaitView { not_before: at(2), hint: true, ..refused(Some(500)) };
        assert_eq!(next_move(at(1), &yielding), WaitMove::SleepUntil(at(2)));
        assert_eq!(next_move(at(2), &yielding), WaitMove::Send);
    }

    #[test]
    fn a_local_hold_is_trusted_then_subscribed_then_polled() {
        let local = WaitView { held_here: true, ..fresh() };
        assert_eq!(next_move(START, &local), WaitMove::SleepUntil(at(100)));
        assert_eq!(next_move(at(100), &local), WaitMove::Listen);
        assert_eq!(next_move(at(100), &WaitView { listening: true, ..local }), WaitMove::Send);
        let local = WaitView { held_here: true, hint: true, ..refused(Some(30_000)) };
        assert_eq!(next_move(at(99), &local), WaitMove::SleepUntil(at(100)));
        assert_eq!(next_move(at(100), &local), WaitMove::Send);
        let local = WaitView { hint: false, ..local };
        assert_eq!(next_move(at(100), &local), WaitMove::SleepUntil(at(1_000)));
    }
}
