use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::failure;
use super::link::{Link, Outcome};
use super::script_call::ScriptCall;
use super::trip::{self, Traveller};
use crate::backend::Failure;
use crate::clock;

/// Steps that come up while others are under way go together: many of them in one call of one script, to a server that has
/// all keys. A call costs both sides more than the step in it, and a call of many steps costs them little more than a call.
///
/// A step that comes up when nothing is under way goes by itself and at once, in the future of its caller, and pays nothing
/// for this. What comes up behind it is handed to a task, which takes all that is there each time that it may send. A task,
/// since it is polled whatever becomes of the callers: a future that spoke for others could be dropped, and strand them.
#[derive(Debug)]
pub(super) struct Convoy {
    link: Arc<Link>,
    inbox: mpsc::UnboundedSender<Traveller>,
    /// How many steps are under way by themselves, and with others.
    alone: AtomicUsize,
    together: AtomicUsize,
}

/// How many steps go by themselves at a time, as long as no others are under way. For two, the way over the task costs more
/// than it saves.
const ALONE: usize = 2;

/// How many steps go together at the most.
const LARGEST: usize = 32;

/// How many calls of the task are under way at a time. With one, either the server or the client would be idle; with many,
/// each would have few steps.
const CALLS: usize = 4;

/// How long the task waits for one of them to be answered before it sends another one all the same: on a slow line, steps
/// are not held back for the whole way.
const HELD_BACK: Duration = Duration::from_millis(1);

/// How often the task lets others run before it looks what has come. An answer to many steps wakes as many callers, and what
/// they do next comes up one by one.
const YIELDS: usize = 3;

impl Convoy {
    pub(super) fn new(link: &Arc<Link>) -> Self {
        let (inbox, outbox) = mpsc::unbounded_channel();
        link.common.runtime.spawn(drive(Arc::clone(link), outbox));
        Self { link: Arc::clone(link), inbox, alone: AtomicUsize::new(0), together: AtomicUsize::new(0) }
    }

    /// Runs the script of a step that [goes in a convoy](ScriptCall::goes_in_convoy). Waits for the answer for `limit` at
    /// the most, counted from now, but without the time to connect, which has the same limit.
    pub(super) async fn run(&self, call: &ScriptCall, limit: Duration) -> Result<Outcome, Failure> {
        if self.together.load(Ordering::Acquire) == 0 {
            let (_under_way, others) = UnderWay::enter(&self.alone);
            if others < ALONE {
                // On the heap: those who go together do without.
                return Box::pin(self.link.ask(call, false, limit)).await;
            }
        }
        let _under_way = UnderWay::enter(&self.together);
        let came = clock::now();
        let (ticket, landing) = oneshot::channel();
        let traveller = Traveller { call: call.clone(), limit, until: Instant::now() + limit, ticket };
        if self.inbox.send(traveller).is_err() {
            // The task is gone, with its runtime or by a fault.
            return Box::pin(self.link.ask(call, false, limit)).await;
        }
        landing.await.unwrap_or_else(|_| Err(failure::abandoned(came)))
    }
}

/// A step under way, until it is dropped.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    /// One more, and how many others there are.
    fn enter(count: &'a AtomicUsize) -> (Self, usize) {
        let others = count.fetch_add(1, Ordering::AcqRel);
        (Self(count), others)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The task of a convoy. Ends with it.
async fn drive(link: Arc<Link>, mut inbox: mpsc::UnboundedReceiver<Traveller>) {
    let mut trips = FuturesUnordered::new();
    let mut waiting = Vec::new();
    loop {
        if trips.len() >= CALLS {
            let _ = timeout(HELD_BACK, trips.next()).await;
        }
        for _ in 0..YIELDS {
            yield_now().await;
        }
        tokio::select! {
            biased;
            Some(()) = trips.next(), if !trips.is_empty() => {}
            taken = inbox.recv_many(&mut waiting, LARGEST) => match taken {
                0 => break,
                _ => trips.push(trip::go(&link, std::mem::take(&mut waiting))),
            }
        }
    }
    while trips.next().await.is_some() {}
}
