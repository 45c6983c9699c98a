use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use turnlock_core::{Moment, OwnerId};

use super::call_site::{CallSite, Link, Runner};
use super::caller::Caller;
use super::hold::Hold;
use super::lock_queue::{LockQueue, Wakeup};
use super::wait_queues::WaitQueues;
use crate::activity::MAX_HOLDS;
use turnlock_store::Presence;

/// The number of holds that are compared with the waits of their tasks.
pub(crate) const MAX_LINKED: usize = 4_096;

/// The number of locks that are visited at a time: a millisecond or two.
pub(super) const PORTION: usize = if cfg!(test) { 16 } else { 16_384 };

/// The holds that matter most, of those that are valid: stuck ones, then the oldest. And the number of all.
#[derive(Default)]
pub(crate) struct OldestHolds {
    /// By whether they are not stuck, when they began, and their owner.
    pub(crate) holds: BTreeMap<(bool, Moment, OwnerId), Arc<Hold>>,
    pub(crate) count: usize,
}

impl OldestHolds {
    fn insert(&mut self, hold: &Arc<Hold>) {
        let is_not_stuck = !hold.is_reported_stuck.load(Ordering::Relaxed);
        let is_full = self.holds.len() >= MAX_HOLDS;
        let is_among = |last: &(bool, Moment, OwnerId)| (is_not_stuck, hold.began) <= (last.0, last.1);
        if is_full && !self.holds.keys().next_back().is_some_and(is_among) {
            self.count += 1;
            return;
        }
        // A hold may be visited twice.
        let key = (is_not_stuck, hold.began, hold.owner.clone());
        if self.holds.contains_key(&key) {
            return;
        }
        // Last, since it is the slowest of the checks. A hold that does not matter counts without it.
        if !hold.is_valid() {
            return;
        }
        self.count += 1;
        self.holds.insert(key, Arc::clone(hold));
        if is_full {
            self.holds.pop_last();
        }
    }
}

/// The holds of a queue that callers have acquired.
fn acquired_holds(queue: &LockQueue) -> impl Iterator<Item = &Arc<Hold>> {
    queue.holds.iter().filter(|hold| hold.call_site.is_some())
}

impl WaitQueues {
    /// Returns the callers that have waited since `since` or longer, and since when the longest of the others waits.
    pub(crate) fn waits_since(&self, since: Moment) -> (Vec<Arc<Wakeup>>, Option<Moment>) {
        let (mut waits, mut next) = (Vec::new(), None);
        // A client that only holds locks, perhaps very many, has nothing to look through.
        if self.waiting_callers.load(Ordering::Relaxed) == 0 {
            return (waits, next);
        }
        for queue in self.queues.lock().values().filter(|queue| !queue.waiters.is_empty()) {
            for wakeup in queue.waiters.iter() {
                match &wakeup.caller {
                    Some(Caller { began, .. }) if *began <= since && !wakeup.is_gone() => {
                        waits.push(Arc::clone(wakeup));
                    }
                    Some(Caller { began, .. }) if *began > since => {
                        next = Some(next.map_or(*began, |earlier: Moment| earlier.min(*began)));
                    }
                    _ => {}
                }
            }
        }
        (waits, next)
    }

    /// Counts the waits of each of these tasks, whatever their age.
    pub(crate) fn count_waits(&self, numbers: &mut HashMap<Runner, usize>) {
        for wakeup in self.queues.lock().values().flat_map(|queue| queue.waiters.iter()) {
            let caller = wakeup.caller.as_ref().filter(|_| !wakeup.is_gone());
            let runner = caller.and_then(|caller| caller.call_site.runner());
            if let Some(number) = runner.and_then(|runner| numbers.get_mut(&runner)) {
                *number += 1;
            }
        }
    }

    /// Returns the holds that have a link in common with `links`, and the oldest ones that began by `since`.
    ///
    /// A client may have a million holds: few are copied. For links, all are visited at once, since a hold that is left out
    /// can make a task look as if it only waited; without links, acquires go on meanwhile.
    pub(crate) fn holds_of(&self, links: &HashSet<Link>, since: Moment) -> (Vec<Arc<Hold>>, OldestHolds) {
        let (mut linked, mut oldest) = (Vec::new(), OldestHolds::default());
        let visit = |hold: &Arc<Hold>| {
            let mut of_hold = hold.call_site.iter().flat_map(CallSite::links).flatten();
            if !links.is_empty() && linked.len() < MAX_LINKED && of_hold.any(|link| links.contains(&link)) {
                linked.push(Arc::clone(hold));
            }
            if hold.began <= since {
                oldest.insert(hold);
            }
        };
        if links.is_empty() {
            self.for_each_hold_in_portions(visit);
        } else {
            self.for_each_hold(visit);
        }
        (linked, oldest)
    }

    /// Visits the holds that callers have acquired, as far as this client knows.
    fn for_each_hold(&self, visit: impl FnMut(&Arc<Hold>)) {
        self.queues.lock().values().flat_map(acquired_holds).for_each(visit);
    }

    /// The same, so that acquires go on between the portions. What changes meanwhile may be left out, or visited twice.
    pub(crate) fn for_each_hold_in_portions(&self, mut visit: impl FnMut(&Arc<Hold>)) {
        let mut visited = 0;
        loop {
            let queues = self.queues.lock();
            let portion = queues.values().skip(visited).take(PORTION);
            visited += portion.inspect(|queue| acquired_holds(queue).for_each(&mut visit)).count();
            if queues.len() <= visited {
                return;
            }
        }
    }
}
