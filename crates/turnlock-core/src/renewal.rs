//! Which hold has to be looked at next: to be renewed, or to be declared lost.

use std::collections::BTreeMap;

use crate::Moment;

/// A place in a [`RenewalSchedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Appointment {
    due: Moment,
    number: u64,
}

/// Holds in the order in which they are due. One entry a hold, one timer for all.
#[derive(Debug)]
pub struct RenewalSchedule<T> {
    entries: BTreeMap<Appointment, T>,
    next: u64,
}

impl<T> Default for RenewalSchedule<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), next: 0 }
    }
}

impl<T> RenewalSchedule<T> {
    /// Plans a look at `item` for `due`.
    pub fn plan(&mut self, due: Moment, item: T) -> Appointment {
        let appointment = Appointment { due, number: self.next };
        self.next += 1;
        self.entries.insert(appointment, item);
        appointment
    }

    /// Takes a plan back. `None` when it was taken out before.
    pub fn cancel(&mut self, appointment: Appointment) -> Option<T> {
        self.entries.remove(&appointment)
    }

    /// Plans a look at another item instead, for the same time. Whether the plan still stood.
    pub fn replace(&mut self, appointment: Appointment, item: T) -> bool {
        self.entries.get_mut(&appointment).map(|entry| *entry = item).is_some()
    }

    /// Takes out everything that is due.
    pub fn take_due(&mut self, now: Moment) -> Vec<T> {
        let after = Appointment { due: now, number: u64::MAX };
        let later = self.entries.split_off(&after);
        std::mem::replace(&mut self.entries, later).into_values().collect()
    }

    /// Takes out everything, due or not.
    pub fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.entries).into_values().collect()
    }

    /// When the next look is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.entries.first_key_value().map(|(appointment, _)| appointment.due)
    }

    /// How many are planned.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is planned.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_out_in_order_and_once() {
        let at = Moment::from_micros;
        let mut schedule = RenewalSchedule::default();
        schedule.plan(at(30), "late");
        schedule.plan(at(10), "first");
        let cancelled = schedule.plan(at(10), "cancelled");
        schedule.plan(at(20), "second");
        assert_eq!(schedule.next_due(), Some(at(10)));
        assert_eq!(schedule.cancel(cancelled), Some("cancelled"));
        assert_eq!(schedule.cancel(cancelled), None);
        let replaced = schedule.plan(at(15), "replaced");
        assert!(schedule.replace(replaced, "in its place"));
        assert!(!schedule.replace(cancelled, "too late"));
        assert_eq!(schedule.take_due(at(20)), ["first", "in its place", "second"]);
        assert_eq!(schedule.take_due(at(20)), Vec::<&str>::new());
        assert_eq!((schedule.len(), schedule.take_all()), (1, vec!["late"]));
        assert!(schedule.is_empty());
    }
}
