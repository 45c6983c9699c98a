use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;
use turnlock_core::name::NameMap;
use turnlock_core::{LockName, Moment};

use crate::sync::Mutex;

/// The number of names that are remembered: those that are often held, and some of the latest new ones.
const MAX_NAMES: usize = 256;

/// The number of holds of a name that are remembered.
const MAX_HOLDS: usize = 64;

/// How often a name is kept at most, after its last hold. With a thousand new names per second, that is four minutes.
const MAX_CHANCES: u8 = 64;

/// The number of holds that must be known to call another one unusual.
const MIN_HOLDS: usize = 20;

/// A shorter hold is never unusual.
const SHORTEST: Duration = Duration::from_secs(10);

/// How many times longer than the last holds, all but the longest, an unusual hold is.
const FACTOR: u32 = 10;

/// How long each lock was held lately by this client.
#[derive(Debug, Default)]
pub(crate) struct HoldDurations(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    durations: NameMap<Durations>,
    /// The names in the order in which they came, or were kept.
    order: VecDeque<LockName>,
}

/// The durations of one lock, in milliseconds.
#[derive(Debug)]
struct Durations {
    latest: SmallVec<[u32; 4]>,
    /// The place of the next one.
    next: usize,
    /// How often the name is kept when it is the first in the order. It rises with each hold, so that locks which are held once do
    /// not displace one that is held often, and for long at last.
    chances: u8,
}

impl HoldDurations {
    /// Adds the duration of a hold that has ended by a hand-over, for one in 16 of them.
    ///
    /// A turn is short, so that all of them together would contend for the mutex. The clock selects them.
    pub(crate) fn note_handed_over(&self, name: &LockName, began: Moment, ended: Moment) {
        if ended.as_micros().is_multiple_of(16) {
            self.note(name, ended.since(began));
        }
    }

    /// Adds the duration of a hold that has ended.
    pub(crate) fn note(&self, name: &LockName, held: Duration) {
        let millis = u32::try_from(held.as_millis()).unwrap_or(u32::MAX);
        let mut names = self.0.lock();
        if let Some(Durations { latest, next, chances }) = names.durations.get_mut(name) {
            match latest.get_mut(*next % MAX_HOLDS) {
                Some(oldest) => *oldest = millis,
                None => latest.push(millis),
            }
            *next += 1;
            *chances = (*chances + 1).min(MAX_CHANCES);
            return;
        }
        if names.order.len() >= MAX_NAMES {
            // With very many names, most are held once: replacing one for each hold is in vain, and costs time.
            if fastrand::u8(..16) > 0 {
                return;
            }
            names.remove_one();
        }
        names.order.push_back(name.clone());
        let first = Durations { latest: SmallVec::from_slice(&[millis]), next: 1, chances: 0 };
        names.durations.insert(name.clone(), first);
    }

    /// Returns `true` if a hold of this duration is far longer than the earlier ones.
    pub(crate) fn is_unusual(&self, name: &LockName, held: Duration) -> bool {
        if held < SHORTEST {
            return false;
        }
        let names = self.0.lock();
        let Some(Durations { latest, .. }) = names.durations.get(name) else { return false };
        if latest.len() < MIN_HOLDS {
            return false;
        }
        // The longest one may have been unusual too.
        let two_longest =
            |(longest, second): (u32, u32), &held: &u32| (longest.max(held), second.max(held.min(longest)));
        let (_, second) = latest.iter().fold((0, 0), two_longest);
        held > Duration::from_millis(second.into()) * FACTOR
    }
}

impl Names {
    /// Removes the first name without a chance. Each chance that is used up here came with a hold.
    fn remove_one(&mut self) {
        while let Some(first) = self.order.pop_front() {
            match self.durations.get_mut(&first) {
                Some(kept) if kept.chances > 0 => kept.chances -= 1,
                _ => {
                    self.durations.remove(&first);
                    return;
                }
            }
            self.order.push_back(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> LockName {
        LockName::parse(&format!("n{number}")).expect("a good name")
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_hold_is_unusual_if_it_is_far_longer_than_those_before() {
        let durations = HoldDurations::default();
        for number in 0..MIN_HOLDS {
            assert!(!durations.is_unusual(&name(0), seconds(1_000)), "only {number} are known");
            durations.note(&name(0), seconds(2));
        }
        assert!(!durations.is_unusual(&name(0), seconds(20)));
        assert!(durations.is_unusual(&name(0), seconds(21)));
        assert!(!durations.is_unusual(&name(1), seconds(21)), "another lock");
        durations.note(&name(0), seconds(1_000));
        assert!(durations.is_unusual(&name(0), seconds(21)), "one of them may be far longer");
        durations.note(&name(0), seconds(5));
        assert!(!durations.is_unusual(&name(0), seconds(50)) && durations.is_unusual(&name(0), seconds(51)));
        for _ in 0..MAX_HOLDS {
            durations.note(&name(0), Duration::from_millis(3));
        }
        assert!(!durations.is_unusual(&name(0), seconds(9)), "too short to matter");
        assert!(durations.is_unusual(&name(0), seconds(10)), "the long ones are forgotten");
    }

    #[test]
    fn one_of_sixteen_turns_is_noted() {
        let durations = HoldDurations::default();
        let began = Moment::from_micros(1_000_000);
        let turns = u64::try_from(16 * MIN_HOLDS).expect("a small number");
        for turn in 0..turns - 16 {
            durations.note_handed_over(&name(0), began, began + Duration::from_micros(turn));
        }
        assert!(!durations.is_unusual(&name(0), seconds(60)), "too few are known");
        for turn in turns - 16..turns {
            durations.note_handed_over(&name(0), began, began + Duration::from_micros(turn));
        }
        assert!(durations.is_unusual(&name(0), seconds(60)));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let durations = HoldDurations::default();
        for number in 0..MAX_NAMES + 10 {
            durations.note(&name(number), seconds(1));
        }
        let names = durations.0.lock();
        assert_eq!((names.durations.len(), names.order.len()), (MAX_NAMES, MAX_NAMES));
    }

    #[test]
    fn locks_that_are_held_once_do_not_displace_one_that_is_held_often() {
        let durations = HoldDurations::default();
        for _ in 0..MIN_HOLDS {
            durations.note(&name(0), seconds(1));
        }
        // One of 16 new names is remembered.
        for number in 1..16 * MAX_NAMES * MIN_HOLDS / 2 {
            durations.note(&name(number), seconds(1));
        }
        assert!(durations.is_unusual(&name(0), seconds(60)));
        for number in 0..16 * MAX_NAMES * MIN_HOLDS * 2 {
            durations.note(&name(1_000_000 + number), seconds(1));
        }
        assert!(!durations.is_unusual(&name(0), seconds(60)), "it is not kept for ever");
        assert_eq!(durations.0.lock().order.len(), MAX_NAMES);
    }
}
