//! One Redis server: a request becomes a script with keys and arguments, its reply a typed answer.

mod failure;
mod link;
mod scripts;
mod subscriber;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use turnlock_core::model::{Acquired, Released, Renewed, Snapshot};
use turnlock_core::{Lease, LockName, OwnerId};

use super::{Answer, Backend, Claim, Failure, FailureKind, Renewal, Sent, Signals, Step};
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
    fn acquire(&self, claim: Claim<'_>, lease: Lease, limit: Duration) -> Step<Acquired> {
        let call = ScriptCall::on(&scripts::ACQUIRE, claim.name);
        let call = call.arg(claim.owner.as_str()).arg(claim.target).arg(lease.as_millis());
        self.step(call, limit, decode_acquired)
    }

    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released> {
        let call = ScriptCall::on(&scripts::RELEASE, claim.name);
        let call = call.arg(claim.owner.as_str()).arg(claim.target).arg(claim.name.channel());
        self.step(call, limit, decode_released)
    }

    fn renew(&self, lines: &[Renewal], limit: Duration) -> Step<Vec<Option<Renewed>>> {
        let Some(mut call) = ScriptCall::on_all(&scripts::RENEW, lines.iter().map(|line| &line.name)) else {
            return Box::pin(async {
                Ok(Answer { value: Vec::new(), sent: Sent { connection: 0, at: clock::now() } })
            });
        };
        for line in lines {
            call = call.arg(line.owner.as_str()).arg(line.lease.map_or(0, Lease::as_millis));
        }
        self.step(call, limit, decode_renewed)
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let call = ScriptCall::on(&scripts::FORCE_UNLOCK, name).arg(name.channel());
        self.step(call, limit, |value| match value {
            Value::Int(was_held) => Ok(was_held == 1),
            other => Err(other),
        })
    }

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot> {
        let call = ScriptCall::on(&scripts::INSPECT, name);
        let step = self.step(call, limit, decode_snapshot);
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
