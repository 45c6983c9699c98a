//! The task of a live connection: reads replies, and writes for callers that leave it to the task.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use redis::RedisResult;
use tokio::io::ReadHalf;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use turnlock_core::Moment;
use turnlock_store::clock;

use super::multiplexer::{DriverView, Multiplexer};
use crate::failure;
use crate::handshake::Stream;
use crate::reply_slot::Outcome;
use crate::resp::ReplyReader;

/// How often the task yields before it sends what is queued.
///
/// A reply to a batch wakes as many callers, whose next steps arrive one by one.
const YIELDS: usize = 3;

/// Drives a connection until it closes, or until `moved`: the server is not the master any more.
///
/// `on_batch` is called with the number of steps of each call that several share, when it has its reply.
pub(super) async fn run(
    multiplexer: Arc<Multiplexer>,
    reader: ReadHalf<Stream>,
    moved: impl Future<Output = ()>,
    on_batch: impl Fn(usize),
) {
    // Also if this future is dropped: the runtime has ended, or nothing uses the connection any more.
    let closing = CloseOnDrop(&multiplexer);
    tokio::select! {
        biased;
        outcome = drive(&multiplexer, reader, on_batch) => {
            outcome.err().iter().for_each(|error| multiplexer.fail(error));
        }
        () = moved => multiplexer.close(Outcome::Demoted),
    }
    drop(closing);
}

async fn drive(
    multiplexer: &Multiplexer,
    stream: ReadHalf<Stream>,
    on_batch: impl Fn(usize),
) -> RedisResult<()> {
    let mut replies = ReplyReader::new(stream);
    let mut timer = pin!(sleep_until(Instant::now()));
    let mut timer_end = Moment::NEVER;
    loop {
        let DriverView { is_closed, is_stalled, next_timer } = multiplexer.driver_view();
        if is_closed {
            return Ok(());
        }
        if next_timer != timer_end && next_timer != Moment::NEVER {
            timer.as_mut().reset(Instant::now() + next_timer.since(clock::now()));
        }
        timer_end = next_timer;
        tokio::select! {
            biased;
            replies = replies.read() => {
                let outcome = multiplexer.receive(replies?);
                while let Some((request, value)) = multiplexer.take_replied() {
                    let batch_len = request.batch_len();
                    if batch_len.is_some() {
                        multiplexer.gather();
                    }
                    multiplexer.settle(request, value);
                    // One batch after the other: the server runs the next one while the callers of this one go on.
                    if let Some(steps) = batch_len {
                        on_batch(steps);
                        send_gathered(multiplexer).await;
                    }
                }
                outcome?;
            }
            () = multiplexer.driver_needed() => {}
            () = timer.as_mut(), if timer_end != Moment::NEVER => multiplexer.expire(),
            () = poll_fn(|context| multiplexer.poll_write(context)), if is_stalled => {}
        }
        if multiplexer.is_gathering() {
            send_gathered(multiplexer).await;
        }
    }
}

/// Lets callers queue their steps for a moment, and sends them.
async fn send_gathered(multiplexer: &Multiplexer) {
    for _ in 0..YIELDS {
        yield_now().await;
    }
    multiplexer.send_queued();
}

/// Closes the connection when the task ends.
struct CloseOnDrop<'a>(&'a Multiplexer);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fail(&io::Error::new(io::ErrorKind::ConnectionAborted, failure::RUNTIME_GONE).into());
    }
}
