//! A store on the simulated network.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use turnlock_core::model::{Acquired, Released, Renewed, Reply, Step};
use turnlock_core::planted::Bug;
use turnlock_core::{ClientId, LockName, Moment};
use turnlock_store::{
    Activity, ActivityRecord, ActivityScope, Directory, Failure, FailureKind, ReplyFuture, Signals,
    StepOptions, StepReply, Store,
};

use super::server::Server;
use super::world::{Replies, World};

/// The store of one client.
pub(super) struct SimStore {
    pub(super) world: Arc<World>,
    pub(super) link: usize,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStore").field("link", &self.link).finish_non_exhaustive()
    }
}

/// Returns `true` if replicas must acknowledge what this reply reports.
fn needs_replicas(reply: &Reply) -> bool {
    !Bug::UnacknowledgedGrantCounts.is_planted()
        && matches!(
            reply,
            Reply::Acquired(Acquired::Granted | Acquired::GrantedWith { .. })
                | Reply::Renewed(Renewed::Renewed)
        )
}

impl Store for SimStore {
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
        let (world, link) = (Arc::clone(&self.world), self.link);
        Box::pin(async move {
            let (name, wanted) = (step.name().to_string(), options.replicas);
            let request = world.request(link, vec![step], options).await?;
            let Replies { mut values, sent, notified, replicas } = request;
            let value = values.pop().unwrap_or_else(|| Err(Failure::unavailable("no reply")))?;
            if replicas < wanted && needs_replicas(&value) {
                let kind = FailureKind::NotEnoughReplicas { name, wanted, reached: replicas };
                return Err(Failure::unacknowledged(kind, sent));
            }
            let notified = (value == Reply::Released(Released::Freed)).then_some(notified);
            Ok(StepReply { replicas, notified, ..StepReply::new(value, sent) })
        })
    }

    fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        let (world, link) = (Arc::clone(&self.world), self.link);
        Box::pin(async move {
            let wanted = options.replicas;
            let Replies { values, sent, replicas, .. } = world.request(link, steps, options).await?;
            let counts = |reply: &Reply| replicas >= wanted || !needs_replicas(reply);
            let value = values.into_iter().map(|reply| reply.ok().filter(counts)).collect();
            Ok(StepReply { replicas, ..StepReply::new(value, sent) })
        })
    }

    fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
        Box::pin(Arc::clone(&self.world).subscribe(self.link, name.clone()))
    }

    fn shares_fair_subscriptions(&self) -> bool {
        true
    }

    fn unsubscribe(&self, name: &LockName) {
        self.world.unsubscribe(self.link, name);
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.world.attach(self.link, signals);
    }

    fn directory(&self) -> &dyn Directory {
        self
    }
}

/// The records of clients, by the clock of the server.
impl Directory for SimStore {
    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        limit: Duration,
    ) -> ReplyFuture<()> {
        let write = move |server: &mut Server| {
            let now = server.now().moment;
            server.records.write_client_record(client, record.clone(), lasts, now);
        };
        Box::pin(Arc::clone(&self.world).ask(self.link, limit, write))
    }

    fn client_records(&self, clients: &[ClientId], limit: Duration) -> ReplyFuture<Vec<Option<String>>> {
        let clients = clients.to_vec();
        let read = move |server: &mut Server| server.records.client_records(&clients, server.now().moment);
        Box::pin(Arc::clone(&self.world).ask(self.link, limit, read))
    }

    fn write_activity(
        &self,
        client: ClientId,
        record: Option<ActivityRecord>,
        limit: Duration,
    ) -> ReplyFuture<Option<Moment>> {
        let write = move |server: &mut Server| {
            let now = server.now().moment;
            server.records.write_activity(client, record.clone(), now);
            Some(now)
        };
        Box::pin(Arc::clone(&self.world).ask(self.link, limit, write))
    }

    fn activity(&self, scope: ActivityScope, limit: Duration) -> ReplyFuture<Activity> {
        let read = move |server: &mut Server| server.records.activity(scope, server.now().moment);
        Box::pin(Arc::clone(&self.world).ask(self.link, limit, read))
    }
}
