//! The queue of one process's waiters on one lock: first come, first served.

use std::collections::VecDeque;

/// A place in a [`WaitQueue`]. Smaller came earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Waiters in the order of their arrival. Only those in front ask the server: the first one, and where it goes in
/// company, as readers do, those right behind it that do so, too.
#[derive(Debug)]
pub struct WaitQueue<T> {
    /// Sorted by ticket, since tickets only rise.
    waiters: VecDeque<Entry<T>>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: Ticket,
    in_company: bool,
    waiter: T,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { waiters: VecDeque::new(), next: 0 }
    }
}

impl<T> WaitQueue<T> {
    /// Joins at the end.
    pub fn enter(&mut self, waiter: T, in_company: bool) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiters.push_back(Entry { ticket, in_company, waiter });
        ticket
    }

    /// Leaves from any place, and answers with those who have come to the front by that, since they have to be told.
    pub fn leave(&mut self, ticket: Ticket) -> impl Iterator<Item = &T> {
        let place = self.waiters.binary_search_by_key(&ticket, |entry| entry.ticket);
        let told_before = match place {
            Ok(place) => {
                let in_front = self.in_front();
                self.waiters.remove(place);
                in_front - usize::from(place < in_front)
            }
            Err(_) => self.waiters.len(),
        };
        let in_front = self.in_front().max(told_before);
        self.waiters.range(told_before..in_front).map(|entry| &entry.waiter)
    }

    /// Whether this waiter is one that asks the server.
    pub fn is_in_front(&self, ticket: Ticket) -> bool {
        match self.waiters.front() {
            Some(first) if first.ticket == ticket => true,
            Some(first) if first.in_company => {
                self.waiters.iter().take(self.in_front()).any(|entry| entry.ticket == ticket)
            }
            _ => false,
        }
    }

    /// Those who ask the server.
    pub fn front(&self) -> impl Iterator<Item = &T> {
        self.waiters.range(..self.in_front()).map(|entry| &entry.waiter)
    }

    /// How many ask the server.
    fn in_front(&self) -> usize {
        match self.waiters.front() {
            None => 0,
            Some(first) if !first.in_company => 1,
            Some(_) => self.waiters.iter().take_while(|entry| entry.in_company).count(),
        }
    }

    /// All waiters, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiters.iter().map(|entry| &entry.waiter)
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

    fn front(queue: &WaitQueue<usize>) -> Vec<usize> {
        queue.front().copied().collect()
    }

    #[test]
    fn only_the_firsts_leaving_tells_somebody() {
        let mut queue = WaitQueue::default();
        let [a, b, c] = ["a", "b", "c"].map(|who| queue.enter(who, false));
        assert!(queue.is_in_front(a) && !queue.is_in_front(b));
        assert_eq!(queue.leave(b).count(), 0);
        assert_eq!(queue.leave(a).collect::<Vec<_>>(), [&"c"]);
        assert_eq!(queue.leave(c).count(), 0);
        assert_eq!(queue.leave(c).count(), 0);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_run_of_company_is_in_front_together_and_ends_at_the_first_who_goes_alone() {
        let mut queue = WaitQueue::default();
        let tickets: Vec<_> =
            [true, true, false, true].iter().enumerate().map(|(who, &with)| queue.enter(who, with)).collect();
        assert_eq!(front(&queue), [0, 1]);
        assert!(queue.is_in_front(tickets[1]) && !queue.is_in_front(tickets[3]));
        assert_eq!(queue.leave(tickets[0]).count(), 0);
        // The one who goes alone gives up: those behind it come forward.
        assert_eq!(queue.leave(tickets[2]).collect::<Vec<_>>(), [&3]);
        assert_eq!(front(&queue), [1, 3]);
    }

    proptest! {
        /// Whoever leaves in whatever order: those in front are always the first, and its company; and everyone who comes
        /// to the front is told once.
        #[test]
        fn who_comes_to_the_front_is_told_once(
            kinds in proptest::collection::vec(any::<bool>(), 12),
            order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut queue = WaitQueue::default();
            let tickets: Vec<_> = (0..12).map(|who| queue.enter(who, kinds[who])).collect();
            let mut told = front(&queue);
            let mut left: Vec<_> = (0..12).collect();
            for who in order {
                left.retain(|other| *other != who);
                told.extend(queue.leave(tickets[who]));
                let run = left.iter().take_while(|who| kinds[**who]).count();
                let expected = if run > 0 { run } else { left.len().min(1) };
                prop_assert_eq!(&front(&queue)[..], &left[..expected]);
                for who in front(&queue) {
                    prop_assert!(queue.is_in_front(tickets[who]) && told.contains(&who));
                }
                prop_assert_eq!(queue.len(), left.len());
            }
            let times = told.len();
            told.sort_unstable();
            told.dedup();
            prop_assert_eq!(told.len(), times);
        }
    }
}
