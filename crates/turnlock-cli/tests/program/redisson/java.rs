use turnlock_testkit::{Answer, PeerThread};

/// A Java thread at one object: a lock of some kind, or a semaphore.
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

    /// Calls a method of the object, which does not fail, and gives what it gives.
    pub(super) async fn ask(&self, call: &str) -> String {
        let request = self.request(call);
        self.thread.call(&request).await.unwrap_or_else(|error| panic!("{request}: {error}"))
    }

    /// The number that a call gives.
    pub(super) async fn number(&self, call: &str) -> u64 {
        self.ask(call).await.parse().expect("a number")
    }

    /// A call that must give this.
    pub(super) async fn says(&self, call: &str, expected: &str) {
        assert_eq!(self.ask(call).await, expected, "{}", self.request(call));
    }

    /// A call that gives nothing, and succeeds.
    pub(super) async fn does(&self, call: &str) {
        self.says(call, "-").await;
    }

    /// Begins a call that will take its time.
    pub(super) fn begins(&self, call: &str) -> Answer {
        self.thread.begin(&self.request(call))
    }
}
