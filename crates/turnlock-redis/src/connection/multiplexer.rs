use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use redis::{RedisError, RedisResult, Value};
use tokio::io::WriteHalf;
use tokio::sync::Notify;
use turnlock_core::Moment;
use turnlock_store::{Sent, clock};

use super::in_flight::{Commands, Content, InFlight};
use super::queues::{Phase, Queues, Writing};
use super::writer::Writer;
use crate::failure;
use crate::handshake::Stream;
use crate::lua::ServerMode;
use crate::reply_slot::{Outcome, ReplySlot, Unsent};
use crate::resp::Values;
use crate::script_call::{By, ScriptCall};
use crate::sync::{Mutex, MutexGuard};

/// Sends the requests of many callers over one stream, and passes each its reply.
///
/// While few requests are in flight, a caller writes its own. Otherwise the [driver](super::driver) writes those of
/// many callers at once, and steps share a script call, each with its own outcome: a call costs client and server more
/// than the step in it. On a cluster node, the steps of one slot share a call. A step that waits for that is not sent:
/// when its time is over, or its caller is gone, it never is.
pub(crate) struct Multiplexer {
    queues: Mutex<Queues>,
    /// Locked by the one who is writing, as [`Queues::writing`] says.
    writer: Mutex<Writer>,
    wake_driver: Notify,
    /// The error that the server sent before any request.
    refusal: Mutex<Option<RedisError>>,
    /// The time of the last reply, in microseconds of the local clock.
    last_reply: AtomicU64,
    /// The connection accepts no requests. For a check without the mutex.
    is_retired: AtomicBool,
}

impl Multiplexer {
    pub(super) fn new(number: u64, mode: ServerMode, writer: WriteHalf<Stream>) -> Self {
        Self {
            queues: Mutex::new(Queues::new(number, mode)),
            writer: Mutex::new(Writer::new(writer)),
            wake_driver: Notify::new(),
            refusal: Mutex::default(),
            last_reply: AtomicU64::new(clock::now().as_micros()),
            is_retired: AtomicBool::new(false),
        }
    }

    /// Sends a script call. Its outcome arrives in its slot, until `deadline`.
    ///
    /// With `asking`, the call follows an `ASK` redirect from the node that the slot is moving from.
    pub(super) fn call(&self, call: &Arc<ScriptCall>, asking: bool, now: Moment, deadline: Moment) {
        call.slot.begin(deadline);
        let mut queues = self.queues.lock();
        if queues.phase != Phase::Open {
            return call.slot.end(Outcome::Unsent(Unsent::Closed));
        }
        let is_busy = queues.is_busy();
        if is_busy && call.can_be_batched() && !asking {
            queues.steps.push_back(Arc::clone(call));
        } else {
            queues.encode(Content::Call { call: Arc::clone(call), asking }, By::Hash, now);
        }
        self.write_or_leave(queues, is_busy, deadline);
    }

    /// Sends commands. Their outcome arrives in their slot, until `deadline`; that of several is a list.
    pub(super) fn send(&self, commands: &Arc<Commands>, now: Moment, deadline: Moment) {
        commands.slot.begin(deadline);
        let mut queues = self.queues.lock();
        if queues.phase != Phase::Open {
            return commands.slot.end(Outcome::Unsent(Unsent::Closed));
        }
        let is_busy = queues.is_busy();
        queues.encode(Content::Commands(Arc::clone(commands), Vec::new()), By::Hash, now);
        self.write_or_leave(queues, is_busy, deadline);
    }

    /// Writes what is encoded, or leaves it to the driver.
    fn write_or_leave(&self, mut queues: MutexGuard<'_, Queues>, is_busy: bool, deadline: Moment) {
        let mut wakes_driver = deadline < queues.next_deadline;
        queues.next_deadline = queues.next_deadline.min(deadline);
        // With many calls in flight, the next reply makes room, or the delay ends that the first step started.
        if is_busy
            && !queues.is_gathering
            && (!queues.outgoing.is_empty() || queues.has_room() || queues.steps.len() == 1)
        {
            queues.is_gathering = true;
            wakes_driver = true;
        }
        drop(queues);
        if wakes_driver {
            self.wake_driver.notify_one();
        }
        if !is_busy {
            self.write();
        }
    }

    /// Writes what is encoded, unless another writes already.
    fn write(&self) {
        {
            let mut queues = self.queues.lock();
            if queues.writing != Writing::No || queues.outgoing.is_empty() {
                return;
            }
            queues.writing = Writing::Now;
        }
        // The driver waits for the stream, if it does not take all at once.
        if self.poll_write(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.queues.lock().writing = Writing::Stalled;
            self.wake_driver.notify_one();
        }
    }

    /// Writes until nothing is left. Closes the connection if the stream fails.
    pub(super) fn poll_write(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut writer = self.writer.lock();
        loop {
            match writer.poll_write(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    drop(writer);
                    self.fail(&error.into());
                    self.wake_driver.notify_one();
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(())) => {
                    let mut queues = self.queues.lock();
                    if queues.outgoing.is_empty() {
                        queues.writing = Writing::No;
                        return Poll::Ready(());
                    }
                    writer.refill(&mut queues.outgoing);
                }
            }
        }
    }

    /// Sends queued steps, and writes what is encoded.
    pub(super) fn send_queued(&self) {
        let now = clock::now();
        let mut wakers = Vec::new();
        let mut queues = self.queues.lock();
        queues.is_gathering = false;
        queues.encode_steps(now, &mut wakers);
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
        self.write();
    }

    /// Assigns replies to the requests in flight, in order. [`take_replied`](Self::take_replied) returns them.
    ///
    /// # Errors
    ///
    /// A reply to nothing.
    pub(super) fn receive(&self, values: Values) -> RedisResult<()> {
        let now = clock::now();
        self.last_reply.store(now.as_micros(), Ordering::Relaxed);
        let mut queues = self.queues.lock();
        let unexpected = values.into_iter().find_map(|value| queues.complete(value));
        // The callers that are woken send their next requests together.
        queues.is_gathering |= queues.replied.len() > 1 || !queues.steps.is_empty();
        let is_timer_due = now >= queues.next_timer();
        drop(queues);
        if is_timer_due {
            self.expire();
        }
        match unexpected {
            None => Ok(()),
            Some(value) => {
                // A server that refuses a new connection does so before it has read anything.
                *self.refusal.lock() = value.extract_error().err();
                Err(io::Error::new(io::ErrorKind::InvalidData, "a reply to no request").into())
            }
        }
    }

    /// Returns the next request that has its reply. [`settle`](Self::settle) must follow, without an await before it.
    pub(super) fn take_replied(&self) -> Option<(InFlight, Value)> {
        self.queues.lock().replied.pop_front()
    }

    /// Lets the callers that are about to be woken send their next requests together.
    pub(super) fn gather(&self) {
        self.queues.lock().is_gathering = true;
    }

    /// Passes a reply to its callers, or sends their request again if the server did nothing.
    pub(super) fn settle(&self, InFlight { content, by, sent, .. }: InFlight, value: Value) {
        let now = clock::now;
        let error = match &value {
            Value::ServerError(error) => Some(RedisError::from(error.clone())),
            _ => None,
        };
        let is_unknown_script = by == By::Hash && error.as_ref().is_some_and(failure::is_no_script);
        match (content, value) {
            // The server lost its scripts (SCRIPT FLUSH, a restart) and did nothing, so this does not repeat a step.
            (content @ (Content::Call { .. } | Content::Batch(_)), _) if is_unknown_script => {
                self.resend([content], By::Text, now());
            }
            (Content::Call { call, .. }, value) => call.slot.end(Outcome::Replied(value, sent)),
            (Content::Batch(calls), Value::Array(values)) if values.len() == calls.len() => {
                // The role of the server concerns the whole call: no step of it counts.
                let replica_error = values.iter().find(|value| failure::is_replica_reply(value)).cloned();
                for (call, value) in calls.iter().zip(values) {
                    let value = replica_error.clone().unwrap_or(value);
                    call.slot.end(Outcome::Replied(value, sent));
                }
            }
            // Nothing was done, maybe because of a single step: a key that this user may not access, or a slot that
            // is moving. Sent alone, each step gets the reply that is its own.
            (Content::Batch(calls), _)
                if error.as_ref().is_some_and(|error| !failure::breaks_connection(error)) =>
            {
                let alone = calls.into_iter().map(|call| Content::Call { call, asking: false });
                self.resend(alone, By::Hash, now());
            }
            (Content::Batch(calls), value) => {
                for call in &calls {
                    call.slot.end(Outcome::Replied(value.clone(), sent));
                }
            }
            (Content::Commands(commands, _), value) => commands.slot.end(Outcome::Replied(value, sent)),
        }
    }

    /// Sends requests again that had no effect, without the steps that no caller waits for.
    ///
    /// Such a step may have been undone meanwhile, and must not follow its undo.
    fn resend(&self, requests: impl IntoIterator<Item = Content>, by: By, now: Moment) {
        let mut unsent = Vec::new();
        let mut queues = self.queues.lock();
        for mut request in requests {
            if let Content::Batch(calls) = &mut request {
                calls.retain(|call| call.slot.deadline().is_some());
            }
            let deadline = request.slots().filter_map(ReplySlot::deadline).min();
            if queues.phase != Phase::Open {
                unsent.push(request);
            } else if let Some(deadline) = deadline {
                // It may have been forgotten while the request was not in flight.
                queues.next_deadline = queues.next_deadline.min(deadline);
                queues.encode(request, by, now);
            }
        }
        queues.is_gathering = true;
        drop(queues);
        for slot in unsent.iter().flat_map(Content::slots) {
            slot.end(Outcome::Unsent(Unsent::Closed));
        }
    }

    /// Ends the requests whose deadline has passed.
    pub(super) fn expire(&self) {
        let now = clock::now();
        let mut wakers = Vec::new();
        let mut queues = self.queues.lock();
        queues.is_gathering |= now >= queues.send_at;
        if now < queues.next_deadline {
            return;
        }
        queues.remove_unwanted(now, &mut wakers);
        let mut next = queues.steps.iter().filter_map(|step| step.slot.deadline()).min();
        for request in &queues.in_flight {
            for slot in request.content.slots() {
                match slot.deadline() {
                    Some(deadline) if deadline <= now => {
                        wakers.extend(slot.set(Outcome::TimedOut(request.sent)));
                    }
                    deadline => next = [next, deadline].into_iter().flatten().min(),
                }
            }
        }
        queues.next_deadline = next.unwrap_or(Moment::NEVER);
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Accepts no more requests. Those in flight may still get replies.
    pub(super) fn retire(&self) {
        let mut queues = self.queues.lock();
        queues.phase = queues.phase.max(Phase::Retired);
        self.is_retired.store(true, Ordering::Relaxed);
        let steps = mem::take(&mut queues.steps);
        drop(queues);
        for step in steps {
            step.slot.end(Outcome::Unsent(Unsent::Closed));
        }
    }

    /// Closes the connection because its stream failed.
    pub(super) fn fail(&self, error: &RedisError) {
        self.close(|sent| Outcome::Broken(error.clone(), sent));
    }

    /// Closes the connection. Requests that were sent have the outcome `end`.
    pub(super) fn close(&self, end: impl Fn(Sent) -> Outcome) {
        self.retire();
        let mut queues = self.queues.lock();
        queues.phase = Phase::Closed;
        queues.outgoing.clear();
        let (in_flight, replied) = (mem::take(&mut queues.in_flight), mem::take(&mut queues.replied));
        drop(queues);
        for request in replied.into_iter().map(|(request, _)| request).chain(in_flight) {
            request.content.slots().for_each(|slot| slot.end(end(request.sent)));
        }
    }

    /// Returns `true` if the connection accepts no requests.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Returns the error that the server sent before any request.
    pub(super) fn refusal(&self) -> Option<RedisError> {
        self.refusal.lock().clone()
    }

    /// Returns what the driver has to do next.
    pub(super) fn driver_view(&self) -> DriverView {
        let queues = self.queues.lock();
        DriverView {
            is_closed: queues.phase == Phase::Closed,
            is_stalled: queues.writing == Writing::Stalled,
            next_timer: queues.next_timer(),
        }
    }

    pub(super) fn is_gathering(&self) -> bool {
        self.queues.lock().is_gathering
    }

    /// Waits until a caller needs the driver.
    pub(super) async fn driver_needed(&self) {
        self.wake_driver.notified().await;
    }

    /// Returns `true` if a step is queued, and not sent.
    #[cfg(test)]
    pub(super) fn has_queued(&self, step: &Arc<ScriptCall>) -> bool {
        self.queues.lock().steps.iter().any(|queued| Arc::ptr_eq(queued, step))
    }

    /// Returns the time of the last reply.
    pub(super) fn last_reply(&self) -> Moment {
        Moment::from_micros(self.last_reply.load(Ordering::Relaxed))
    }
}

/// What the driver has to do next.
pub(super) struct DriverView {
    pub(super) is_closed: bool,
    /// The stream did not take all that was to be written.
    pub(super) is_stalled: bool,
    /// When [`Multiplexer::expire`] is due.
    pub(super) next_timer: Moment,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use turnlock_core::model::{Claim, Step};
    use turnlock_core::{Kind, LockName, OwnerId};

    use super::*;
    use crate::steps;

    /// A multiplexer without a server, and calls that share a request, with this deadline.
    fn batch(deadline: Moment) -> (Multiplexer, [Arc<ScriptCall>; 2]) {
        let (client, _) = tokio::io::duplex(64);
        let (_, writer) = tokio::io::split(Box::pin(client) as Stream);
        let multiplexer = Multiplexer::new(1, ServerMode::Standalone, writer);
        let calls = ["one", "two"].map(|name| {
            let name = LockName::of(Kind::Lock, "", name).expect("a good name");
            let step = Step::Release(Claim::new(&name, &OwnerId::from_wire("client:1"), 0));
            let call = Arc::new(steps::script_call(&[step]).expect("a call"));
            call.slot.begin(deadline);
            call
        });
        multiplexer.queues.lock().encode(Content::Batch(calls.to_vec()), By::Hash, clock::now());
        (multiplexer, calls)
    }

    /// Passes a reply to the request in flight.
    fn reply(multiplexer: &Multiplexer, bytes: &[u8]) {
        let reply = redis::parse_redis_value(bytes).expect("a reply");
        multiplexer.receive([reply].into_iter().collect()).expect("a reply to a request");
        let (request, value) = multiplexer.take_replied().expect("it has its reply");
        multiplexer.settle(request, value);
    }

    #[tokio::test]
    async fn a_step_that_is_sent_again_keeps_its_deadline() {
        for refusal in [&b"-NOSCRIPT unknown\r\n"[..], b"-NOPERM a key\r\n"] {
            let deadline = clock::now() + Duration::from_secs(3);
            let (multiplexer, _calls) = batch(deadline);
            // The deadline of an earlier call is over when the reply arrives.
            multiplexer.queues.lock().next_deadline = clock::now();
            reply(&multiplexer, refusal);
            assert_eq!(multiplexer.driver_view().next_timer, deadline);
        }
    }

    #[tokio::test]
    async fn a_reply_of_a_replica_counts_for_all_steps_of_a_batch() {
        let (multiplexer, calls) = batch(Moment::NEVER);
        reply(&multiplexer, b"*2\r\n:1\r\n-READONLY a replica\r\n");
        for call in calls {
            let outcome = call.slot.outcome().now_or_never();
            let Some(Outcome::Replied(value, _)) = outcome else { panic!("a reply") };
            assert!(failure::is_replica_reply(&value), "{value:?}");
        }
    }
}
