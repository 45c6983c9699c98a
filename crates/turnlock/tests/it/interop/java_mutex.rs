use turnlock_testkit::{PeerError, PendingReply, within};

use super::Java;
use crate::fixture::{Kind, PROMPT};

/// The same object as a Java thread uses it: a lock, or a semaphore with one permit.
#[derive(Clone)]
pub(super) struct JavaMutex {
    java: Java,
    kind: Kind,
    name: String,
}

impl JavaMutex {
    pub(super) fn new(java: &Java, kind: Kind, name: &str) -> Self {
        Self { java: java.at(kind.name()), kind, name: name.to_owned() }
    }

    /// Starts to acquire with a long lease. The reply is needed to release.
    pub(super) fn start_lock(&self) -> PendingReply {
        let call = match self.kind {
            Kind::Semaphore => "acquire 1",
            Kind::Permits => "acquire 60000",
            _ => "lock 60000",
        };
        self.java.start(&self.name, call)
    }

    /// Acquires while it is free. The reply is needed to release.
    pub(super) async fn lock(&self) -> String {
        self.start_lock().await.expect("no exception")
    }

    /// The reply of a waiter that was notified just now.
    #[track_caller]
    pub(super) fn promptly(reply: PendingReply) -> impl Future<Output = String> {
        let reply = promptly("Java is notified", reply);
        async move { reply.await.expect("no exception") }
    }

    /// Tries to acquire, and releases if granted. Returns `true` if it was granted.
    pub(super) async fn try_lock_and_unlock(&self) -> Result<bool, PeerError> {
        let call = match self.kind {
            Kind::Semaphore => "tryAcquire 1",
            Kind::Permits => "tryAcquire",
            _ => "tryLock",
        };
        let reply = self.java.call(&self.name, call).await?;
        let is_granted = !["false", "null"].contains(&reply.as_str());
        if is_granted {
            self.unlock(&reply).await;
        }
        Ok(is_granted)
    }

    /// Releases what was acquired with this reply.
    pub(super) async fn unlock(&self, reply: &str) {
        let call = match self.kind {
            Kind::Semaphore => "release 1".to_owned(),
            Kind::Permits => format!("release {reply}"),
            _ => "unlock".to_owned(),
        };
        self.java.run(&self.name, &call).await;
    }
}

/// Waits for what a message that was just published brings about.
#[track_caller]
pub(super) fn promptly<F: Future>(what: &'static str, woken: F) -> impl Future<Output = F::Output> {
    within(PROMPT, what, woken)
}
