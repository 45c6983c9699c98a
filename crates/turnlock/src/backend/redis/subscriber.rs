use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use turnlock_core::LockName;

use super::common::Common;
use super::connection::Connection;
use super::endpoint::Endpoint;
use super::pubsub::PubSubConnection;
use super::subscriptions::Subscriptions;
use crate::backend::Failure;

/// Handle to the task that owns the pub/sub connection of one server.
pub(super) struct Subscriber {
    requests: mpsc::UnboundedSender<SubscriptionRequest>,
    /// How long [`subscribe`](Self::subscribe) waits for the confirmation.
    confirm_limit: Duration,
}

/// A request to the task of a [`Subscriber`].
pub(super) enum SubscriptionRequest {
    /// The sender is notified once the subscription is confirmed.
    Subscribe(LockName, oneshot::Sender<()>),
    Unsubscribe(LockName),
}

/// Receives names whose channels a server no longer serves, to be subscribed elsewhere.
///
/// An empty list means that the connection was lost, and the cluster should be refreshed.
pub(super) type ResubscribeQueue = mpsc::UnboundedSender<Vec<LockName>>;

impl Subscriber {
    /// Opens the pub/sub connection and starts the task.
    pub(super) async fn connect(
        common: &Arc<Common>,
        endpoint: &Endpoint,
        connection: &Arc<Connection>,
    ) -> Result<Self, Failure> {
        let pubsub = PubSubConnection::open(common, endpoint).await?;
        Ok(Self::start(common, endpoint, connection, None, Some(pubsub)))
    }

    /// Starts the task. Without a connection, the task connects, and retries until it succeeds.
    pub(super) fn start(
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
    pub(super) fn subscribe(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (confirm, confirmed) = oneshot::channel();
        // If the task has ended, `confirm` is dropped and the receiver is ready at once.
        let _ = self.requests.send(SubscriptionRequest::Subscribe(name.clone(), confirm));
        let confirm_limit = self.confirm_limit;
        Box::pin(async move {
            let _ = timeout(confirm_limit, confirmed).await;
        })
    }

    pub(super) fn unsubscribe(&self, name: &LockName) {
        let _ = self.requests.send(SubscriptionRequest::Unsubscribe(name.clone()));
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}
