use super::requests::Requests;
use super::{CounterOp, Model, Notification, Now, Reply, Snapshot, Step};
use crate::OwnerId;
use crate::planted::Bug;

/// The state of a latch: a count that goes down to zero once, and the replies to recent requests.
///
/// A latch that reached zero is deleted, and equals one that was never set.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatchState {
    count: Option<i64>,
    answers: Requests<i64>,
}

impl LatchState {
    /// Performs an operation on the count. A repeated request gets the reply of the first.
    pub fn perform(&mut self, now: Now, op: CounterOp, request: &OwnerId) -> (i64, Notification) {
        if let Some(reply) = self.answers.outcome(now.moment, request) {
            return (reply, Notification::None);
        }
        let (reply, notification) = match op {
            CounterOp::SetOnce(_) if self.count.is_some() => (0, Notification::None),
            CounterOp::SetOnce(count) => {
                self.count = Some(i64::try_from(count).unwrap_or(i64::MAX));
                (1, Notification::Subscribers)
            }
            CounterOp::CountDown => self.count_down(),
            CounterOp::Delete if self.count.take().is_some() => (1, Notification::Subscribers),
            CounterOp::Delete => (0, Notification::None),
            _ => return (0, Notification::None),
        };
        self.answers.remember(now.moment, request, reply);
        (reply, notification)
    }

    /// Notifies the waiters when the count reaches zero, but not if there was no count.
    fn count_down(&mut self) -> (i64, Notification) {
        let Some(count) = self.count else { return (0, Notification::None) };
        let left = count.saturating_sub(if Bug::LatchCountsTwice.is_planted() { 2 } else { 1 });
        self.count = (left > 0).then_some(left);
        (left.max(0), Notification::subscribers_if(left == 0))
    }

    /// Removes the count, as an expiry set by a user would, without a notification. For tests.
    pub fn expire(&mut self) {
        self.count = None;
    }

    /// Forgets a request. No copy of it may be under way.
    pub fn forget(&mut self, request: &OwnerId) {
        self.answers.forget(request);
    }
}

impl Model for LatchState {
    fn apply(&mut self, now: Now, step: &Step) -> Option<(Reply, Notification)> {
        Some(match step {
            Step::Perform(_, op, request) => Reply::of(Reply::Number, self.perform(now, *op, request)),
            Step::Forget(_, request) => {
                self.forget(request);
                Reply::Forgotten.quiet()
            }
            _ => return None,
        })
    }

    fn snapshot(&mut self, _: Now) -> Snapshot {
        Snapshot { number: self.count, ..Snapshot::default() }
    }

    fn forget_all(&mut self) {
        self.answers = Requests::default();
    }

    fn is_free(&mut self, now: Now) -> bool {
        self.count.is_none() && self.answers.is_empty(now.moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    const NOW: Now = Now { moment: Moment::from_micros(0), wall: 0 };

    #[test]
    fn a_latch_opens_once_after_as_many_count_downs_as_were_set() {
        let mut state = LatchState::default();
        let [set, one, two, three] = ["set", "1", "2", "3"].map(OwnerId::from_wire);
        assert_eq!(state.perform(NOW, CounterOp::SetOnce(2), &set), (1, Notification::Subscribers));
        for _ in 0..2 {
            assert_eq!(state.perform(NOW, CounterOp::CountDown, &one), (1, Notification::None));
        }
        assert_eq!(state.perform(NOW, CounterOp::CountDown, &two), (0, Notification::Subscribers));
        assert_eq!(state.snapshot(NOW).number, None);
        // A count-down without a count must not count on the next latch of the name.
        assert_eq!(state.perform(NOW, CounterOp::CountDown, &three), (0, Notification::None));
        assert_eq!(
            state.perform(NOW, CounterOp::SetOnce(1), &OwnerId::from_wire("again")),
            (1, Notification::Subscribers)
        );
        assert_eq!(state.perform(NOW, CounterOp::CountDown, &three), (0, Notification::None));
        assert_eq!(state.snapshot(NOW).number, Some(1));
    }

    #[test]
    fn deleting_a_latch_notifies_the_waiters() {
        let mut state = LatchState::default();
        let [one, two, three, four, five] = ["1", "2", "3", "4", "5"].map(OwnerId::from_wire);
        assert_eq!(state.perform(NOW, CounterOp::Delete, &one), (0, Notification::None));
        state.perform(NOW, CounterOp::SetOnce(2), &two);
        assert_eq!(state.perform(NOW, CounterOp::SetOnce(9), &three), (0, Notification::None));
        assert_eq!(state.perform(NOW, CounterOp::Delete, &four), (1, Notification::Subscribers));
        // A repeated delete does not delete what was set since.
        state.perform(NOW, CounterOp::SetOnce(2), &five);
        assert_eq!(state.perform(NOW, CounterOp::Delete, &four), (1, Notification::None));
        assert_eq!(state.snapshot(NOW).number, Some(2));
    }
}
