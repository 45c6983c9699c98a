use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, mpsc};

/// Work that must be run to its end, whoever waits for it.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes over work that nobody else will finish: requests whose caller has gone, and releases of dropped guards.
///
/// Handing work over does not block, needs no runtime and never fails loudly, so it can be done in a destructor. When
/// the engine's runtime is gone, the work is dropped, and the lease does its part.
#[derive(Clone, Debug)]
pub(crate) struct Errands {
    inbox: mpsc::UnboundedSender<Work>,
    ledger: Arc<Ledger>,
}

/// How much is under way.
#[derive(Debug, Default)]
struct Ledger {
    open: AtomicUsize,
    closed: Notify,
}

impl Errands {
    /// The way to hand work over, and the runner to be spawned.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send) {
        let (inbox, outbox) = mpsc::unbounded_channel();
        (Self { inbox, ledger: Arc::default() }, run(outbox))
    }

    /// Hands work over.
    pub(crate) fn adopt(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.ledger.open.fetch_add(1, Ordering::AcqRel);
        let entry = Entry(Arc::clone(&self.ledger));
        // Fails only when the runner is gone, which it says by dropping the work.
        let _ = self.inbox.send(Box::pin(async move {
            work.await;
            drop(entry);
        }));
    }

    /// Whether nobody is there to take work over: the runtime of the engine is gone.
    pub(crate) fn are_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// How much is under way.
    pub(crate) fn pending(&self) -> usize {
        self.ledger.open.load(Ordering::Acquire)
    }

    /// Waits until something was finished.
    pub(crate) async fn progress(&self) {
        self.ledger.closed.notified().await;
    }

    /// Waits until nothing is under way.
    pub(crate) async fn drained(&self) {
        while self.pending() > 0 {
            // Looks again by itself, since several may wait for the same news.
            let _ = tokio::time::timeout(Duration::from_millis(20), self.progress()).await;
        }
    }
}

/// Something under way, until it is dropped.
struct Entry(Arc<Ledger>);

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.closed.notify_one();
    }
}

/// Runs what is handed over, all at once, until nobody can hand over any more and all is done.
async fn run(mut inbox: mpsc::UnboundedReceiver<Work>) {
    let mut under_way = FuturesUnordered::new();
    let mut open = true;
    while open || !under_way.is_empty() {
        tokio::select! {
            work = inbox.recv(), if open => match work {
                Some(work) => under_way.push(survive(work)),
                None => open = false,
            },
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
        }
    }
}

/// One that panics, for whatever reason, must not take the others with it.
async fn survive(work: Work) {
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        tracing::error!("an errand panicked: what it was to undo ends with its lease");
    }
}

/// A future that is finished in any case: by the one who awaits it or, when that one goes away, by [`Errands`].
///
/// Its result is then dropped where it comes up, so a result that needs undoing undoes itself when dropped. A future
/// that was never polled has done nothing, and is just dropped.
pub(crate) struct Errand<'a, T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    begun: bool,
    errands: &'a Errands,
}

impl<'a, T: Send + 'static> Errand<'a, T> {
    pub(crate) fn new(errands: &'a Errands, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), begun: false, errands }
    }
}

impl<T: Send + 'static> Future for Errand<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.begun = true;
        // Taken out meanwhile, so that work which panics is not handed over to be polled again.
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let poll = work.as_mut().poll(context);
        if poll.is_pending() {
            self.work = Some(work);
        }
        poll
    }
}

impl<T: Send + 'static> Drop for Errand<'_, T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.begun) {
            self.errands.adopt(async move { drop(work.await) });
        }
    }
}
