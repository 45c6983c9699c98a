use std::collections::{BTreeSet, HashMap};

use crate::request::REMEMBERED_FOR;
use crate::{Moment, OwnerId};

/// The outcomes of recent requests on a counter, which has no owners.
///
/// A repeated request gets the outcome of the first. Outcomes are forgotten after [`REMEMBERED_FOR`].
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(
        from = "Vec<(OwnerId, T, Moment)>",
        into = "Vec<(OwnerId, T, Moment)>",
        bound(serialize = "T: Copy + serde::Serialize", deserialize = "T: serde::Deserialize<'de>")
    )
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requests<T> {
    known: HashMap<OwnerId, (T, Moment)>,
    /// The same requests, in the order in which they are to be forgotten.
    order: BTreeSet<(Moment, OwnerId)>,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<T> From<Vec<(OwnerId, T, Moment)>> for Requests<T> {
    fn from(stored: Vec<(OwnerId, T, Moment)>) -> Self {
        let order = stored.iter().map(|(request, _, until)| (*until, request.clone())).collect();
        let known = stored.into_iter().map(|(request, outcome, until)| (request, (outcome, until))).collect();
        Self { known, order }
    }
}

impl<T> From<Requests<T>> for Vec<(OwnerId, T, Moment)> {
    fn from(requests: Requests<T>) -> Self {
        let known = requests.known.into_iter();
        known.map(|(request, (outcome, until))| (request, outcome, until)).collect()
    }
}

impl<T: Copy> Requests<T> {
    /// Returns all requests with their outcomes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&OwnerId, T)> {
        self.known.iter().map(|(request, (outcome, _))| (request, *outcome))
    }

    /// Returns the outcome of a request, if it is still remembered.
    pub(super) fn outcome(&mut self, now: Moment, request: &OwnerId) -> Option<T> {
        self.forget_by(now);
        self.known.get(request).map(|(outcome, _)| *outcome)
    }

    /// Records the outcome of a request. Returns the earlier one that it replaces.
    pub(super) fn remember(&mut self, now: Moment, request: &OwnerId, outcome: T) -> Option<T> {
        let before = self.forget(request);
        let until = now + REMEMBERED_FOR;
        self.known.insert(request.clone(), (outcome, until));
        self.order.insert((until, request.clone()));
        before
    }

    /// Forgets one request early. Returns its outcome.
    pub(super) fn forget(&mut self, request: &OwnerId) -> Option<T> {
        let (outcome, until) = self.known.remove(request)?;
        self.order.remove(&(until, request.clone()));
        Some(outcome)
    }

    /// Returns `true` if no request is remembered.
    pub(super) fn is_empty(&mut self, now: Moment) -> bool {
        self.forget_by(now);
        self.known.is_empty()
    }

    fn forget_by(&mut self, now: Moment) {
        while self.order.first().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, request)) = self.order.pop_first() {
                self.known.remove(&request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_outcome_is_remembered_for_an_hour_from_its_last_recording() {
        let start = Moment::from_micros(0);
        let at = |minutes: u64| start + Duration::from_secs(minutes * 60);
        let [one, two] = ["a:1", "a:2"].map(OwnerId::from_wire);
        let mut requests = Requests::default();
        requests.remember(at(0), &one, 1);
        requests.remember(at(10), &two, 2);
        requests.remember(at(30), &one, 3);
        assert_eq!(requests.outcome(at(69), &two), Some(2));
        assert_eq!(requests.outcome(at(70), &two), None);
        assert_eq!(requests.outcome(at(89), &one), Some(3));
        assert!(!requests.is_empty(at(89)));
        assert!(requests.is_empty(at(90)));
        assert_eq!(requests.order.len(), 0);
    }

    #[test]
    fn a_forgotten_request_leaves_no_entry() {
        let now = Moment::from_micros(0);
        let one = OwnerId::from_wire("a:1");
        let mut requests = Requests::default();
        for _ in 0..2 {
            requests.remember(now, &one, 1);
            requests.forget(&one);
            assert!(requests.is_empty(now) && requests.order.is_empty());
        }
    }
}
