//! Which waiters wait for each other in a cycle: deadlocks.
//!
//! The nodes are waits, each with what the waiting task holds. A wait has an edge to another one if that holds what the
//! first waits for. All waits for a lock must see all its holders go, so any cycle of such edges is a deadlock, as
//! long as its members exist at the same time.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::planted::Bug;
use crate::{Kind, Moment};

/// A waiting task, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait<'a> {
    /// The key of what it waits for.
    pub key: &'a str,
    /// As what it wants it.
    pub kind: Kind,
    /// It ends without the others: it has a time limit, or it is one of a group that tries again.
    pub ends_by_itself: bool,
    /// What it holds meanwhile.
    pub holds: Vec<Held<'a>>,
    /// From when to when, on the clock of the store, it certainly waited and held all of this.
    pub proven: Option<(Moment, Moment)>,
}

/// What a waiting task holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// The key.
    pub key: &'a str,
    /// As what it is held.
    pub kind: Kind,
    /// The waiting task itself holds it, and not only its process.
    pub is_exact: bool,
    /// It has a lease that is not renewed.
    pub ends_by_itself: bool,
}

/// Waits of which each waits for the next one, and the last for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The waits, by their number, the lowest first.
    pub members: Vec<usize>,
    /// It is a deadlock. Otherwise it may be one, or have been one.
    pub is_certain: bool,
}

/// The limit of the work: waits and edges that are visited, to make the edges and again to search them. Records of other
/// users must not stop a client.
const MAX_VISITS: usize = 500_000;

/// The maximum number of cycles that are returned.
const MAX_CYCLES: usize = 64;

/// Finds cycles: the shortest ones, at least one through each wait that is in one. Certain ones come first.
///
/// A wait that is part of a certain cycle is not searched for others. With very many waits, the result is incomplete.
pub fn cycles(waits: &[Wait<'_>]) -> Vec<Cycle> {
    search(waits).found
}

fn search(waits: &[Wait<'_>]) -> Search {
    let mut search = Search { edges: edges(waits), visits: 0, found: Vec::new(), covered: HashSet::new() };
    let ends_by_itself = |wait: &Wait<'_>| wait.ends_by_itself && !Bug::DeadlockWithLimit.is_planted();
    let certain: Vec<_> = waits.iter().map(|wait| wait.proven.filter(|_| !ends_by_itself(wait))).collect();
    let mut members: Vec<_> = certain.iter().map(Option::is_some).collect();
    search.remove_ends(true, &mut members);
    // If intervals overlap pairwise, all of them contain the latest of their beginnings.
    let candidates = certain.iter().zip(&members).filter(|(_, is_member)| **is_member);
    let mut moments: Vec<_> = candidates.filter_map(|(proven, _)| proven.map(|(first, _)| first)).collect();
    moments.sort_unstable();
    moments.dedup();
    for moment in moments {
        if search.is_exhausted() {
            break;
        }
        let is_proven = |(first, last): (Moment, Moment)| first <= moment && moment <= last;
        let at_moment = members.iter().zip(&certain);
        let at_moment =
            at_moment.map(|(is_member, proven)| *is_member && proven.is_some_and(is_proven)).collect();
        search.run(true, at_moment);
    }
    search.run(false, vec![true; waits.len()]);
    search
}

/// The edges of each wait: the wait that it waits for, and whether that is certain.
fn edges(waits: &[Wait<'_>]) -> Vec<Vec<(usize, bool)>> {
    let mut holders: HashMap<&str, Vec<(usize, &Held<'_>)>> = HashMap::new();
    for (number, wait) in waits.iter().enumerate() {
        for held in &wait.holds {
            holders.entry(held.key).or_default().push((number, held));
        }
    }
    let mut visits_left = MAX_VISITS;
    let edges_of = |(number, wait): (usize, &Wait<'_>)| {
        let mut edges: Vec<(usize, bool)> = Vec::new();
        let holders = holders.get(wait.key).map_or(&[][..], Vec::as_slice);
        let holders = &holders[..holders.len().min(visits_left)];
        visits_left -= holders.len();
        for (holder, held) in holders {
            let Some(is_exclusive) = conflict(wait.kind, held.kind) else { continue };
            // A task that seems to wait for itself may run another future, which holds the lock and will release it.
            let is_certain = is_exclusive && held.is_exact && !held.ends_by_itself && *holder != number;
            // The holds of one wait follow each other.
            match edges.last_mut().filter(|(known, _)| known == holder) {
                Some((_, known)) => *known |= is_certain,
                None => edges.push((*holder, is_certain)),
            }
        }
        edges
    };
    waits.iter().enumerate().map(edges_of).collect()
}

/// Returns whether a hold is in the way of a waiter, and if so, whether it alone keeps the waiter waiting.
fn conflict(wanted: Kind, held: Kind) -> Option<bool> {
    let is_counted = |kind| matches!(kind, Kind::Semaphore | Kind::Permits);
    match (wanted, held) {
        (Kind::Latch, _) | (_, Kind::Latch) | (Kind::Read, Kind::Read) => None,
        // Other permits may become free.
        (wanted, held) if is_counted(wanted) || is_counted(held) => (wanted == held).then_some(false),
        _ => Some(true),
    }
}

struct Search {
    edges: Vec<Vec<(usize, bool)>>,
    visits: usize,
    found: Vec<Cycle>,
    /// The waits that are in a cycle that was found.
    covered: HashSet<usize>,
}

impl Search {
    fn is_exhausted(&self) -> bool {
        self.visits >= MAX_VISITS || self.found.len() >= MAX_CYCLES
    }

    /// Finds cycles of these waits, by certain edges only or by all.
    fn run(&mut self, is_certain: bool, mut members: Vec<bool>) {
        if self.is_exhausted() {
            return;
        }
        self.visits += members.len();
        self.remove_ends(is_certain, &mut members);
        for start in 0..members.len() {
            if self.is_exhausted() {
                return;
            }
            if !members[start] || self.covered.contains(&start) {
                continue;
            }
            if let Some(mut cycle) = self.shortest_cycle(start, is_certain, &members) {
                self.covered.extend(&cycle);
                let lowest = cycle.iter().enumerate().min_by_key(|(_, wait)| **wait).map_or(0, |(at, _)| at);
                cycle.rotate_left(lowest);
                self.found.push(Cycle { members: cycle, is_certain });
            }
        }
    }

    /// Removes waits that cannot be in a cycle: those without an edge to a member, again and again.
    fn remove_ends(&mut self, is_certain: bool, members: &mut [bool]) {
        // Of each member, the number of its edges to members, and the members that have an edge to it.
        let mut numbers = vec![0_usize; members.len()];
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
        for wait in (0..members.len()).filter(|wait| members[*wait]) {
            self.visits += self.edges[wait].len();
            for next in self.next(wait, is_certain).filter(|next| members[*next]) {
                numbers[wait] += 1;
                before[next].push(wait);
            }
        }
        let is_end = |wait: &usize| members[*wait] && numbers[*wait] == 0;
        let mut ends: Vec<_> = (0..members.len()).filter(is_end).collect();
        while let Some(end) = ends.pop() {
            members[end] = false;
            for &wait in &before[end] {
                numbers[wait] -= 1;
                if numbers[wait] == 0 {
                    ends.push(wait);
                }
            }
        }
    }

    fn next(&self, wait: usize, is_certain: bool) -> impl Iterator<Item = usize> + '_ {
        self.edges[wait].iter().filter(move |(_, certain)| *certain || !is_certain).map(|(next, _)| *next)
    }

    /// Returns the shortest cycle through `start`, which comes first.
    fn shortest_cycle(&mut self, start: usize, is_certain: bool, members: &[bool]) -> Option<Vec<usize>> {
        let mut before: HashMap<usize, usize> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(wait) = queue.pop_front() {
            self.visits += self.edges[wait].len();
            if self.visits >= MAX_VISITS {
                return None;
            }
            for next in self.next(wait, is_certain) {
                if next == start {
                    let mut cycle = vec![wait];
                    let mut last = wait;
                    while let Some(earlier) = before.get(&last) {
                        cycle.push(*earlier);
                        last = *earlier;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if members[next] && !before.contains_key(&next) {
                    before.insert(next, wait);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const KEYS: [&str; 4] = ["a", "b", "c", "d"];

    fn moment(micros: u64) -> Moment {
        Moment::from_micros(micros)
    }

    fn held(key: &str) -> Held<'_> {
        Held { key, kind: Kind::Lock, is_exact: true, ends_by_itself: false }
    }

    /// A task that holds one lock and waits for another, from 10 to 20.
    fn wait<'a>(holds: &'a str, key: &'a str) -> Wait<'a> {
        let proven = Some((moment(10), moment(20)));
        Wait { key, kind: Kind::Lock, ends_by_itself: false, holds: vec![held(holds)], proven }
    }

    fn certain(members: &[usize]) -> Cycle {
        Cycle { members: members.to_vec(), is_certain: true }
    }

    fn possible(members: &[usize]) -> Cycle {
        Cycle { members: members.to_vec(), is_certain: false }
    }

    #[test]
    fn a_cycle_of_three_is_a_deadlock() {
        let mut waits = vec![wait("a", "b"), wait("x", "y"), wait("c", "a"), wait("b", "c")];
        assert_eq!(cycles(&waits), [certain(&[0, 3, 2])]);
        // One of them holds nothing.
        waits[2].holds.clear();
        assert_eq!(cycles(&waits), []);
    }

    #[test]
    fn a_task_that_waits_for_itself_is_a_possible_deadlock() {
        assert_eq!(cycles(&[wait("a", "a")]), [possible(&[0])]);
    }

    #[test]
    fn a_deadlock_is_certain_only_if_all_waited_at_the_same_time() {
        let mut waits = vec![wait("a", "b"), wait("b", "a")];
        waits[1].proven = Some((moment(20), moment(30)));
        assert_eq!(cycles(&waits), [certain(&[0, 1])]);
        waits[1].proven = Some((moment(21), moment(30)));
        assert_eq!(cycles(&waits), [possible(&[0, 1])]);
        waits[1].proven = None;
        assert_eq!(cycles(&waits), [possible(&[0, 1])]);
    }

    #[test]
    fn what_ends_by_itself_is_no_certain_deadlock() {
        let both = || vec![wait("a", "b"), wait("b", "a")];
        let mut limited = both();
        limited[0].ends_by_itself = true;
        let mut fixed = both();
        fixed[0].holds[0].ends_by_itself = true;
        let mut inexact = both();
        inexact[0].holds[0].is_exact = false;
        let mut permits = both();
        for wait in &mut permits {
            (wait.kind, wait.holds[0].kind) = (Kind::Permits, Kind::Permits);
        }
        for waits in [limited, fixed, inexact, permits] {
            assert_eq!(cycles(&waits), [possible(&[0, 1])], "{waits:?}");
        }
    }

    #[test]
    fn readers_do_not_wait_for_readers() {
        let mut waits = vec![wait("a", "b"), wait("b", "a")];
        for wait in &mut waits {
            (wait.kind, wait.holds[0].kind) = (Kind::Read, Kind::Read);
        }
        assert_eq!(cycles(&waits), []);
        waits[0].kind = Kind::Write;
        assert_eq!(cycles(&waits), [], "the other one still reads beside it");
        waits[1].kind = Kind::Write;
        assert_eq!(cycles(&waits), [certain(&[0, 1])], "each reads what the other wants to write");
    }

    /// As many waits as one request can read.
    const MANY: u64 = 32_000;

    #[test]
    fn many_hostile_waits_end_soon() {
        let at = |first, holds, key| Wait { proven: Some((moment(first), moment(MANY))), ..wait(holds, key) };
        let keys: Vec<_> = (0..MANY).map(|number| number.to_string()).collect();
        let next = |number: usize| &*keys[(number + 1) % keys.len()];
        // All wait for one lock, which all of them hold. One long cycle. Pairs.
        let one_key: Vec<_> = (0..MANY).map(|first| at(first, "a", "a")).collect();
        let ring: Vec<_> = (0..MANY).zip(0..).map(|(first, n)| at(first, &keys[n], next(n))).collect();
        let pairs: Vec<_> = (0..MANY).zip(0..).map(|(first, n)| at(first, &keys[n], &keys[n ^ 1])).collect();
        for waits in [one_key, ring, pairs] {
            let search = search(&waits);
            let edges: usize = search.edges.iter().map(Vec::len).sum();
            assert!(edges <= MAX_VISITS && search.found.len() <= MAX_CYCLES);
            // The last run may exceed the limit, by one visit of each wait and edge.
            assert!(search.visits <= MAX_VISITS + waits.len() + edges, "{} visits", search.visits);
        }
    }

    #[test]
    fn a_deadlock_is_found_among_many_waits_without_one() {
        let keys: Vec<_> = (0..2_000).map(|number| number.to_string()).collect();
        let mut waits: Vec<_> = keys.windows(2).map(|pair| wait(&pair[0], &pair[1])).collect();
        for (wait, first) in waits.iter_mut().zip(10..) {
            wait.proven = Some((moment(first), moment(5_000)));
        }
        waits.extend([wait("a", "b"), wait("b", "a")]);
        let first = waits.len() - 2;
        assert_eq!(cycles(&waits), [certain(&[first, first + 1])]);
    }

    /// All simple cycles, each from its lowest wait.
    fn all_cycles(waits: &[Wait<'_>]) -> Vec<Vec<usize>> {
        fn extend(waits: &[Wait<'_>], path: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
            let last = path[path.len() - 1];
            for next in 0..waits.len() {
                let is_edge = waits[next].holds.iter().any(|held| {
                    held.key == waits[last].key && conflict(waits[last].kind, held.kind).is_some()
                });
                if is_edge && next == path[0] {
                    all.push(path.clone());
                } else if is_edge && next > path[0] && !path.contains(&next) {
                    path.push(next);
                    extend(waits, path, all);
                    path.pop();
                }
            }
        }
        let mut all = Vec::new();
        for start in 0..waits.len() {
            extend(waits, &mut vec![start], &mut all);
        }
        all
    }

    /// By the definition: exact holds that do not end, waits that do not end, and a moment common to all.
    fn is_certain(waits: &[Wait<'_>], cycle: &[usize]) -> bool {
        let blocks = |(at, wait): (usize, &usize)| {
            let (wait, next) = (&waits[*wait], &waits[cycle[(at + 1) % cycle.len()]]);
            next.holds.iter().any(|held| {
                held.key == wait.key
                    && conflict(wait.kind, held.kind) == Some(true)
                    && held.is_exact
                    && !held.ends_by_itself
            })
        };
        let members = || cycle.iter().map(|wait| &waits[*wait]);
        let proven: Option<Vec<_>> = members().map(|wait| wait.proven).collect();
        let common = proven.is_some_and(|proven| {
            proven.iter().map(|(first, _)| first).max() <= proven.iter().map(|(_, last)| last).min()
        });
        common
            && cycle.len() > 1
            && members().all(|wait| !wait.ends_by_itself)
            && cycle.iter().enumerate().all(blocks)
    }

    fn any_kind() -> impl Strategy<Value = Kind> {
        prop_oneof![4 => Just(Kind::Lock), 2 => Just(Kind::Read), 2 => Just(Kind::Write), 1 => Just(Kind::Permits)]
    }

    fn any_wait() -> impl Strategy<Value = Wait<'static>> {
        let hold = (0..KEYS.len(), any_kind(), prop::bool::weighted(0.9), prop::bool::weighted(0.1))
            .prop_map(|(key, kind, is_exact, ends_by_itself)| Held {
                key: KEYS[key],
                kind,
                is_exact,
                ends_by_itself,
            });
        let proven = prop::option::weighted(0.9, (0..6_u64, 0..6_u64));
        let parts = (0..KEYS.len(), any_kind(), prop::bool::weighted(0.1), vec(hold, 0..3), proven);
        parts.prop_map(|(key, kind, ends_by_itself, holds, proven)| Wait {
            key: KEYS[key],
            kind,
            ends_by_itself,
            holds,
            proven: proven.map(|(first, lasts)| (moment(first), moment(first + lasts))),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn cycles_are_those_of_the_definition(waits in vec(any_wait(), 0..6)) {
            let (all, found) = (all_cycles(&waits), cycles(&waits));
            for Cycle { members, is_certain: certain } in &found {
                prop_assert!(all.contains(members), "{members:?} is no cycle of {all:?}");
                prop_assert!(!certain || is_certain(&waits, members), "{members:?} is not certain");
            }
            for wait in 0..waits.len() {
                let has = |cycle: &[usize]| cycle.contains(&wait);
                let is_found = found.iter().any(|cycle| has(&cycle.members));
                prop_assert_eq!(is_found, all.iter().any(|cycle| has(cycle)), "wait {}", wait);
                let is_deadlocked = all.iter().any(|cycle| has(cycle) && is_certain(&waits, cycle));
                let is_found = found.iter().any(|cycle| cycle.is_certain && has(&cycle.members));
                prop_assert!(is_found || !is_deadlocked, "wait {} is in a deadlock", wait);
            }
        }
    }
}
