//! One Redis server: a request becomes a script with keys and arguments, its reply a typed answer.

mod decode;
mod failure;
mod fair;
mod latch;
mod link;
mod permits;
mod plain;
mod read_write;
mod reentrant;
mod requests;
mod scripts;
mod semaphore;
mod subscriber;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use turnlock_core::model::{Acquired, Claim, Deed, Place, Released, Renewed, Snapshot, Wish};
use turnlock_core::{Kind, LockName, OwnerId};

use super::{Answer, Backend, Failure, FailureKind, Renewal, Sent, Signals, Step, Waiter};
use crate::clock;
use link::{Link, ScriptCall};
use subscriber::Subscriber;

/// Locks on one Redis server: a connection for commands, another for messages.
#[derive(Debug)]
pub(crate) struct Redis {
    link: Arc<Link>,
    subscriber: Subscriber,
}

impl Redis {
    /// Connects both ways. Must be called on the runtime that is to drive the connections.
    pub(crate) async fn connect(client: redis::Client, connect_limit: Duration) -> Result<Self, Failure> {
        let link = Arc::new(Link::new(client.clone(), connect_limit));
        link.connect().await?;
        let subscriber = Subscriber::connect(client, connect_limit, Arc::clone(&link)).await?;
        Ok(Self { link, subscriber })
    }

    fn step<T: Send + 'static>(
        &self,
        call: ScriptCall,
        limit: Duration,
        decode: impl FnOnce(Value) -> Result<T, Value> + Send + 'static,
    ) -> Step<T> {
        let link = Arc::clone(&self.link);
        Box::pin(async move {
            let Answer { value, sent } = link.run(call, limit).await?;
            match decode(value) {
                Ok(value) => Ok(Answer { value, sent }),
                Err(value) => Err(Failure::refused(FailureKind::Unavailable(Arc::new(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the server answered a script with {value:?}"),
                ))))),
            }
        })
    }
}

impl Backend for Redis {
    fn acquire(&self, claim: Claim<'_>, wish: Wish, limit: Duration) -> Step<Acquired> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::acquire(claim, wish),
            Kind::Fair => fair::acquire(claim, wish),
            Kind::Read | Kind::Write => read_write::acquire(claim, wish),
            Kind::Plain => plain::acquire(claim, wish),
            Kind::Semaphore => semaphore::acquire(claim, wish),
            Kind::Permits => permits::acquire(claim, wish),
            Kind::Latch => return never("acquire", claim.name),
        };
        self.step(call, limit, decode::acquired)
    }

    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released> {
        let call = match claim.name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::release(claim),
            Kind::Fair => fair::release(claim),
            Kind::Read | Kind::Write => read_write::release(claim),
            Kind::Plain => plain::release(claim),
            Kind::Semaphore => semaphore::release(claim),
            Kind::Permits => permits::release(claim),
            Kind::Latch => return never("release", claim.name),
        };
        self.step(call, limit, decode::released)
    }

    fn renew(&self, lines: &[Renewal], limit: Duration) -> Step<Vec<Option<Renewed>>> {
        let Some(Renewal { name: first, .. }) = lines.first() else { return nothing_to_do() };
        let call = match first.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced | Kind::Fair => reentrant::renew(first, lines),
            Kind::Read | Kind::Write => read_write::renew(first, lines),
            Kind::Plain => plain::renew(first, lines),
            Kind::Permits => permits::renew(first, lines),
            Kind::Semaphore | Kind::Latch => return never("renew", first),
        };
        self.step(call, limit, decode::renewed)
    }

    fn attend(&self, waiters: &[Waiter], limit: Duration) -> Step<Vec<Option<Place>>> {
        let Some(Waiter { name: first, .. }) = waiters.first() else { return nothing_to_do() };
        self.step(fair::attend(first, waiters), limit, decode::places)
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let call = match name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::force_unlock(name),
            Kind::Fair => fair::force_unlock(name),
            Kind::Read | Kind::Write => read_write::force_unlock(name),
            Kind::Plain => plain::force_unlock(name),
            Kind::Semaphore | Kind::Permits | Kind::Latch => return never("unlock by force", name),
        };
        self.step(call, limit, |value| decode::number(value).map(|was_held| was_held == 1))
    }

    fn perform(&self, name: &LockName, deed: Deed, request: &OwnerId, limit: Duration) -> Step<i64> {
        let call = match name.kind() {
            Kind::Semaphore => semaphore::perform(name, deed, request),
            Kind::Permits => permits::perform(name, deed, request),
            Kind::Latch => latch::perform(name, deed, request),
            _ => return never("count on", name),
        };
        self.step(call, limit, decode::number)
    }

    fn forget(&self, name: &LockName, request: &OwnerId, limit: Duration) -> Step<()> {
        self.step(requests::forget(name, request), limit, |value| decode::number(value).map(drop))
    }

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot> {
        let call = match name.kind() {
            Kind::Lock | Kind::Spin | Kind::Fenced => reentrant::inspect(name),
            Kind::Fair => fair::inspect(name),
            Kind::Read | Kind::Write => read_write::inspect(name),
            Kind::Plain => plain::inspect(name),
            Kind::Semaphore => semaphore::inspect(name),
            Kind::Permits => permits::inspect(name),
            Kind::Latch => latch::inspect(name),
        };
        let step = self.step(call, limit, decode::picture);
        let key = name.key().to_owned();
        Box::pin(async move {
            let Answer { value, sent } = step.await?;
            match value {
                Ok(value) => Ok(Answer { value, sent }),
                Err(found) => Err(Failure::refused(FailureKind::Corrupt { key, found })),
            }
        })
    }

    fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.subscriber.listen(name)
    }

    fn unlisten(&self, name: &LockName) {
        self.subscriber.unlisten(name);
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.subscriber.attach(signals.clone());
        // A second engine on the same backend would be a fault in this crate; the first one keeps the signals.
        let _ = self.link.signals.set(signals);
    }
}

fn nothing_to_do<T: Send + 'static>() -> Step<Vec<T>> {
    let sent = Sent { connection: 0, at: clock::now() };
    Box::pin(std::future::ready(Ok(Answer { value: Vec::new(), sent })))
}

/// A step that this kind of thing does not have: a fault in this crate, told rather than sent.
fn never<T: Send + 'static>(what: &str, name: &LockName) -> Step<T> {
    let cause = io::Error::new(io::ErrorKind::Unsupported, format!("cannot {what} a {}", name.kind().noun()));
    Box::pin(std::future::ready(Err(Failure::refused(FailureKind::Unavailable(Arc::new(cause))))))
}
