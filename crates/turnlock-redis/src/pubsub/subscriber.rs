use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use turnlock_core::LockName;

use super::PubSubConnection;
use super::subscriptions::{ResubscribeQueue, SubscriptionRequest, Subscriptions};
use crate::common::Common;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use turnlock_store::Failure;

/// Handle to the task that owns the pub/sub connection of one server.
pub(crate) struct Subscriber {
    requests: mpsc::UnboundedSender<SubscriptionRequest>,
    /// How long [`subscribe`](Self::subscribe) waits for the confirmation.
    confirm_limit: Duration,
}

impl Subscriber {
    /// Opens the pub/sub connection and starts the task.
    pub(crate) async fn connect(
        common: &Arc<Common>,
        endpoint: &Endpoint,
        connection: &Arc<Connection>,
    ) -> Result<Self, Failure> {
        let pubsub = PubSubConnection::open(common, endpoint).await?;
        Ok(Self::start(common, endpoint, connection, None, Some(pubsub)))
    }

    /// Starts the task. Without a connection, the task connects, and retries until it succeeds.
    pub(crate) fn start(
        common: &Arc<Common>,
        endpoint: &Endpoint,
        connection: &Arc<Connection>,
        resubscribe: Option<ResubscribeQueue>,
        pubsub: Option<PubSubConnection>,
    ) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel();
        let subscriptions = Subscriptions::new(
            Arc::clone(common),
            endpoint.clone(),
            Arc::clone(connection),
            resubscribe,
            inbox,
        );
        let connection = Arc::clone(connection);
        common.runtime.spawn(async move {
            tokio::select! {
                () = subscriptions.run(pubsub) => {}
                () = connection.watch_role() => {}
            }
        });
        Self { requests, confirm_limit: common.access.connect_limit }
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

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}
