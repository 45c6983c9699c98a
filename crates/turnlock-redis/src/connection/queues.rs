use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use redis::Value;
use turnlock_core::Moment;
use turnlock_store::Sent;

use super::in_flight::{Content, InFlight};
use crate::lua::ServerMode;
use crate::reply_slot::{Outcome, Unsent};
use crate::script_call::{By, ScriptCall};

/// The requests of a connection: queued, to be written, and in flight.
pub(super) struct Queues {
    /// The number of the connection.
    number: u64,
    mode: ServerMode,
    /// Steps that wait to share a call.
    pub(super) steps: VecDeque<Arc<ScriptCall>>,
    /// Encoded requests, to be written.
    pub(super) outgoing: Vec<u8>,
    /// Encoded requests without a reply, in their order.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Requests with their replies, whose callers are not woken yet.
    pub(super) replied: VecDeque<(InFlight, Value)>,
    /// The number of calls in flight that steps share, or could share.
    shareable: usize,
    /// The number of steps in the last of them.
    last_group: usize,
    /// The driver is about to send what is queued.
    pub(super) is_gathering: bool,
    pub(super) writing: Writing,
    /// No deadline of a request is earlier.
    pub(super) next_deadline: Moment,
    /// When queued steps are sent although many calls are in flight.
    pub(super) send_at: Moment,
    pub(super) phase: Phase,
}

/// Whether a connection can be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Open,
    /// Accepts no requests. Those in flight may still get replies.
    Retired,
    Closed,
}

/// Whether encoded requests are being written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    No,
    /// By a caller or the driver, who takes what is added to [`Queues::outgoing`].
    Now,
    /// The stream took only a part. The driver goes on.
    Stalled,
}

/// The number of requests in flight up to which a caller writes its own.
///
/// For two, the detour through the driver costs more than it saves.
const MAX_ALONE: usize = 2;

/// The number of steps in one script call.
const MAX_BATCH: usize = 32;

/// The number of calls in flight above which steps wait to share the next one.
///
/// With one, either the server or the client would be idle; with many, each would have few steps.
const MAX_CALLS: usize = 4;

/// How long steps wait for one of [`MAX_CALLS`] replies before they are sent anyway.
///
/// On a slow network, steps are not held back for a whole round trip.
const MAX_DELAY: Duration = Duration::from_millis(1);

impl Queues {
    pub(super) fn new(number: u64, mode: ServerMode) -> Self {
        Self {
            number,
            mode,
            steps: VecDeque::new(),
            outgoing: Vec::new(),
            in_flight: VecDeque::new(),
            replied: VecDeque::new(),
            shareable: 0,
            last_group: 0,
            is_gathering: false,
            writing: Writing::No,
            next_deadline: Moment::NEVER,
            send_at: Moment::NEVER,
            phase: Phase::Open,
        }
    }

    /// Appends a request to those that are to be written.
    pub(super) fn encode(&mut self, content: Content, by: By, now: Moment) {
        content.encode(by, self.mode, &mut self.outgoing);
        let request = InFlight::new(content, by, Sent { connection: self.number, at: now });
        if request.is_shareable() {
            self.shareable += 1;
            self.last_group = request.content.slots().count();
        }
        self.in_flight.push_back(request);
    }

    /// Gives a reply to the request that has waited longest. Returns the reply if there is none.
    pub(super) fn complete(&mut self, value: Value) -> Option<Value> {
        let Some(front) = self.in_flight.front_mut() else { return Some(value) };
        if let Some(value) = front.complete(value)
            && let Some(request) = self.in_flight.pop_front()
        {
            self.shareable -= usize::from(request.is_shareable());
            self.replied.push_back((request, value));
        }
        None
    }

    pub(super) fn next_timer(&self) -> Moment {
        self.next_deadline.min(self.send_at)
    }

    /// Returns `true` if a request is left to the driver.
    pub(super) fn is_busy(&self) -> bool {
        self.is_gathering || self.in_flight.len() >= MAX_ALONE || !self.steps.is_empty()
    }

    /// Ends the queued steps that are past their deadline, or whose caller is gone. Adds the wakers of their callers.
    pub(super) fn remove_unwanted(&mut self, now: Moment, wakers: &mut Vec<Waker>) {
        self.steps.retain(|step| {
            let reason = match step.slot.deadline() {
                None => Some(Unsent::Abandoned),
                Some(_) if step.caller.is_gone() => Some(Unsent::Abandoned),
                Some(deadline) => (deadline <= now).then_some(Unsent::Late),
            };
            wakers.extend(reason.and_then(|reason| step.slot.set(Outcome::Unsent(reason))));
            reason.is_none()
        });
    }

    /// Encodes queued steps, as many as [`MAX_CALLS`] allows. Adds the wakers of callers whose steps are not sent.
    pub(super) fn encode_steps(&mut self, now: Moment, wakers: &mut Vec<Waker>) {
        if self.steps.is_empty() {
            self.send_at = Moment::NEVER;
            return;
        }
        self.remove_unwanted(now, wakers);
        if self.mode.is_cluster() {
            // Steps of one slot are next to each other then.
            self.steps.make_contiguous().sort_by_cached_key(|step| step.lock.slot());
        }
        let is_due = now >= self.send_at;
        while !self.steps.is_empty() && (is_due || self.has_room()) {
            let content = self.take_group();
            self.encode(content, By::Hash, now);
            self.send_at = Moment::NEVER;
        }
        if self.steps.is_empty() {
            self.send_at = Moment::NEVER;
        } else if self.send_at == Moment::NEVER {
            self.send_at = now + MAX_DELAY;
        }
    }

    /// Returns `true` if the queued steps may be sent. On a cluster node, they always may.
    ///
    /// A group that is small beside the last one waits for the reply to that one. Its callers would stay a small group
    /// of their own for as long as they send steps, and each call costs as much as many steps.
    pub(super) fn has_room(&self) -> bool {
        let is_small = self.shareable > 0 && 2 * self.steps.len() < self.last_group;
        (self.shareable < MAX_CALLS && !is_small) || self.mode.is_cluster()
    }

    /// Takes the next steps that share a call.
    fn take_group(&mut self) -> Content {
        let is_cluster = self.mode.is_cluster();
        let slot = |step: &ScriptCall| if is_cluster { step.lock.slot() } else { 0 };
        let first = slot(&self.steps[0]);
        let length = self.steps.iter().take(MAX_BATCH).take_while(|step| slot(step) == first).count();
        let mut group: Vec<_> = self.steps.drain(..length).collect();
        match group.pop() {
            Some(call) if group.is_empty() => Content::Call { call, asking: false },
            last => {
                group.extend(last);
                Content::Batch(group)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use turnlock_core::model::{Claim, Step};
    use turnlock_core::{Kind, LockName, OwnerId};

    use super::super::in_flight::Commands;
    use super::*;
    use crate::steps;

    const NOW: Moment = Moment::from_micros(1_000_000);

    /// Queues a release of `name`, which can share a call.
    fn queue_step(queues: &mut Queues, name: &str) {
        let name = LockName::of(Kind::Lock, "", name).expect("a good name");
        let step = Step::Release(Claim::new(&name, &OwnerId::from_wire("client:1"), 0));
        let call = Arc::new(steps::script_call(&[step]).expect("a call"));
        call.slot.begin(Moment::NEVER);
        queues.steps.push_back(call);
    }

    /// Encodes steps at `now`, and returns the number of requests in flight after it.
    fn encode_steps(queues: &mut Queues, now: Moment) -> usize {
        queues.encode_steps(now, &mut Vec::new());
        queues.in_flight.len()
    }

    #[test]
    fn a_step_does_not_wait_for_requests_that_it_cannot_share() {
        let mut queues = Queues::new(1, ServerMode::Standalone);
        for _ in 0..100 {
            queues.encode(Content::Commands(Commands::one(&redis::cmd("PING")), Vec::new()), By::Hash, NOW);
        }
        queue_step(&mut queues, "orders");
        assert_eq!(encode_steps(&mut queues, NOW), 101);
    }

    #[test]
    fn a_step_waits_a_millisecond_at_most_however_often_others_are_sent() {
        let mut queues = Queues::new(1, ServerMode::Standalone);
        for number in 0..MAX_CALLS {
            queue_step(&mut queues, &number.to_string());
            assert_eq!(encode_steps(&mut queues, NOW), number + 1);
        }
        queue_step(&mut queues, "first");
        assert_eq!(encode_steps(&mut queues, NOW), MAX_CALLS);
        queue_step(&mut queues, "second");
        assert_eq!(encode_steps(&mut queues, NOW + MAX_DELAY / 2), MAX_CALLS);
        // Both in one call; a whole queue in several.
        assert_eq!(encode_steps(&mut queues, NOW + MAX_DELAY), MAX_CALLS + 1);
        assert!(queues.steps.is_empty() && queues.next_timer() == Moment::NEVER);
        for number in 0..3 * MAX_BATCH {
            queue_step(&mut queues, &number.to_string());
        }
        assert_eq!(encode_steps(&mut queues, NOW + MAX_DELAY), MAX_CALLS + 1);
        assert_eq!(queues.next_timer(), NOW + MAX_DELAY * 2);
        assert_eq!(encode_steps(&mut queues, NOW + MAX_DELAY * 2), MAX_CALLS + 4);
    }

    #[test]
    fn a_few_steps_wait_for_the_reply_to_many() {
        let mut queues = Queues::new(1, ServerMode::Standalone);
        for number in 0..8 {
            queue_step(&mut queues, &number.to_string());
        }
        assert_eq!(encode_steps(&mut queues, NOW), 1);
        for number in 8..11 {
            queue_step(&mut queues, &number.to_string());
            assert_eq!(encode_steps(&mut queues, NOW), 1);
        }
        // Not longer than a millisecond.
        assert_eq!(queues.next_timer(), NOW + MAX_DELAY);
        queue_step(&mut queues, "a fourth");
        assert_eq!(encode_steps(&mut queues, NOW), 2);
        queue_step(&mut queues, "one after the replies");
        for _ in 0..2 {
            queues.complete(Value::Nil);
        }
        assert_eq!(encode_steps(&mut queues, NOW), 1);
    }

    #[test]
    fn nothing_is_due_once_no_step_waits() {
        let mut queues = Queues::new(1, ServerMode::Standalone);
        for number in 0..=MAX_CALLS {
            queue_step(&mut queues, &number.to_string());
            encode_steps(&mut queues, NOW);
        }
        assert_eq!(queues.next_timer(), NOW + MAX_DELAY);
        // Its caller is dropped.
        drop(queues.steps[0].slot.outcome());
        queues.remove_unwanted(NOW, &mut Vec::new());
        assert_eq!(encode_steps(&mut queues, NOW + MAX_DELAY), MAX_CALLS);
        assert_eq!(queues.next_timer(), Moment::NEVER);
    }

    #[test]
    fn in_a_cluster_the_steps_of_a_slot_share_a_call() {
        let mut queues = Queues::new(1, ServerMode::Cluster);
        for name in ["{a}1", "{b}1", "{a}2", "{c}1", "{b}2", "{a}3"] {
            queue_step(&mut queues, name);
        }
        assert_eq!(encode_steps(&mut queues, NOW), 3);
        let mut sizes: Vec<_> = queues.in_flight.iter().map(|call| call.content.slots().count()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2, 3]);
    }
}
