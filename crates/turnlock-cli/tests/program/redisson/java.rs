use turnlock_testkit::{PeerThread, PendingReply};

/// A Java thread that uses one object: a lock of some kind, or a semaphore.
#[derive(Clone)]
pub(super) struct Java {
    thread: PeerThread,
    /// Kind and name.
    object: String,
}

impl Java {
    pub(super) fn new(thread: PeerThread, kind: &str, name: &str) -> Self {
        Self { thread, object: format!("{kind} {name}") }
    }

    fn request(&self, call: &str) -> String {
        format!("{} {call}", self.object)
    }

    /// Calls a method of the object and returns its result. Panics on an exception.
    pub(super) async fn call(&self, call: &str) -> String {
        let request = self.request(call);
        self.thread.call(&request).await.unwrap_or_else(|error| panic!("{request}: {error}"))
    }

    /// Calls a method that returns a number.
    pub(super) async fn number(&self, call: &str) -> u64 {
        self.call(call).await.parse().expect("a number")
    }

    /// Asserts that a call returns this.
    pub(super) async fn expect(&self, call: &str, expected: &str) {
        assert_eq!(self.call(call).await, expected, "{}", self.request(call));
    }

    /// Calls a method that returns nothing.
    pub(super) async fn run(&self, call: &str) {
        self.expect(call, "-").await;
    }

    /// Starts a call that blocks.
    pub(super) fn start(&self, call: &str) -> PendingReply {
        self.thread.begin(&self.request(call))
    }
}
