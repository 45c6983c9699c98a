//! What the replies of several servers to one request decide, and when the decision is final.
//!
//! Used for locks that are held on several independent servers: a majority of them (`RedLock`) or all
//! (`MultiLock`).

use crate::Moment;
use crate::planted::Bug;

/// Returns how many of `servers` are a majority.
///
/// Two majorities of the same servers always have a server in common.
pub const fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// Returns until when at least `need` holds are valid, given the end of each.
///
/// That is the `need`-th latest end. `None` if there are fewer holds than that.
pub fn valid_until(need: usize, mut ends: Vec<Moment>) -> Option<Moment> {
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends.get(need.checked_sub(1)?).copied()
}

/// The reply of one server to an acquire request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// The server granted the lock.
    Granted,
    /// Another owner holds the lock on this server.
    Refused,
    /// The server did not reply in time, or returned an error.
    NoReply,
}

/// What the votes decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A majority granted the lock.
    Granted,
    /// A majority replied, and too few of them granted the lock.
    Refused,
    /// Too few servers replied to know.
    Unavailable,
}

/// The votes of all servers on one acquire request.
///
/// ```
/// use turnlock_core::tally::{Decision, Tally, Vote};
///
/// let mut tally = Tally::new(3);
/// tally.record(0, Vote::Granted);
/// assert_eq!(tally.decision(), None);
/// tally.record(2, Vote::Granted);
/// assert_eq!(tally.decision(), Some(Decision::Granted)); // whatever server 1 replies
/// ```
#[derive(Clone, Debug)]
pub struct Tally {
    votes: Vec<Option<Vote>>,
}

impl Tally {
    /// Creates a tally for `servers` servers, none of which has voted.
    pub fn new(servers: usize) -> Self {
        Self { votes: vec![None; servers] }
    }

    /// Records the vote of a server. A later vote replaces an earlier one, since a late reply may arrive.
    pub fn record(&mut self, server: usize, vote: Vote) {
        if let Some(entry) = self.votes.get_mut(server) {
            *entry = Some(vote);
        }
    }

    /// Returns how many servers cast this vote.
    pub fn count(&self, vote: Vote) -> usize {
        self.votes.iter().filter(|cast| **cast == Some(vote)).count()
    }

    /// Returns the first server, by index, that cast this vote.
    pub fn first(&self, vote: Vote) -> Option<usize> {
        self.votes.iter().position(|cast| *cast == Some(vote))
    }

    /// Returns how many servers have not voted yet.
    pub fn open(&self) -> usize {
        self.votes.iter().filter(|cast| cast.is_none()).count()
    }

    /// Returns how many servers have to grant the lock.
    pub fn need(&self) -> usize {
        if Bug::MinorityCounts.is_planted() {
            return 1;
        }
        majority(self.votes.len())
    }

    /// Returns the decision once no missing vote can change it.
    pub fn decision(&self) -> Option<Decision> {
        let (granted, refused) = (self.count(Vote::Granted), self.count(Vote::Refused));
        let (open, replied) = (self.open(), granted + refused);
        if granted >= self.need() {
            Some(Decision::Granted)
        } else if granted + open >= self.need() {
            None
        } else if replied >= self.need() {
            Some(Decision::Refused)
        } else if replied + open < self.need() {
            Some(Decision::Unavailable)
        } else {
            None
        }
    }
}

/// How the release of a lock on several servers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// Enough servers held the lock until its release, and enough are free now.
    Free,
    /// Too many servers had lost the hold before.
    Lost,
    /// Too few servers confirmed the release.
    InDoubt,
}

/// The replies of all servers to one release.
#[derive(Clone, Debug)]
pub struct ReleaseTally {
    need: usize,
    servers: usize,
    held: usize,
    /// The servers that confirmed the release.
    pub freed: usize,
    /// The servers that replied that the lock was not held any more.
    pub gone: usize,
    /// The servers that did not confirm the release, and will not.
    pub failed: usize,
}

impl ReleaseTally {
    /// Creates a tally: `held` of `servers` servers granted the lock, and `need` of them are needed to hold
    /// it.
    pub fn new(servers: usize, need: usize, held: usize) -> Self {
        Self { need, servers, held, freed: 0, gone: 0, failed: 0 }
    }

    /// Returns the outcome once all servers have replied, or enough have confirmed.
    ///
    /// With `deadline_passed`, slow servers are no longer waited for: it is enough that another owner can
    /// acquire the lock. Servers that confirmed count for that, and those that never granted the lock.
    pub fn outcome(&self, deadline_passed: bool) -> Option<ReleaseOutcome> {
        if self.freed >= self.need.min(self.held) {
            return Some(ReleaseOutcome::Free);
        }
        let not_held = self.servers - self.held + self.freed + self.gone;
        let can_stop = deadline_passed && not_held >= self.need;
        let is_complete = self.freed + self.gone + self.failed >= self.held;
        if !is_complete && !can_stop {
            return None;
        }
        Some(if self.gone > self.held.saturating_sub(self.need) {
            ReleaseOutcome::Lost
        } else if not_held >= self.need {
            ReleaseOutcome::Free
        } else {
            ReleaseOutcome::InDoubt
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VOTES: [Option<Vote>; 4] = [None, Some(Vote::Granted), Some(Vote::Refused), Some(Vote::NoReply)];

    /// Every tally of `servers` servers, incomplete ones included.
    fn all(servers: u32) -> impl Iterator<Item = Tally> {
        (0..4_usize.pow(servers)).map(move |mut number| {
            let mut next = || {
                let vote = VOTES[number % 4];
                number /= 4;
                vote
            };
            Tally { votes: (0..servers).map(|_| next()).collect() }
        })
    }

    /// Every completion of a tally.
    fn completions(tally: &Tally) -> Vec<Tally> {
        let Some(open) = tally.votes.iter().position(Option::is_none) else { return vec![tally.clone()] };
        let close = |vote: &Option<Vote>| {
            let mut tally = tally.clone();
            tally.votes[open] = *vote;
            completions(&tally)
        };
        VOTES[1..].iter().flat_map(close).collect()
    }

    #[test]
    fn a_tally_is_decided_exactly_when_no_missing_vote_can_change_it() {
        for tally in (1..=5).flat_map(all) {
            let mut ends: Vec<_> = completions(&tally).iter().map(Tally::decision).collect();
            assert!(ends.iter().all(Option::is_some), "a complete tally is decided: {tally:?}");
            ends.dedup();
            match tally.decision() {
                Some(decision) => assert_eq!(ends, [Some(decision)], "{tally:?}"),
                None => assert!(ends.len() > 1, "no vote can change it: {tally:?}"),
            }
        }
    }

    #[test]
    fn votes_are_counted() {
        use Decision::{Granted, Refused, Unavailable};
        let decide = |granted, refused, missing| {
            let mut tally = Tally::new(granted + refused + missing);
            (0..granted).for_each(|server| tally.record(server, Vote::Granted));
            (granted..granted + refused).for_each(|server| tally.record(server, Vote::Refused));
            (granted + refused..granted + refused + missing)
                .for_each(|server| tally.record(server, Vote::NoReply));
            tally.decision().expect("a complete tally")
        };
        assert_eq!([decide(1, 0, 0), decide(3, 0, 2), decide(3, 2, 0)], [Granted; 3]);
        assert_eq!([decide(0, 1, 0), decide(2, 1, 2), decide(1, 1, 0), decide(0, 3, 2)], [Refused; 4]);
        assert_eq!([decide(0, 0, 1), decide(2, 0, 3), decide(0, 2, 3), decide(1, 0, 1)], [Unavailable; 4]);
    }

    #[test]
    fn a_late_reply_replaces_a_missing_one() {
        let mut tally = Tally::new(3);
        tally.record(0, Vote::Granted);
        tally.record(1, Vote::NoReply);
        tally.record(1, Vote::Granted);
        assert_eq!(tally.decision(), Some(Decision::Granted));
        assert_eq!((tally.first(Vote::Granted), tally.first(Vote::Refused)), (Some(0), None));
    }

    #[test]
    fn two_majorities_intersect() {
        for servers in 1..100 {
            assert!(majority(servers) * 2 > servers && majority(servers) <= servers);
        }
    }

    #[test]
    fn a_release_waits_for_enough_servers_and_not_for_dead_ones() {
        let release = |servers, need, held, freed, gone, failed| {
            let tally = ReleaseTally { freed, gone, failed, ..ReleaseTally::new(servers, need, held) };
            [tally.outcome(false), tally.outcome(true)]
        };
        let (free, lost, doubt) =
            (Some(ReleaseOutcome::Free), Some(ReleaseOutcome::Lost), Some(ReleaseOutcome::InDoubt));
        // A majority of five.
        assert_eq!(release(5, 3, 5, 2, 0, 0), [None, None]);
        assert_eq!(release(5, 3, 5, 3, 0, 0), [free, free]);
        assert_eq!(release(5, 3, 5, 2, 1, 0), [None, free], "one server lost its data and two are dead");
        assert_eq!(release(5, 3, 5, 0, 3, 0), [None, lost]);
        assert_eq!(release(5, 3, 5, 2, 0, 3), [doubt, doubt]);
        assert_eq!(release(5, 3, 3, 2, 0, 0), [None, free], "two servers never granted, and one died since");
        assert_eq!(release(5, 3, 3, 2, 1, 0), [lost, lost], "only two held it until the release");
        // All of three.
        assert_eq!(release(3, 3, 3, 2, 0, 0), [None, None]);
        assert_eq!(release(3, 3, 3, 0, 1, 0), [None, None], "the others are still being released");
        assert_eq!(release(3, 3, 3, 2, 1, 0), [lost, lost]);
        assert_eq!(release(3, 3, 3, 2, 0, 1), [doubt, doubt]);
    }

    proptest! {
        /// Just before the end, enough holds are valid; from then on, too few.
        #[test]
        fn the_end_is_when_too_few_holds_are_valid(need in 1_usize..6, ends in prop::collection::vec(1_u64..50, 0..8)) {
            let moments: Vec<_> = ends.iter().copied().map(Moment::from_micros).collect();
            let valid = |now: Moment| moments.iter().filter(|end| **end > now).count();
            match valid_until(need, moments.clone()) {
                None => prop_assert!(moments.len() < need),
                Some(end) => {
                    prop_assert!(valid(Moment::from_micros(end.as_micros() - 1)) >= need);
                    prop_assert!(valid(end) < need);
                }
            }
        }
    }
}
