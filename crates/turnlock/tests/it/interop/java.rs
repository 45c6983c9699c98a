use turnlock_testkit::{Answer, PeerError, PeerThread, within};

use super::SOON;

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

    /// The same thread, at another kind of object.
    pub(super) fn at(&self, object: &'static str) -> Self {
        Self { thread: self.thread.clone(), object }
    }

    fn request(&self, name: &str, call: &str) -> String {
        format!("{} {name} {call}", self.object)
    }

    /// Calls a method of the object of this name, and gives what it gives.
    pub(super) async fn call(&self, name: &str, call: &str) -> Result<String, PeerError> {
        self.thread.call(&self.request(name, call)).await
    }

    /// What a call gives that does not fail.
    pub(super) async fn ask(&self, name: &str, call: &str) -> String {
        let outcome = self.call(name, call).await;
        outcome.unwrap_or_else(|error| panic!("{}: {error}", self.request(name, call)))
    }

    /// The number that a call gives.
    pub(super) async fn number(&self, name: &str, call: &str) -> u64 {
        self.ask(name, call).await.parse().expect("a number")
    }

    /// A call that gives nothing, and succeeds.
    pub(super) async fn does(&self, name: &str, call: &str) {
        self.says(name, call, "-").await;
    }

    /// A call that must give this.
    pub(super) async fn says(&self, name: &str, call: &str, expected: &str) {
        assert_eq!(self.ask(name, call).await, expected, "{}", self.request(name, call));
    }

    /// A call that must fail, since the lock is not held by this thread.
    pub(super) async fn holds_nothing(&self, name: &str) {
        let error = self.call(name, "unlock").await.expect_err("it does not hold the lock");
        assert_eq!(error.name, "IllegalMonitorStateException", "{error}");
    }

    /// Begins a call that will take its time.
    pub(super) fn begins(&self, name: &str, call: &str) -> Answer {
        self.thread.begin(&self.request(name, call))
    }
}

/// The answer to a call that has now no more reason to wait.
#[track_caller]
pub(super) fn soon(answer: Answer) -> impl Future<Output = String> {
    let answer = within(SOON, "Java is told", answer);
    async move { answer.await.expect("no exception") }
}
