use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, QueuePosition, Released, Renewed, Reply, Snapshot, Step,
};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};

use crate::call::{ReplyFuture, StepOptions, StepReply};
use crate::directory::{Directory, FoundKeys, Search};
use crate::examination::Examination;
use crate::failure::{Failure, FailureKind, Sent};

/// A store of locks, as one client uses it.
///
/// A store must execute steps, and report releases. What it may do besides is for operators only: a [`Directory`] of
/// locks and clients, and an [`Examination`]. The page "Writing a store" of the manual has the rules in detail, and an
/// example.
pub trait Store: Send + Sync + fmt::Debug {
    /// Executes one step, atomically, and waits at most [`limit`](StepOptions::limit) for the reply.
    ///
    /// A step may arrive twice or late: the [model](turnlock_core::model) says what it does then. A grant, or a lease
    /// that is set, which too few replicas acknowledge is a failure that [took effect](Failure::took_effect).
    ///
    /// A store that does not serve a kind, or a lease, refuses the step with [`FailureKind::Unsupported`].
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply>;

    /// Executes several renewals of one [renewal group](turnlock_core::Kind::renewal_group), or several heartbeats.
    ///
    /// Returns one outcome per step, in order. The outcome is `None` if the store failed with that step only, or if
    /// too few replicas acknowledged a renewal.
    fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        let calls = join_all(steps.into_iter().map(|step| self.call(step, options.clone())));
        Box::pin(async move {
            let mut sent: Option<Sent> = None;
            let mut replies = Vec::new();
            let mut failed = None;
            for outcome in calls.await {
                match outcome {
                    Ok(reply) => {
                        // The earliest, from which all leases count.
                        let is_earlier = sent.is_none_or(|sent| reply.sent.at < sent.at);
                        sent = if is_earlier { Some(reply.sent) } else { sent };
                        replies.push(Some(reply.value));
                    }
                    Err(failure) => {
                        failed.get_or_insert(failure);
                        replies.push(None);
                    }
                }
            }
            match (sent, failed) {
                // Each step has its own outcome, unless the store replied to none.
                (None, Some(failure)) => Err(failure),
                (sent, _) => Ok(StepReply::new(replies, sent.unwrap_or_else(Sent::never))),
            }
        })
    }

    /// Subscribes to releases of `name`.
    ///
    /// Ready when later releases reach [`Signals::freed`]. Gives up silently after a while, since waiters also poll.
    fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()>;

    /// Ends the subscription to `name`. The store may keep it for a moment.
    fn unsubscribe(&self, name: &LockName);

    /// Sets the receiver of signals. Called once, before any step.
    fn attach(&self, signals: Weak<dyn Signals>);

    /// Returns how the store finds locks and keeps the records of clients, if it does.
    fn directory(&self) -> Option<&dyn Directory> {
        None
    }

    /// Returns how the store examines itself, if it does.
    fn examination(&self) -> Option<&dyn Examination> {
        None
    }
}

/// The events that a store reports. Each is a hint to check again, never a grant.
pub trait Signals: Send + Sync {
    /// A release of `name` was published.
    fn freed(&self, name: &LockName);

    /// A connection broke or was re-established: holds should be confirmed.
    fn connection_changed(&self);

    /// As `connection_changed`, and the new server may lack writes that the old one confirmed.
    fn server_changed(&self);
}

/// One renewal of a batch. With a lease of `None`, it only checks that the owner holds the lock.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The lock.
    pub name: LockName,
    /// The owner of the hold.
    pub owner: OwnerId,
    /// The number of permits.
    pub permits: u32,
    /// The lease from now on.
    pub lease: Option<Lease>,
}

impl Renewal {
    /// The hold to renew.
    pub fn claim(&self) -> Claim {
        Claim { permits: self.permits, ..Claim::new(&self.name, &self.owner, 1) }
    }
}

/// One waiter of a fair lock, in a batch of heartbeats.
#[derive(Clone, Debug)]
pub struct FairWaiter {
    /// The lock.
    pub name: LockName,
    /// The waiter.
    pub owner: OwnerId,
}

/// Defines the typed calls: a step, and the reply to it.
macro_rules! typed_calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*; $options:ident: $options_type:ty) -> $reply:ty
        = $step:expr, $options_value:expr, $pattern:pat => $value:expr;)*) => {
        /// The steps as typed calls.
        impl dyn Store + '_ {
            $($(#[$doc])*
            pub fn $name(&self, $($arg: $type,)* $options: $options_type)
                -> impl Future<Output = Result<StepReply<$reply>, Failure>> + Send + 'static + use<> {
                let call = self.call($step, $options_value);
                async move {
                    call.await?.try_map(|value| match value {
                        $pattern => Ok($value),
                        other => Err(unexpected(&other)),
                    })
                }
            })*
        }
    };
}

typed_calls! {
    /// Sends [`Step::Acquire`].
    acquire(claim: Claim, acquire: AcquireOptions; options: StepOptions) -> Acquired
        = Step::Acquire(claim, acquire), options, Reply::Acquired(value) => value;
    /// Sends [`Step::Release`].
    release(claim: Claim; limit: Duration) -> Released
        = Step::Release(claim), StepOptions::of_engine(limit, 0), Reply::Released(value) => value;
    /// Sends [`Step::SetLease`] for a hold that outlasts its client.
    unlock_after(claim: Claim, lease: Lease; options: StepOptions) -> Renewed
        = Step::SetLease { claim, lease, outlasts_client: true }, options, Reply::Renewed(value) => value;
    /// Sends [`Step::SetLease`] for a hold that its client goes on using: it may end with the client.
    set_lease(claim: Claim, lease: Lease; options: StepOptions) -> Renewed
        = Step::SetLease { claim, lease, outlasts_client: false }, options, Reply::Renewed(value) => value;
    /// Sends [`Step::ForceUnlock`].
    force_unlock(name: &LockName; limit: Duration) -> bool
        = Step::ForceUnlock(name.clone()), StepOptions::of_engine(limit, 0), Reply::ForceUnlocked(value) => value;
    /// Sends [`Step::Perform`].
    perform(name: &LockName, op: CounterOp, request: &OwnerId; limit: Duration) -> i64
        = Step::Perform(name.clone(), op, request.clone()), StepOptions::of_engine(limit, 0), Reply::Number(value) => value;
    /// Sends [`Step::Forget`].
    forget(name: &LockName, request: &OwnerId; limit: Duration) -> ()
        = Step::Forget(name.clone(), request.clone()), StepOptions::of_engine(limit, 0), Reply::Forgotten => ();
    /// Sends [`Step::Inspect`].
    inspect(name: &LockName; limit: Duration) -> Snapshot
        = Step::Inspect(name.clone()), StepOptions::of_engine(limit, 0), Reply::Snapshot(value) => value;
}

/// The batches as typed calls.
impl dyn Store + '_ {
    /// Renews several holds, whose kinds are of one [renewal group](turnlock_core::Kind::renewal_group).
    pub fn renew(
        &self,
        lines: &[Renewal],
        options: StepOptions,
    ) -> impl Future<Output = Result<StepReply<Vec<Option<Renewed>>>, Failure>> + Send + 'static + use<> {
        let step = |line: &Renewal| Step::Renew(line.claim(), line.lease);
        typed_batch(self.call_batch(lines.iter().map(step).collect(), options), |reply| match reply {
            Reply::Renewed(renewed) => Some(renewed),
            _ => None,
        })
    }

    /// Sends heartbeats of waiters of fair locks, and returns their positions.
    pub fn heartbeat(
        &self,
        waiters: &[FairWaiter],
        limit: Duration,
    ) -> impl Future<Output = Result<StepReply<Vec<Option<QueuePosition>>>, Failure>> + Send + 'static + use<>
    {
        let step = |waiter: &FairWaiter| Step::Heartbeat(waiter.name.clone(), waiter.owner.clone());
        let options = StepOptions::of_engine(limit, 0);
        typed_batch(self.call_batch(waiters.iter().map(step).collect(), options), |reply| match reply {
            Reply::Position(position) => Some(position),
            _ => None,
        })
    }
}

/// What a store may do, with what it means if it does not.
impl dyn Store + '_ {
    /// Finds held locks by name.
    pub fn find(&self, search: Search, limit: Duration) -> ReplyFuture<FoundKeys> {
        self.directory()
            .map_or_else(|| unsupported("finding locks"), |directory| directory.find(search, limit))
    }

    /// Returns the kind found at the key of this name.
    pub fn kind_of(&self, name: &LockName, limit: Duration) -> ReplyFuture<Option<Kind>> {
        self.directory()
            .map_or_else(|| unsupported("finding locks"), |directory| directory.kind_of(name, limit))
    }

    /// Stores the record of a client, if the store keeps records.
    pub fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        limit: Duration,
    ) -> ReplyFuture<()> {
        match self.directory() {
            Some(directory) => directory.write_client_record(client, record, lasts, limit),
            None => ready(()),
        }
    }

    /// Returns the records of these clients, in order. `None` for a client without a record.
    pub fn client_records(&self, clients: &[ClientId], limit: Duration) -> ReplyFuture<Vec<Option<String>>> {
        match self.directory() {
            Some(directory) => directory.client_records(clients, limit),
            None => ready(vec![None; clients.len()]),
        }
    }
}

fn ready<T: Send + 'static>(value: T) -> ReplyFuture<T> {
    Box::pin(std::future::ready(Ok(StepReply::new(value, Sent::never()))))
}

fn unsupported<T: Send + 'static>(what: &str) -> ReplyFuture<T> {
    let kind = FailureKind::Unsupported(format!("{what} on this store"));
    Box::pin(std::future::ready(Err(Failure::refused(kind))))
}

async fn typed_batch<T>(
    call: ReplyFuture<Vec<Option<Reply>>>,
    typed: fn(Reply) -> Option<T>,
) -> Result<StepReply<Vec<Option<T>>>, Failure> {
    call.await?.try_map(|replies| Ok(replies.into_iter().map(|reply| reply.and_then(typed)).collect()))
}

/// A reply that does not belong to its step. Only a bug in a store gets here.
fn unexpected(reply: &Reply) -> Failure {
    Failure::unavailable(format!("unexpected reply to a step: {reply:?}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turnlock_core::{Kind, Moment};

    use super::*;

    /// Replies by the name of the step, later steps with earlier moments. It has no directory.
    #[derive(Debug)]
    struct ByName;

    impl Store for ByName {
        fn call(&self, step: Step, _: StepOptions) -> ReplyFuture<Reply> {
            let outcome = match step.name().as_str() {
                "bad" => Err(Failure::wrong_kind(step.name(), Kind::Latch)),
                "down" => Err(Failure::unavailable("down")),
                number => Ok(number.parse::<u64>().expect("a number")),
            };
            Box::pin(std::future::ready(outcome.map(|number| {
                let sent = Sent { connection: number, at: Moment::from_micros(1_000 - number) };
                StepReply::new(Reply::ForceUnlocked(number == 1), sent)
            })))
        }

        fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn unsubscribe(&self, _: &LockName) {}

        fn attach(&self, _: Weak<dyn Signals>) {}
    }

    fn batch(names: &[&str]) -> Result<StepReply<Vec<Option<Reply>>>, Failure> {
        let step = |name: &&str| Step::ForceUnlock(LockName::parse(name).expect("a name"));
        let options = StepOptions::of_engine(Duration::from_secs(1), 0);
        futures_util::FutureExt::now_or_never(ByName.call_batch(names.iter().map(step).collect(), options))
            .expect("ready at once")
    }

    #[test]
    fn a_batch_has_one_outcome_per_step_and_the_earliest_moment() {
        let reply = batch(&["1", "bad", "3", "2"]).expect("replies");
        let unlocked = |yes| Some(Reply::ForceUnlocked(yes));
        assert_eq!(reply.value, [unlocked(true), None, unlocked(false), unlocked(false)]);
        assert_eq!(reply.sent.at, Moment::from_micros(997));
    }

    #[test]
    fn a_batch_fails_with_its_store() {
        let reply = batch(&["1", "down"]).expect("a reply to one step");
        assert_eq!(reply.value, [Some(Reply::ForceUnlocked(true)), None]);
        let failure = batch(&["down", "down"]).expect_err("the store is down");
        assert!(matches!(failure.kind, FailureKind::Unavailable(_)) && failure.in_doubt.is_none());
    }

    #[test]
    fn an_empty_batch_needs_no_request() {
        assert!(batch(&[]).expect("no replies").value.is_empty());
    }

    #[test]
    fn without_a_directory_nothing_is_found_and_records_are_not_kept() {
        use futures_util::FutureExt;
        let (store, limit): (&dyn Store, _) = (&ByName, Duration::from_secs(1));
        let name = LockName::parse("1").expect("a name");
        let refused = store.kind_of(&name, limit).now_or_never().expect("ready").expect_err("unsupported");
        assert!(matches!(refused.kind, FailureKind::Unsupported(_)), "{refused}");
        let client = ClientId::from_random([1; 16]);
        let written = store.write_client_record(client, String::new(), limit, limit);
        assert!(written.now_or_never().expect("ready").is_ok());
        let records = store.client_records(&[client], limit).now_or_never().expect("ready").expect("a reply");
        assert_eq!(records.value, [None]);
    }
}
