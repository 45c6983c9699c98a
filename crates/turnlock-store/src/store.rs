use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, Released, Renewed, Reply, Snapshot, Step,
};
use turnlock_core::{Lease, LockName, OwnerId};

use crate::call::{ReplyFuture, StepOptions, StepReply, TypedCall};
use crate::directory::Directory;
use crate::examination::Examination;

/// A store of locks, as one client uses it.
///
/// A store must execute steps, and report releases. What it may do besides is for operators only: a [`Directory`] of
/// locks and clients, and an [`Examination`]. The page "Writing a store" of the manual has the rules in detail, and an
/// example.
pub trait Store: Send + Sync + fmt::Debug {
    /// Executes one step, atomically, and waits at most [`limit`](StepOptions::limit) for the reply.
    ///
    /// A step may arrive twice or late: the [model](turnlock_core::model) says what it does then. A grant, or a lease
    /// that is set, which too few replicas acknowledge is a failure that [took effect](crate::Failure::took_effect).
    ///
    /// A store that does not serve a kind, or a lease, refuses the step with
    /// [`FailureKind::Unsupported`](crate::FailureKind::Unsupported).
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply>;

    /// Executes several renewals of one [renewal group](turnlock_core::Kind::renewal_group), or several heartbeats.
    ///
    /// Returns one outcome per step, in order. The outcome is `None` if the store failed with that step only, and then the
    /// reply has the [failure](StepReply::failure), or if too few replicas acknowledged a renewal.
    fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        let calls = join_all(steps.into_iter().map(|step| self.call(step, options.clone())));
        Box::pin(async move {
            let one = |outcome: Result<StepReply<_>, _>| outcome?.try_map(|value| Ok(Some(value)));
            StepReply::merge(calls.await.into_iter().map(one))
        })
    }

    /// Subscribes to releases of `name`.
    ///
    /// Ready when later releases reach [`Signals::freed`]. Gives up silently after a while, since waiters also poll.
    fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()>;

    /// Returns `true` if the waiters of a client for a fair lock can share a subscription.
    ///
    /// It is a subscription to [`LockName::for_client_of`], and reports the name of the waiter to
    /// [`Signals::freed`]. Otherwise each of them subscribes to a name of its own: [`LockName::for_waiter`].
    fn shares_fair_subscriptions(&self) -> bool {
        false
    }

    /// Ends the subscription to `name`. The store may keep it for a moment.
    fn unsubscribe(&self, name: &LockName);

    /// Sets the receiver of signals. Called once, before any step.
    fn attach(&self, signals: Weak<dyn Signals>);

    /// Returns how the store finds locks and keeps the records of clients. By default, it does not.
    fn directory(&self) -> &dyn Directory {
        &Nothing
    }

    /// Returns how the store examines itself. By default, it does not.
    fn examination(&self) -> &dyn Examination {
        &Nothing
    }
}

/// A directory without locks and an examination without checks.
struct Nothing;

impl Directory for Nothing {}

impl Examination for Nothing {}

/// The events that a store reports. Each is a hint to check again, never a grant.
pub trait Signals: Send + Sync {
    /// A release of `name` was published. Returns `false` if the client does not use this name.
    fn freed(&self, name: &LockName) -> bool;

    /// A connection broke or was re-established: holds should be confirmed.
    fn connection_changed(&self);

    /// As `connection_changed`, and the new server may lack writes that the old one confirmed.
    fn server_changed(&self);

    /// Several steps shared one call of a server. For metrics only.
    fn call_shared(&self, steps: usize) {
        let _ = steps;
    }
}

/// Defines the typed calls: a step, and the reply to it.
macro_rules! typed_calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*; $options:ident: $options_type:ty) -> $reply:ty
        = $step:expr, $options_value:expr, $pattern:pat => $value:expr;)*) => {
        /// The steps as typed calls.
        impl dyn Store + '_ {
            $($(#[$doc])*
            pub fn $name(&self, $($arg: $type,)* $options: $options_type) -> TypedCall<$reply> {
                TypedCall::new(self.call($step, $options_value), |reply| match reply {
                    $pattern => Ok($value),
                    other => Err(other),
                })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use turnlock_core::{ClientId, Kind, Moment};

    use super::*;
    use crate::failure::{Failure, FailureKind, Sent};

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
        let (directory, limit) = (ByName.directory(), Duration::from_secs(1));
        let name = LockName::parse("1").expect("a name");
        let refused =
            directory.kind_of(&name, limit).now_or_never().expect("ready").expect_err("unsupported");
        assert!(matches!(refused.kind, FailureKind::Unsupported(_)), "{refused}");
        let client = ClientId::from_random([1; 16]);
        let written = directory.write_client_record(client, String::new(), limit, limit);
        assert!(written.now_or_never().expect("ready").is_ok());
        let records =
            directory.client_records(&[client], limit).now_or_never().expect("ready").expect("a reply");
        assert_eq!(records.value, [None]);
    }
}
