//! Several servers, one question: what their answers decide, and when nothing more can change.

use crate::Moment;

/// How many of `servers` are a majority. Two majorities of the same servers always have one in common.
pub const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// Until when at least `need` of several holds are believed in, given the end of each: the `need`-th latest of them.
/// `None` when there are fewer than that.
pub fn believed_until(need: usize, mut ends: Vec<Moment>) -> Option<Moment> {
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends.get(need.checked_sub(1)?).copied()
}

/// What one server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// It granted the lock.
    Granted,
    /// Somebody else has it there.
    Refused,
    /// It did not answer in time, or could not serve.
    Silent,
}

/// What the words decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A majority has granted.
    Granted,
    /// A majority has answered, and too few of them have granted.
    Refused,
    /// Too few have answered to know.
    Unavailable,
}

/// The words of all servers to one question, as far as they are known.
///
/// ```
/// use turnlock_core::tally::{Decision, Tally, Word};
///
/// let mut tally = Tally::new(3);
/// tally.say(0, Word::Granted);
/// assert_eq!(tally.decision(), None);
/// tally.say(2, Word::Granted);
/// assert_eq!(tally.decision(), Some(Decision::Granted)); // whatever the other one says
/// ```
#[derive(Clone, Debug)]
pub struct Tally {
    words: Vec<Option<Word>>,
}

impl Tally {
    /// A question to so many servers, of which none has answered yet.
    pub fn new(servers: usize) -> Self {
        Self { words: vec![None; servers] }
    }

    /// The word of one server. What it says later replaces what it said before: silence may end.
    pub fn say(&mut self, server: usize, word: Word) {
        if let Some(place) = self.words.get_mut(server) {
            *place = Some(word);
        }
    }

    /// How many have said this.
    pub fn count(&self, word: Word) -> usize {
        self.words.iter().filter(|said| **said == Some(word)).count()
    }

    /// The first server, in their order, that has said this.
    pub fn first(&self, word: Word) -> Option<usize> {
        self.words.iter().position(|said| *said == Some(word))
    }

    /// How many have not spoken yet.
    pub fn open(&self) -> usize {
        self.words.iter().filter(|said| said.is_none()).count()
    }

    /// How many have to grant.
    pub fn need(&self) -> usize {
        majority(self.words.len())
    }

    /// What is decided, if something is. Words of servers that have not spoken yet cannot change it.
    pub fn decision(&self) -> Option<Decision> {
        let (granted, refused) = (self.count(Word::Granted), self.count(Word::Refused));
        let (open, answered) = (self.open(), granted + refused);
        if granted >= self.need() {
            Some(Decision::Granted)
        } else if granted + open >= self.need() {
            None
        } else if answered >= self.need() {
            Some(Decision::Refused)
        } else if answered + open < self.need() {
            Some(Decision::Unavailable)
        } else {
            None
        }
    }
}

/// How the giving back of several holds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parted {
    /// They were held to the end, by enough servers, and enough of them are free now.
    Free,
    /// Too many of them were gone before.
    Lost,
    /// Too few servers have confirmed.
    InDoubt,
}

/// Giving back what several servers have granted.
#[derive(Clone, Debug)]
pub struct Parting {
    need: usize,
    servers: usize,
    held: usize,
    under_way: usize,
    freed: usize,
    gone: usize,
}

impl Parting {
    /// `held` of `servers` have granted, of which `need` are needed to hold.
    pub fn new(servers: usize, need: usize, held: usize) -> Self {
        Self { need, servers, held, under_way: held, freed: 0, gone: 0 }
    }

    /// One has confirmed.
    pub fn freed(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.freed += 1;
    }

    /// One says that it was not held any more.
    pub fn gone(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.gone += 1;
    }

    /// One has not confirmed, and will not.
    pub fn failed(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// How it ended, if it has. Not before all have answered, or as many have confirmed as are needed to hold.
    ///
    /// `in_a_hurry`: the slow have had their time. Then it is enough that others can get the lock: those count that have
    /// confirmed, and those that never granted.
    pub fn outcome(&self, in_a_hurry: bool) -> Option<Parted> {
        if self.freed >= self.need.min(self.held) {
            return Some(Parted::Free);
        }
        let not_held = self.servers - self.held + self.freed + self.gone;
        let may_go = in_a_hurry && not_held >= self.need;
        if self.under_way > 0 && !may_go {
            return None;
        }
        Some(if self.gone > self.held.saturating_sub(self.need) {
            Parted::Lost
        } else if not_held >= self.need {
            Parted::Free
        } else {
            Parted::InDoubt
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: [Option<Word>; 4] = [None, Some(Word::Granted), Some(Word::Refused), Some(Word::Silent)];

    /// Every tally of so many servers, the open ones included.
    fn all(servers: u32) -> impl Iterator<Item = Tally> {
        (0..4_usize.pow(servers)).map(move |mut number| {
            let mut next = || {
                let word = WORDS[number % 4];
                number /= 4;
                word
            };
            Tally { words: (0..servers).map(|_| next()).collect() }
        })
    }

    /// Every way in which a tally can become complete.
    fn completions(tally: &Tally) -> Vec<Tally> {
        let Some(open) = tally.words.iter().position(Option::is_none) else { return vec![tally.clone()] };
        let close = |word: &Option<Word>| {
            let mut tally = tally.clone();
            tally.words[open] = *word;
            completions(&tally)
        };
        WORDS[1..].iter().flat_map(close).collect()
    }

    #[test]
    fn decided_is_what_nothing_can_change_and_nothing_else() {
        for tally in (1..=5).flat_map(all) {
            let mut ends: Vec<_> = completions(&tally).iter().map(Tally::decision).collect();
            assert!(ends.iter().all(Option::is_some), "a complete tally is decided: {tally:?}");
            ends.dedup();
            match tally.decision() {
                Some(decision) => assert_eq!(ends, [Some(decision)], "{tally:?}"),
                None => assert!(ends.len() > 1, "it was decided already: {tally:?}"),
            }
        }
    }

    #[test]
    fn the_words_are_counted_as_they_are_meant() {
        use Decision::{Granted, Refused, Unavailable};
        let decide = |granted, refused, silent| {
            let mut tally = Tally::new(granted + refused + silent);
            (0..granted).for_each(|server| tally.say(server, Word::Granted));
            (granted..granted + refused).for_each(|server| tally.say(server, Word::Refused));
            (granted + refused..granted + refused + silent)
                .for_each(|server| tally.say(server, Word::Silent));
            tally.decision().expect("a complete tally")
        };
        assert_eq!([decide(1, 0, 0), decide(3, 0, 2), decide(3, 2, 0)], [Granted; 3]);
        assert_eq!([decide(0, 1, 0), decide(2, 1, 2), decide(1, 1, 0), decide(0, 3, 2)], [Refused; 4]);
        assert_eq!([decide(0, 0, 1), decide(2, 0, 3), decide(0, 2, 3), decide(1, 0, 1)], [Unavailable; 4]);
    }

    #[test]
    fn silence_may_end() {
        let mut tally = Tally::new(3);
        tally.say(0, Word::Granted);
        tally.say(1, Word::Silent);
        tally.say(1, Word::Granted);
        assert_eq!(tally.decision(), Some(Decision::Granted));
        assert_eq!((tally.first(Word::Granted), tally.first(Word::Refused)), (Some(0), None));
    }

    #[test]
    fn two_majorities_meet() {
        for servers in 1..100 {
            assert!(majority(servers) * 2 > servers && majority(servers) <= servers);
        }
    }

    #[test]
    fn parting_waits_for_enough_and_not_for_the_dead() {
        let part = |servers, need, held, freed, gone, failed| {
            let mut parting = Parting::new(servers, need, held);
            (0..freed).for_each(|_| parting.freed());
            (0..gone).for_each(|_| parting.gone());
            (0..failed).for_each(|_| parting.failed());
            [parting.outcome(false), parting.outcome(true)]
        };
        let (free, lost, doubt) = (Some(Parted::Free), Some(Parted::Lost), Some(Parted::InDoubt));
        // A majority of five.
        assert_eq!(part(5, 3, 5, 2, 0, 0), [None, None]);
        assert_eq!(part(5, 3, 5, 3, 0, 0), [free, free]);
        assert_eq!(part(5, 3, 5, 2, 1, 0), [None, free], "one lost its data and two are dead");
        assert_eq!(part(5, 3, 5, 0, 3, 0), [None, lost]);
        assert_eq!(part(5, 3, 5, 2, 0, 3), [doubt, doubt]);
        assert_eq!(part(5, 3, 3, 2, 0, 0), [None, free], "two never granted, and one died since");
        assert_eq!(part(5, 3, 3, 2, 1, 0), [lost, lost], "only two held it to the end");
        // All of three.
        assert_eq!(part(3, 3, 3, 2, 0, 0), [None, None]);
        assert_eq!(part(3, 3, 3, 0, 1, 0), [None, None], "the others are still given back");
        assert_eq!(part(3, 3, 3, 2, 1, 0), [lost, lost]);
        assert_eq!(part(3, 3, 3, 2, 0, 1), [doubt, doubt]);
    }

    proptest! {
        /// Just before the moment, enough are believed in; from it on, too few.
        #[test]
        fn the_end_is_where_too_few_are_left(need in 1_usize..6, ends in prop::collection::vec(1_u64..50, 0..8)) {
            let moments: Vec<_> = ends.iter().copied().map(Moment::from_micros).collect();
            let alive = |now: Moment| moments.iter().filter(|end| **end > now).count();
            match believed_until(need, moments.clone()) {
                None => prop_assert!(moments.len() < need),
                Some(end) => {
                    prop_assert!(alive(Moment::from_micros(end.as_micros() - 1)) >= need);
                    prop_assert!(alive(end) < need);
                }
            }
        }
    }
}
