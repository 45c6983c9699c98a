//! The queue of one process's waiters on one lock: first come, first served.

use std::collections::VecDeque;
use std::ops::Range;

/// The position of a waiter in a [`WaitQueue`]. Smaller tickets are earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Waiters in the order of their arrival.
///
/// Only the waiters at the front send requests to the store. The front is the first waiter; if that one
/// shares the front, as readers do, the waiters right behind it that share it belong to the front, too.
#[derive(Debug)]
pub struct WaitQueue<T> {
    /// The first waiter. Most queues never have another one, and need no list.
    first: Option<Entry<T>>,
    /// The other waiters. Sorted by ticket, since tickets only rise. Empty if there is no first one.
    #[expect(clippy::box_collection, reason = "a queue is kept for every held lock, and few have waiters")]
    others: Option<Box<VecDeque<Entry<T>>>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: Ticket,
    shares_front: bool,
    waiter: T,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { first: None, others: None, next: 0 }
    }
}

impl<T> WaitQueue<T> {
    /// Adds a waiter at the end.
    pub fn enter(&mut self, waiter: T, shares_front: bool) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        let entry = Entry { ticket, shares_front, waiter };
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.others.get_or_insert_default().push_back(entry);
        }
        ticket
    }

    /// Removes a waiter. Returns the waiters that come to the front by that, which have to be woken.
    pub fn leave(&mut self, ticket: Ticket) -> impl Iterator<Item = &T> {
        let woken_before = match self.position(ticket) {
            Some(position) => {
                let front_len = self.front_len();
                self.remove(position);
                front_len - usize::from(position < front_len)
            }
            None => self.len(),
        };
        let front_len = self.front_len().max(woken_before);
        self.entries(woken_before..front_len).map(|entry| &entry.waiter)
    }

    fn position(&self, ticket: Ticket) -> Option<usize> {
        if self.first.as_ref()?.ticket == ticket {
            return Some(0);
        }
        let position = self.others.as_ref()?.binary_search_by_key(&ticket, |entry| entry.ticket);
        position.ok().map(|position| position + 1)
    }

    fn remove(&mut self, position: usize) {
        let others = self.others.as_mut();
        match position.checked_sub(1) {
            None => self.first = others.and_then(|others| others.pop_front()),
            Some(position) => drop(others.and_then(|others| others.remove(position))),
        }
    }

    /// Returns the entries at these positions, in order.
    fn entries(&self, positions: Range<usize>) -> impl Iterator<Item = &Entry<T>> {
        let others = positions.start.saturating_sub(1)..positions.end.saturating_sub(1);
        let others = self.others.iter().flat_map(move |entries| entries.range(others.clone()));
        self.first.iter().filter(move |_| positions.contains(&0)).chain(others)
    }

    /// Returns `true` if this waiter is at the front.
    pub fn is_in_front(&self, ticket: Ticket) -> bool {
        self.front_entries().any(|entry| entry.ticket == ticket)
    }

    /// Returns the waiters at the front.
    pub fn front(&self) -> impl Iterator<Item = &T> {
        self.front_entries().map(|entry| &entry.waiter)
    }

    /// The first waiter, and those right behind it if they share the front with it.
    fn front_entries(&self) -> impl Iterator<Item = &Entry<T>> {
        let mut shares_front = true;
        self.entries(0..self.len()).enumerate().map_while(move |(position, entry)| {
            shares_front &= entry.shares_front;
            (position == 0 || shares_front).then_some(entry)
        })
    }

    fn front_len(&self) -> usize {
        self.front_entries().count()
    }

    /// Returns all waiters in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries(0..self.len()).map(|entry| &entry.waiter)
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, |others| others.len())
    }

    /// Returns `true` if there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn front(queue: &WaitQueue<usize>) -> Vec<usize> {
        queue.front().copied().collect()
    }

    #[test]
    fn only_the_first_waiter_wakes_another_when_it_leaves() {
        let mut queue = WaitQueue::default();
        let [a, b, c] = ["a", "b", "c"].map(|waiter| queue.enter(waiter, false));
        assert!(queue.is_in_front(a) && !queue.is_in_front(b));
        assert_eq!(queue.leave(b).count(), 0);
        assert_eq!(queue.leave(a).collect::<Vec<_>>(), [&"c"]);
        assert_eq!(queue.leave(c).count(), 0);
        assert_eq!(queue.leave(c).count(), 0);
        assert!(queue.is_empty());
    }

    #[test]
    fn adjacent_waiters_share_the_front_up_to_the_first_that_does_not() {
        let mut queue = WaitQueue::default();
        let tickets: Vec<_> = [true, true, false, true]
            .iter()
            .enumerate()
            .map(|(waiter, &shares)| queue.enter(waiter, shares))
            .collect();
        assert_eq!(front(&queue), [0, 1]);
        assert!(queue.is_in_front(tickets[1]) && !queue.is_in_front(tickets[3]));
        assert_eq!(queue.leave(tickets[0]).count(), 0);
        // The exclusive waiter gives up: those behind it come to the front.
        assert_eq!(queue.leave(tickets[2]).collect::<Vec<_>>(), [&3]);
        assert_eq!(front(&queue), [1, 3]);
    }

    proptest! {
        /// In whatever order waiters leave, the front is the first waiter and those that share it, and each
        /// waiter that comes to the front is woken once.
        #[test]
        fn a_waiter_that_comes_to_the_front_is_woken_once(
            shares in proptest::collection::vec(any::<bool>(), 12),
            order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut queue = WaitQueue::default();
            let tickets: Vec<_> = (0..12).map(|waiter| queue.enter(waiter, shares[waiter])).collect();
            let mut woken = front(&queue);
            let mut left: Vec<_> = (0..12).collect();
            for waiter in order {
                left.retain(|other| *other != waiter);
                woken.extend(queue.leave(tickets[waiter]));
                let run = left.iter().take_while(|waiter| shares[**waiter]).count();
                let expected = if run > 0 { run } else { left.len().min(1) };
                prop_assert_eq!(&front(&queue)[..], &left[..expected]);
                for waiter in front(&queue) {
                    prop_assert!(queue.is_in_front(tickets[waiter]) && woken.contains(&waiter));
                }
                prop_assert_eq!(queue.len(), left.len());
            }
            let times = woken.len();
            woken.sort_unstable();
            woken.dedup();
            prop_assert_eq!(woken.len(), times);
        }
    }
}
