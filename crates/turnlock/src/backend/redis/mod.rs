//! One Redis server: a request becomes a script with keys and arguments, its reply a typed answer.

mod failure;
mod link;
mod scripts;
mod subscriber;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use turnlock_core::model::{Acquired, Released, Renewed, Snapshot};
use turnlock_core::{Lease, LockName, OwnerId};

use super::{Answer, Backend, Failure, FailureKind, Renewal, Signals, Step};
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
        let subscriber = Subscriber::connect(client, connect_limit).await?;
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
            let Answer { value, connection } = link.run(call, limit).await?;
            match decode(value) {
                Ok(value) => Ok(Answer { value, connection }),
                Err(value) => Err(Failure::refused(FailureKind::Unavailable(Arc::new(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the server answered a script with {value:?}"),
                ))))),
            }
        })
    }
}

fn decode_acquired(value: Value) -> Result<Acquired, Value> {
    match value {
        Value::Nil => Ok(Acquired::Granted),
        Value::Int(-3) => Ok(Acquired::Gone),
        Value::Int(ttl) if ttl >= -1 => Ok(Acquired::Busy { ttl: millis(ttl) }),
        other => Err(other),
    }
}

fn decode_released(value: Value) -> Result<Released, Value> {
    match value {
        Value::Nil => Ok(Released::NotHeld),
        Value::Int(-1) => Ok(Released::Lowered),
        Value::Int(-2) => {
            tracing::warn!(
                "released, but the server lets this user not publish: waiters find out by polling"
            );
            Ok(Released::Freed)
        }
        Value::Int(heard) if heard >= 0 => Ok(Released::Freed),
        other => Err(other),
    }
}

fn decode_renewed(value: Value) -> Result<Vec<Option<Renewed>>, Value> {
    let Value::Array(lines) = value else {
        return Err(value);
    };
    let decode = |line| match line {
        Value::Int(1) => Some(Renewed::Renewed),
        Value::Int(0) => Some(Renewed::NotHeld),
        _ => None,
    };
    Ok(lines.into_iter().map(decode).collect())
}

/// `Err` carries what was found instead of a lock.
fn decode_snapshot(value: Value) -> Result<Result<Snapshot, String>, Value> {
    let Value::Array(items) = value else {
        return Err(value);
    };
    let Some((Value::Int(ttl), fields)) = items.split_first() else {
        return Err(Value::Array(items));
    };
    let mut snapshot = Snapshot { holders: Vec::with_capacity(fields.len() / 2), ttl: millis(*ttl) };
    for field in fields.chunks_exact(2) {
        let (Value::BulkString(owner), Value::BulkString(count)) = (&field[0], &field[1]) else {
            return Err(Value::Array(items));
        };
        let owner = String::from_utf8_lossy(owner);
        match String::from_utf8_lossy(count).parse() {
            Ok(count) => snapshot.holders.push((OwnerId::from_wire(&owner), count)),
            Err(_) => return Ok(Err(format!("a hash whose field {owner:?} is no hold count"))),
        }
    }
    Ok(Ok(snapshot))
}

fn millis(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

impl Backend for Redis {
    fn acquire(
        &self,
        name: &LockName,
        owner: &OwnerId,
        target: u32,
        lease: Lease,
        limit: Duration,
    ) -> Step<Acquired> {
        let keys = vec![name.key().into()];
        let args =
            vec![owner.as_str().into(), target.to_string().into(), lease.as_millis().to_string().into()];
        self.step(ScriptCall::new(&scripts::ACQUIRE, keys, args), limit, decode_acquired)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, target: u32, limit: Duration) -> Step<Released> {
        let keys = vec![name.key().into()];
        let args = vec![owner.as_str().into(), target.to_string().into(), name.channel().into()];
        self.step(ScriptCall::new(&scripts::RELEASE, keys, args), limit, decode_released)
    }

    fn renew(&self, lines: Vec<Renewal>, limit: Duration) -> Step<Vec<Option<Renewed>>> {
        let keys = lines.iter().map(|line| line.name.key().into()).collect();
        let arg = |line: &Renewal| {
            let lease = line.lease.map_or(0, Lease::as_millis);
            [line.owner.as_str().into(), lease.to_string().into()]
        };
        let args = lines.iter().flat_map(arg).collect();
        self.step(ScriptCall::new(&scripts::RENEW, keys, args), limit, decode_renewed)
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let call =
            ScriptCall::new(&scripts::FORCE_UNLOCK, vec![name.key().into()], vec![name.channel().into()]);
        self.step(call, limit, |value| match value {
            Value::Int(was_held) => Ok(was_held == 1),
            other => Err(other),
        })
    }

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot> {
        let call = ScriptCall::new(&scripts::INSPECT, vec![name.key().into()], Vec::new());
        let step = self.step(call, limit, decode_snapshot);
        let key = name.key().to_owned();
        Box::pin(async move {
            let Answer { value, connection } = step.await?;
            match value {
                Ok(value) => Ok(Answer { value, connection }),
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
