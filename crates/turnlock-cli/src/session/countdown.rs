use std::time::{Duration, Instant};

use turnlock::LostReason;

use crate::run_arguments::OnLost;

/// The longest default time between TERM and KILL.
const MAX_DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// Limit of `--kill-after`, so that it can be added to an `Instant`.
const MAX_KILL_AFTER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The longest sleep between two checks of the clock: timers do not count the time that the machine is suspended.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Decides when to end the command: its lock ends, or a signal requests it.
pub(crate) struct Countdown {
    on_lost: OnLost,
    kill_after: Option<Duration>,
    /// Time between TERM and KILL when the lock ends: TERM is sent this long before the end.
    grace: Duration,
    /// Time of KILL if the command is being ended because of the lock.
    lock_deadline: Option<Instant>,
    /// Time of KILL if a signal requested the end and `--kill-after` is given.
    signal_deadline: Option<Instant>,
    has_warned: bool,
    has_killed: bool,
}

/// The current state of the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockState {
    /// When the lock ends if it is not renewed.
    pub(crate) valid_until: Instant,
    pub(crate) lost: Option<LostReason>,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Do nothing until this time.
    Wait(Instant),
    /// Warn that the lock is lost. The command continues.
    Warn,
    /// Send TERM: the lock ends, or has ended.
    Terminate,
    /// Send KILL.
    Kill,
}

impl Countdown {
    pub(crate) fn new(on_lost: OnLost, kill_after: Option<Duration>, lease: Duration) -> Self {
        let kill_after = kill_after.map(|time| time.min(MAX_KILL_AFTER));
        let grace = kill_after.unwrap_or_else(|| MAX_DEFAULT_GRACE.min(lease / 10));
        Self {
            on_lost,
            kill_after,
            grace,
            lock_deadline: None,
            signal_deadline: None,
            has_warned: false,
            has_killed: false,
        }
    }

    /// Records that TERM or INT was received. Starts the `--kill-after` timer, if it is given.
    pub(crate) fn stop_requested(&mut self, now: Instant) {
        if let Some(kill_after) = self.kill_after {
            self.signal_deadline.get_or_insert(now + kill_after);
        }
    }

    /// Returns `true` if the command got TERM or KILL because of the lock.
    pub(crate) fn is_ending(&self) -> bool {
        self.lock_deadline.is_some()
    }

    /// Time of KILL if the command is being ended because of the lock.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock_deadline
    }

    /// Returns the next action. Each of `Warn`, `Terminate` and `Kill` is returned at most once.
    pub(crate) fn next_action(&mut self, now: Instant, lock: LockState) -> Action {
        let is_over = lock.lost.is_some() || now >= lock.valid_until;
        if is_over && self.on_lost == OnLost::Warn && !self.has_warned {
            self.has_warned = true;
            return Action::Warn;
        }
        let was_ending = self.is_ending();
        self.update_deadline(now, lock, is_over);
        let kill = self.lock_deadline.into_iter().chain(self.signal_deadline).min();
        if !self.has_killed && kill.is_some_and(|kill| now >= kill) {
            self.has_killed = true;
            return Action::Kill;
        }
        if !was_ending && self.is_ending() {
            return Action::Terminate;
        }
        let latest = now + MAX_SLEEP;
        let first_action = (!was_ending && !is_over).then(|| self.first_action_at(lock));
        let next = kill.filter(|_| !self.has_killed).into_iter().chain(first_action).min();
        Action::Wait(next.map_or(latest, |next| next.min(latest)))
    }

    /// Sets the time of KILL if the lock ends. It is never moved to a later time, not even by a renewal that succeeds after
    /// TERM: the command is already ending.
    fn update_deadline(&mut self, now: Instant, lock: LockState, is_over: bool) {
        let deadline = match (self.on_lost, lock.lost) {
            // The store lost the lock before the lease ended.
            (OnLost::Term, Some(LostReason::Taken | LostReason::GoneAfterReconnect))
                if now < lock.valid_until =>
            {
                lock.valid_until.min(now + self.grace)
            }
            (OnLost::Term | OnLost::Kill, _) if is_over => now,
            (OnLost::Term, _) if now >= self.first_action_at(lock) => lock.valid_until,
            _ => return,
        };
        self.lock_deadline = Some(self.lock_deadline.map_or(deadline, |earlier| earlier.min(deadline)));
    }

    /// Time of the first action if the lock is not renewed: TERM, KILL or the warning.
    fn first_action_at(&self, lock: LockState) -> Instant {
        match self.on_lost {
            OnLost::Term => lock.valid_until.checked_sub(self.grace).unwrap_or(lock.valid_until),
            OnLost::Kill | OnLost::Warn => lock.valid_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    struct Clock(Instant);

    impl Clock {
        fn at(&self, seconds: u64) -> Instant {
            self.0 + Duration::from_secs(seconds)
        }

        fn held_until(&self, seconds: u64) -> LockState {
            LockState { valid_until: self.at(seconds), lost: None }
        }

        fn taken(&self, seconds: u64) -> LockState {
            LockState { lost: Some(LostReason::Taken), ..self.held_until(seconds) }
        }
    }

    #[test]
    fn a_lock_that_is_not_renewed_ends_its_command_with_term_then_kill() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Term, None, LEASE);
        assert_eq!(countdown.next_action(clock.at(0), clock.held_until(30)), Action::Wait(clock.at(1)));
        assert_eq!(countdown.next_action(clock.at(26), clock.held_until(30)), Action::Wait(clock.at(27)));
        assert!(!countdown.is_ending());
        assert_eq!(countdown.next_action(clock.at(27), clock.held_until(30)), Action::Terminate);
        assert!(countdown.is_ending());
        // A renewal after TERM does not cancel KILL.
        assert_eq!(countdown.next_action(clock.at(28), clock.held_until(58)), Action::Wait(clock.at(29)));
        assert_eq!(countdown.next_action(clock.at(30), clock.held_until(51)), Action::Kill);
        assert_eq!(countdown.next_action(clock.at(30), clock.held_until(51)), Action::Wait(clock.at(31)));
    }

    #[test]
    fn term_is_sent_a_tenth_of_the_lease_before_its_end_and_at_most_ten_seconds() {
        let clock = Clock(Instant::now());
        for (lease, term) in [(3_000, 2_700), (90_000, 81_000), (600_000, 590_000)] {
            let moments = [term - 1, term, lease].map(|millis| clock.0 + Duration::from_millis(millis));
            let [before, term, end] = moments;
            let lock = LockState { valid_until: end, lost: None };
            let mut countdown = Countdown::new(OnLost::Term, None, Duration::from_millis(lease));
            assert_eq!(countdown.next_action(before, lock), Action::Wait(term));
            assert_eq!(countdown.next_action(term, lock), Action::Terminate);
            assert_eq!(countdown.deadline(), Some(end));
        }
    }

    #[test]
    fn a_renewal_in_time_prevents_term() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Term, None, LEASE);
        for second in 0..100 {
            let next = countdown.next_action(clock.at(second), clock.held_until(second + 11));
            assert_eq!(next, Action::Wait(clock.at(second + 1)));
        }
        assert!(!countdown.is_ending());
    }

    #[test]
    fn a_shorter_kill_after_delays_term() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Term, Some(Duration::from_secs(2)), LEASE);
        assert_eq!(countdown.next_action(clock.at(27), clock.held_until(30)), Action::Wait(clock.at(28)));
        assert_eq!(countdown.next_action(clock.at(28), clock.held_until(30)), Action::Terminate);
    }

    #[test]
    fn kill_is_sent_at_once_if_the_lease_is_over() {
        let clock = Clock(Instant::now());
        for on_lost in [OnLost::Term, OnLost::Kill] {
            let mut countdown = Countdown::new(on_lost, Some(LEASE), LEASE);
            assert_eq!(countdown.next_action(clock.at(40), clock.held_until(30)), Action::Kill);
            assert!(countdown.is_ending());
        }
    }

    #[test]
    fn a_lock_lost_before_its_lease_ends_sends_term_and_then_kill() {
        let clock = Clock(Instant::now());
        for reason in [LostReason::Taken, LostReason::GoneAfterReconnect] {
            let gone = LockState { lost: Some(reason), ..clock.held_until(25) };
            for (kill_after, killed_at) in [(None, 8), (Some(4), 9), (Some(60), 25)] {
                let kill_after = kill_after.map(Duration::from_secs);
                let mut countdown = Countdown::new(OnLost::Term, kill_after, LEASE);
                assert_eq!(countdown.next_action(clock.at(5), gone), Action::Terminate);
                assert_eq!(countdown.deadline(), Some(clock.at(killed_at)));
                assert_eq!(countdown.next_action(clock.at(killed_at), gone), Action::Kill);
            }
        }
        let mut countdown = Countdown::new(OnLost::Kill, None, LEASE);
        assert_eq!(countdown.next_action(clock.at(5), clock.taken(25)), Action::Kill);
    }

    #[test]
    fn on_lost_warn_warns_once() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Warn, None, LEASE);
        assert_eq!(countdown.next_action(clock.at(29), clock.held_until(30)), Action::Wait(clock.at(30)));
        assert_eq!(countdown.next_action(clock.at(30), clock.held_until(30)), Action::Warn);
        assert_eq!(countdown.next_action(clock.at(31), clock.held_until(30)), Action::Wait(clock.at(32)));
        assert!(!countdown.is_ending());
    }

    #[test]
    fn a_stop_request_leads_to_kill_only_with_kill_after() {
        let clock = Clock(Instant::now());
        let mut without = Countdown::new(OnLost::Term, None, LEASE);
        without.stop_requested(clock.at(0));
        assert_eq!(without.next_action(clock.at(9), clock.held_until(30)), Action::Wait(clock.at(10)));
        let mut with = Countdown::new(OnLost::Term, Some(Duration::from_secs(2)), LEASE);
        with.stop_requested(clock.at(0));
        with.stop_requested(clock.at(1));
        assert_eq!(with.next_action(clock.at(2), clock.held_until(30)), Action::Kill);
        assert!(!with.is_ending());
    }
}
