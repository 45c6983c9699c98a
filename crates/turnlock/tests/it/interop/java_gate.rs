use turnlock_testkit::{Answer, PeerError, within};

use super::Java;
use crate::rig::{Kind, PROMPT};

/// The same thing as Java has it: a thread of its own at one lock, or at one semaphore.
#[derive(Clone)]
pub(super) struct JavaGate {
    java: Java,
    kind: Kind,
    name: String,
}

impl JavaGate {
    pub(super) fn new(java: &Java, kind: Kind, name: &str) -> Self {
        Self { java: java.at(kind.name()), kind, name: name.to_owned() }
    }

    /// Begins to wait for a turn, which will be a long one.
    pub(super) fn begins_to_enter(&self) -> Answer {
        let call = match self.kind {
            Kind::Semaphore => "acquire 1",
            Kind::Permits => "acquire 60000",
            _ => "lock 60000",
        };
        self.java.begins(&self.name, call)
    }

    /// Gets its turn, which nobody else has; the answer is needed to leave.
    pub(super) async fn enters(&self) -> String {
        self.begins_to_enter().await.expect("no exception")
    }

    /// What it gets that has been told just now.
    #[track_caller]
    pub(super) fn promptly(answer: Answer) -> impl Future<Output = String> {
        let answer = promptly("Java is told", answer);
        async move { answer.await.expect("no exception") }
    }

    /// Whether it gets in at once; then it leaves again.
    pub(super) async fn gets_in(&self) -> Result<bool, PeerError> {
        let call = match self.kind {
            Kind::Semaphore => "tryAcquire 1",
            Kind::Permits => "tryAcquire",
            _ => "tryLock",
        };
        let answer = self.java.call(&self.name, call).await?;
        let is_in = !["false", "null"].contains(&answer.as_str());
        if is_in {
            self.leaves(&answer).await;
        }
        Ok(is_in)
    }

    /// Ends the turn that gave this answer.
    pub(super) async fn leaves(&self, answer: &str) {
        let call = match self.kind {
            Kind::Semaphore => "release 1".to_owned(),
            Kind::Permits => format!("release {answer}"),
            _ => "unlock".to_owned(),
        };
        self.java.does(&self.name, &call).await;
    }
}

/// What comes of something that was told just now.
#[track_caller]
pub(super) fn promptly<F: Future>(what: &'static str, told: F) -> impl Future<Output = F::Output> {
    within(PROMPT, what, told)
}
