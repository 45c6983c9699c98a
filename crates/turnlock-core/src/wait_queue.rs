//! The queue of one process's waiters on one lock: first come, first served.

use std::collections::VecDeque;

/// A place in a [`WaitQueue`]. Smaller came earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Waiters in the order of their arrival. Only the head asks the server.
#[derive(Debug)]
pub struct WaitQueue<T> {
    /// Sorted by ticket, since tickets only rise.
    waiters: VecDeque<(Ticket, T)>,
    next: u64,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { waiters: VecDeque::new(), next: 0 }
    }
}

impl<T> WaitQueue<T> {
    /// Joins at the end.
    pub fn enter(&mut self, waiter: T) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiters.push_back((ticket, waiter));
        ticket
    }

    /// Leaves from any place, and answers with the head when that changed, since it has to be told.
    pub fn leave(&mut self, ticket: Ticket) -> Option<&T> {
        let place = self.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        self.waiters.remove(place);
        if place == 0 { self.head() } else { None }
    }

    /// Whether this waiter is the one that asks the server.
    pub fn is_head(&self, ticket: Ticket) -> bool {
        self.waiters.front().is_some_and(|(first, _)| *first == ticket)
    }

    /// The waiter that came first.
    pub fn head(&self) -> Option<&T> {
        self.waiters.front().map(|(_, waiter)| waiter)
    }

    /// All waiters, the head first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiters.iter().map(|(_, waiter)| waiter)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_heads_leaving_tells_somebody() {
        let mut queue = WaitQueue::default();
        let [a, b, c] = ["a", "b", "c"].map(|who| queue.enter(who));
        assert!(queue.is_head(a) && !queue.is_head(b));
        assert_eq!(queue.leave(b), None);
        assert_eq!(queue.leave(a), Some(&"c"));
        assert_eq!(queue.leave(c), None);
        assert!(queue.is_empty());
    }

    proptest! {
        /// Whoever leaves in whatever order: the head is always the earliest of those who are left.
        #[test]
        fn the_head_is_the_earliest_left(order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle()) {
            let mut queue = WaitQueue::default();
            let tickets: Vec<_> = (0..12).map(|who| queue.enter(who)).collect();
            let mut left: Vec<_> = (0..12).collect();
            for who in order {
                let head_before = left[0];
                left.retain(|other| *other != who);
                let told = queue.leave(tickets[who]).copied();
                prop_assert_eq!(told, if who == head_before { left.first().copied() } else { None });
                prop_assert_eq!(queue.head(), left.first());
                prop_assert_eq!(queue.len(), left.len());
            }
        }
    }
}
