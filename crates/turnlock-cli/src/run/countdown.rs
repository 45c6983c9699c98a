use std::time::{Duration, Instant};

use turnlock::LostReason;

use crate::run_arguments::OnLost;

/// The longest time between TERM and KILL, unless the command line says otherwise.
const LONGEST_GRACE: Duration = Duration::from_secs(10);

/// As good as never, for a time that is added to the clock.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How long to go without a look at the clock: a machine that was asleep has not counted that time in its timers.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// When the command has to go: because its lock is about to be lost, or because somebody has asked it to.
pub(crate) struct Countdown {
    on_lost: OnLost,
    kill_after: Option<Duration>,
    /// The time between TERM and KILL when the lock ends: TERM comes this long before the end.
    grace: Duration,
    /// The lock is on its way to be lost, and the command was told: when it is killed.
    losing: Option<Instant>,
    /// Somebody asked the command to end, and not for ever: when it is killed.
    asked: Option<Instant>,
    has_warned: bool,
    has_killed: bool,
}

/// What the lock looks like now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Until when it is held if nothing is heard from the store.
    pub(crate) valid_until: Instant,
    pub(crate) lost: Option<LostReason>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Nothing before this moment.
    Wait(Instant),
    /// Say that the lock is lost, and let the command be.
    Warn,
    /// Tell the command to end: its lock ends, or has ended.
    Terminate,
    /// End the command.
    Kill,
}

impl Countdown {
    pub(crate) fn new(on_lost: OnLost, kill_after: Option<Duration>, lease: Duration) -> Self {
        let kill_after = kill_after.map(|time| time.min(NEVER));
        let grace = kill_after.unwrap_or_else(|| LONGEST_GRACE.min(lease / 10));
        Self { on_lost, kill_after, grace, losing: None, asked: None, has_warned: false, has_killed: false }
    }

    /// Somebody has asked the command to end.
    pub(crate) fn was_asked(&mut self, now: Instant) {
        if let Some(kill_after) = self.kill_after {
            self.asked.get_or_insert(now + kill_after);
        }
    }

    /// Whether the command was ended, or told to end, for the sake of the lock.
    pub(crate) fn is_losing(&self) -> bool {
        self.losing.is_some()
    }

    /// When what is left of the command is killed, if it goes for the sake of the lock.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.losing
    }

    pub(crate) fn next_move(&mut self, now: Instant, lock: Standing) -> Move {
        let is_over = lock.lost.is_some() || now >= lock.valid_until;
        if is_over && self.on_lost == OnLost::Warn && !self.has_warned {
            self.has_warned = true;
            return Move::Warn;
        }
        let was_told = self.is_losing();
        self.see_to_the_end(now, lock, is_over);
        let kill = self.losing.into_iter().chain(self.asked).min();
        if !self.has_killed && kill.is_some_and(|kill| now >= kill) {
            self.has_killed = true;
            return Move::Kill;
        }
        if !was_told && self.is_losing() {
            return Move::Terminate;
        }
        let nap = now + LONGEST_NAP;
        let warning = (!was_told && !is_over).then(|| self.told_at(lock));
        let next = kill.filter(|_| !self.has_killed).into_iter().chain(warning).min();
        Move::Wait(next.map_or(nap, |next| next.min(nap)))
    }

    /// Decides by when the command is gone if the lock ends. What was decided is not put off any more, also not by a
    /// renewal that succeeds after all: the command is already ending.
    fn see_to_the_end(&mut self, now: Instant, lock: Standing, is_over: bool) {
        let end = match (self.on_lost, lock.lost) {
            // Gone from the store before the lease ended.
            (OnLost::Term, Some(LostReason::Taken | LostReason::GoneAfterReconnect))
                if now < lock.valid_until =>
            {
                lock.valid_until.min(now + self.grace)
            }
            (OnLost::Term | OnLost::Kill, _) if is_over => now,
            (OnLost::Term, _) if now >= self.told_at(lock) => lock.valid_until,
            _ => return,
        };
        self.losing = Some(self.losing.map_or(end, |earlier| earlier.min(end)));
    }

    /// When the command is to hear, or to feel, that the lock ends.
    fn told_at(&self, lock: Standing) -> Instant {
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

        fn held_until(&self, seconds: u64) -> Standing {
            Standing { valid_until: self.at(seconds), lost: None }
        }

        fn taken(&self, seconds: u64) -> Standing {
            Standing { lost: Some(LostReason::Taken), ..self.held_until(seconds) }
        }
    }

    #[test]
    fn a_lock_that_is_not_renewed_ends_its_command_in_two_steps() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Term, None, LEASE);
        assert_eq!(countdown.next_move(clock.at(0), clock.held_until(30)), Move::Wait(clock.at(1)));
        assert_eq!(countdown.next_move(clock.at(26), clock.held_until(30)), Move::Wait(clock.at(27)));
        assert!(!countdown.is_losing());
        assert_eq!(countdown.next_move(clock.at(27), clock.held_until(30)), Move::Terminate);
        assert!(countdown.is_losing());
        // A renewal that comes now does not put it off.
        assert_eq!(countdown.next_move(clock.at(28), clock.held_until(58)), Move::Wait(clock.at(29)));
        assert_eq!(countdown.next_move(clock.at(30), clock.held_until(51)), Move::Kill);
        assert_eq!(countdown.next_move(clock.at(30), clock.held_until(51)), Move::Wait(clock.at(31)));
    }

    #[test]
    fn term_comes_a_tenth_of_the_lease_before_its_end_and_at_most_ten_seconds() {
        let clock = Clock(Instant::now());
        for (lease, told) in [(3_000, 2_700), (90_000, 81_000), (600_000, 590_000)] {
            let moments = [told - 1, told, lease].map(|millis| clock.0 + Duration::from_millis(millis));
            let [before, told, end] = moments;
            let lock = Standing { valid_until: end, lost: None };
            let mut countdown = Countdown::new(OnLost::Term, None, Duration::from_millis(lease));
            assert_eq!(countdown.next_move(before, lock), Move::Wait(told));
            assert_eq!(countdown.next_move(told, lock), Move::Terminate);
            assert_eq!(countdown.end(), Some(end));
        }
    }

    #[test]
    fn a_renewal_in_time_puts_the_end_off() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Term, None, LEASE);
        for second in 0..100 {
            let next = countdown.next_move(clock.at(second), clock.held_until(second + 11));
            assert_eq!(next, Move::Wait(clock.at(second + 1)));
        }
        assert!(!countdown.is_losing());
    }

    #[test]
    fn who_needs_less_time_is_told_later() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Term, Some(Duration::from_secs(2)), LEASE);
        assert_eq!(countdown.next_move(clock.at(27), clock.held_until(30)), Move::Wait(clock.at(28)));
        assert_eq!(countdown.next_move(clock.at(28), clock.held_until(30)), Move::Terminate);
    }

    #[test]
    fn who_wakes_up_too_late_kills_at_once() {
        let clock = Clock(Instant::now());
        for on_lost in [OnLost::Term, OnLost::Kill] {
            let mut countdown = Countdown::new(on_lost, Some(LEASE), LEASE);
            assert_eq!(countdown.next_move(clock.at(40), clock.held_until(30)), Move::Kill);
            assert!(countdown.is_losing());
        }
    }

    #[test]
    fn a_lock_that_was_taken_away_leaves_a_moment_for_a_word() {
        let clock = Clock(Instant::now());
        for reason in [LostReason::Taken, LostReason::GoneAfterReconnect] {
            let gone = Standing { lost: Some(reason), ..clock.held_until(25) };
            for (kill_after, killed_at) in [(None, 8), (Some(4), 9), (Some(60), 25)] {
                let kill_after = kill_after.map(Duration::from_secs);
                let mut countdown = Countdown::new(OnLost::Term, kill_after, LEASE);
                assert_eq!(countdown.next_move(clock.at(5), gone), Move::Terminate);
                assert_eq!(countdown.end(), Some(clock.at(killed_at)));
                assert_eq!(countdown.next_move(clock.at(killed_at), gone), Move::Kill);
            }
        }
        let mut countdown = Countdown::new(OnLost::Kill, None, LEASE);
        assert_eq!(countdown.next_move(clock.at(5), clock.taken(25)), Move::Kill);
    }

    #[test]
    fn who_only_wants_a_word_gets_it_once() {
        let clock = Clock(Instant::now());
        let mut countdown = Countdown::new(OnLost::Warn, None, LEASE);
        assert_eq!(countdown.next_move(clock.at(29), clock.held_until(30)), Move::Wait(clock.at(30)));
        assert_eq!(countdown.next_move(clock.at(30), clock.held_until(30)), Move::Warn);
        assert_eq!(countdown.next_move(clock.at(31), clock.held_until(30)), Move::Wait(clock.at(32)));
        assert!(!countdown.is_losing());
    }

    #[test]
    fn a_command_that_was_asked_to_end_is_killed_only_if_that_was_said() {
        let clock = Clock(Instant::now());
        let mut patient = Countdown::new(OnLost::Term, None, LEASE);
        patient.was_asked(clock.at(0));
        assert_eq!(patient.next_move(clock.at(9), clock.held_until(30)), Move::Wait(clock.at(10)));
        let mut strict = Countdown::new(OnLost::Term, Some(Duration::from_secs(2)), LEASE);
        strict.was_asked(clock.at(0));
        strict.was_asked(clock.at(1));
        assert_eq!(strict.next_move(clock.at(2), clock.held_until(30)), Move::Kill);
        assert!(!strict.is_losing());
    }
}
