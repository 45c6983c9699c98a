use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use turnlock_core::LockName;

use super::PubSubConnection;
use super::subscriptions::{ResubscribeQueue, SubscriptionRequest, Subscriptions};
use crate::connection::Connection;

/// Handle to the task that owns the pub/sub connection of one server.
pub(crate) struct Subscriber {
    requests: mpsc::UnboundedSender<SubscriptionRequest>,
    /// How long [`subscribe`](Self::subscribe) waits for the confirmation.
    confirm_limit: Duration,
}

impl Subscriber {
    /// Starts the task, for the server that `connection` leads to.
    ///
    /// Without a pub/sub connection, the task connects, and retries until it succeeds.
    pub(crate) fn start(
        connection: &Arc<Connection>,
        resubscribe: Option<ResubscribeQueue>,
        pubsub: Option<PubSubConnection>,
    ) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel();
        let subscriptions = Subscriptions::new(Arc::clone(connection), resubscribe, inbox);
        let connection = Arc::clone(connection);
        let confirm_limit = connection.common.access.connect_limit;
        connection.common.runtime.clone().spawn(async move {
            tokio::select! {
                _ = subscriptions.run(pubsub) => {}
                () = connection.watch_role() => {}
            }
        });
        Self { requests, confirm_limit }
    }

    /// Subscribes to the channel of `name`. Waits for the confirmation, or until a time limit.
    pub(crate) fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
        let (confirm, confirmed) = oneshot::channel();
        // If the task has ended, `confirm` is dropped and the receiver is ready at once.
        let _ = self.requests.send(SubscriptionRequest::Subscribe(name.clone(), confirm));
        let confirm_limit = self.confirm_limit;
        Box::pin(async move {
            let _ = timeout(confirm_limit, confirmed).await;
        })
    }

    pub(crate) fn unsubscribe(&self, name: &LockName) {
        let _ = self.requests.send(SubscriptionRequest::Unsubscribe(name.clone()));
    }
}
