use super::requests::Requests;
use super::{Deed, Now, Snapshot, Wake};
use crate::OwnerId;

/// The state of one latch: a count that goes down to zero once, and what was answered to the latest requests.
///
/// A latch that has reached zero is gone, and looks like one that was never set.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatchState {
    count: Option<i64>,
    answers: Requests<i64>,
}

impl LatchState {
    /// A step on the count. A copy of a request gets the first one's answer.
    pub fn perform(&mut self, now: Now, deed: Deed, request: &OwnerId) -> (i64, Wake) {
        if let Some(answer) = self.answers.outcome(now.moment, request) {
            return (answer, Wake::Nobody);
        }
        let (answer, wake) = match deed {
            Deed::SetOnce(_) if self.count.is_some() => (0, Wake::Nobody),
            Deed::SetOnce(count) => {
                self.count = Some(i64::try_from(count).unwrap_or(i64::MAX));
                (1, Wake::Listeners)
            }
            Deed::CountDown => self.count_down(),
            Deed::Delete if self.count.take().is_some() => (1, Wake::Listeners),
            Deed::Delete => (0, Wake::Nobody),
            _ => return (0, Wake::Nobody),
        };
        self.answers.remember(now.moment, request, answer);
        (answer, wake)
    }

    /// Those who wait are told when the count comes to zero, and not when there was nothing to count.
    fn count_down(&mut self) -> (i64, Wake) {
        let Some(count) = self.count else { return (0, Wake::Nobody) };
        let left = count.saturating_sub(1);
        self.count = (left > 0).then_some(left);
        (left.max(0), if left == 0 { Wake::Listeners } else { Wake::Nobody })
    }

    /// What the latch looks like.
    pub fn snapshot(&mut self, _: Now) -> Snapshot {
        Snapshot { number: self.count, ..Snapshot::default() }
    }

    /// Removes the count as an expiry that a user gave it would: nobody is told.
    pub fn expire(&mut self) {
        self.count = None;
    }

    /// Forgets a request, as time would: no copy of it is under way.
    pub fn forget(&mut self, request: &OwnerId) {
        self.answers.forget(request);
    }

    /// Forgets every request: of those who sent them, nobody is left.
    pub fn forget_all(&mut self) {
        self.answers.clear();
    }

    /// Whether nothing is left to remember.
    pub fn is_free(&mut self, now: Now) -> bool {
        self.count.is_none() && self.answers.is_empty(now.moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    const NOW: Now = Now { moment: Moment::from_micros(0), wall: 0 };

    #[test]
    fn a_latch_opens_once_when_as_many_as_were_set_have_counted() {
        let mut state = LatchState::default();
        let [set, one, two, three] = ["set", "1", "2", "3"].map(OwnerId::from_wire);
        assert_eq!(state.perform(NOW, Deed::SetOnce(2), &set), (1, Wake::Listeners));
        for _ in 0..2 {
            assert_eq!(state.perform(NOW, Deed::CountDown, &one), (1, Wake::Nobody));
        }
        assert_eq!(state.perform(NOW, Deed::CountDown, &two), (0, Wake::Listeners));
        assert_eq!(state.snapshot(NOW).number, None);
        // One who comes when there is nothing to count must not count on the next latch of the name.
        assert_eq!(state.perform(NOW, Deed::CountDown, &three), (0, Wake::Nobody));
        assert_eq!(state.perform(NOW, Deed::SetOnce(1), &OwnerId::from_wire("again")), (1, Wake::Listeners));
        assert_eq!(state.perform(NOW, Deed::CountDown, &three), (0, Wake::Nobody));
        assert_eq!(state.snapshot(NOW).number, Some(1));
    }

    #[test]
    fn who_removes_a_latch_tells_those_who_wait() {
        let mut state = LatchState::default();
        let [one, two, three, four, five] = ["1", "2", "3", "4", "5"].map(OwnerId::from_wire);
        assert_eq!(state.perform(NOW, Deed::Delete, &one), (0, Wake::Nobody));
        state.perform(NOW, Deed::SetOnce(2), &two);
        assert_eq!(state.perform(NOW, Deed::SetOnce(9), &three), (0, Wake::Nobody));
        assert_eq!(state.perform(NOW, Deed::Delete, &four), (1, Wake::Listeners));
        // A copy of the removal does not remove what was set since.
        state.perform(NOW, Deed::SetOnce(2), &five);
        assert_eq!(state.perform(NOW, Deed::Delete, &four), (1, Wake::Nobody));
        assert_eq!(state.snapshot(NOW).number, Some(2));
    }
}
