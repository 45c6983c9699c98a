use turnlock_testkit::{PeerError, PeerThread, PendingReply, within};

use super::WAKE_UP_LIMIT;

/// A Java thread that works with one kind of object: `lock`, `fair`, `semaphore`, ….
#[derive(Clone)]
pub(crate) struct Java {
    thread: PeerThread,
    object: &'static str,
}

impl Java {
    pub(super) fn new(thread: PeerThread, object: &'static str) -> Self {
        Self { thread, object }
    }

    /// The same thread, for another kind of object.
    pub(super) fn at(&self, object: &'static str) -> Self {
        Self { thread: self.thread.clone(), object }
    }

    fn request(&self, name: &str, call: &str) -> String {
        format!("{} {name} {call}", self.object)
    }

    /// Calls a method of the object of this name, and returns its result.
    pub(super) async fn call(&self, name: &str, call: &str) -> Result<String, PeerError> {
        self.thread.call(&self.request(name, call)).await
    }

    /// The result of a call that must not fail.
    pub(super) async fn call_ok(&self, name: &str, call: &str) -> String {
        let outcome = self.call(name, call).await;
        outcome.unwrap_or_else(|error| panic!("{}: {error}", self.request(name, call)))
    }

    /// The result of a call that returns a number.
    pub(super) async fn number(&self, name: &str, call: &str) -> u64 {
        self.call_ok(name, call).await.parse().expect("a number")
    }

    /// Makes a call that returns nothing, and must not fail.
    pub(super) async fn run(&self, name: &str, call: &str) {
        self.expect(name, call, "-").await;
    }

    /// Makes a call that must return `expected`.
    pub(super) async fn expect(&self, name: &str, call: &str, expected: &str) {
        assert_eq!(self.call_ok(name, call).await, expected, "{}", self.request(name, call));
    }

    /// Makes an `unlock` that must fail, since this thread does not hold the lock.
    pub(super) async fn expect_not_held(&self, name: &str) {
        let error = self.call(name, "unlock").await.expect_err("it does not hold the lock");
        assert_eq!(error.name, "IllegalMonitorStateException", "{error}");
    }

    /// Starts a call that blocks.
    pub(super) fn start(&self, name: &str, call: &str) -> PendingReply {
        self.thread.begin(&self.request(name, call))
    }
}

/// The reply to a call that has no more reason to wait.
#[track_caller]
pub(super) fn woken(reply: PendingReply) -> impl Future<Output = String> {
    let reply = within(WAKE_UP_LIMIT, "Java is notified", reply);
    async move { reply.await.expect("no exception") }
}
