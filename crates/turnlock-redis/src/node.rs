use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::try_join;
use redis::{Cmd, Value};
use turnlock_core::Kind;

use crate::access::Address;
use crate::common::Common;
use crate::connection::{Connection, Purpose};
use crate::endpoint::Endpoint;
use crate::failure;
use crate::pubsub::PubSubConnection;
use crate::pubsub::subscriber::Subscriber;
use crate::pubsub::subscriptions::ResubscribeQueue;
use crate::replicated::ReplicatedCalls;
use crate::reply::{CallOptions, Reply};
use crate::script_call::ScriptCall;
use turnlock_store::{Failure, FailureKind};

/// One server that stores locks.
///
/// Has a connection for commands, one for pub/sub, and two for each number of replicas that must acknowledge.
pub(crate) struct Node {
    pub(crate) connection: Arc<Connection>,
    /// For calls that replicas acknowledge, each started on first use. The key is the number of replicas, and whether
    /// the calls extend leases: so that a renewal is acknowledged before its lease ends, however many acquires are queued.
    replicated: Mutex<BTreeMap<(u32, bool), Arc<ReplicatedCalls>>>,
    subscriber: OnceLock<Subscriber>,
    resubscribe: Option<ResubscribeQueue>,
}

impl Node {
    /// Creates a node without connecting.
    pub(crate) fn new(
        common: &Arc<Common>,
        endpoint: Endpoint,
        resubscribe: Option<ResubscribeQueue>,
    ) -> Self {
        let connection = Connection::new(common, endpoint, Purpose::Scripts);
        Self { connection, replicated: Mutex::default(), subscriber: OnceLock::new(), resubscribe }
    }

    /// Opens the connections for commands and for pub/sub, both at once.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        let Connection { common, endpoint, .. } = &*self.connection;
        let (_, pubsub) = try_join(self.connection.live(), PubSubConnection::open(common, endpoint)).await?;
        self.subscriber.get_or_init(|| self.start_subscriber(Some(pubsub)));
        Ok(())
    }

    /// Returns the subscriber of this server, which the first call starts.
    pub(crate) fn subscriber(&self) -> &Subscriber {
        self.subscriber.get_or_init(|| self.start_subscriber(None))
    }

    fn start_subscriber(&self, pubsub: Option<PubSubConnection>) -> Subscriber {
        Subscriber::start(&self.connection, self.resubscribe.clone(), pubsub)
    }

    /// Returns the current address of the server.
    pub(crate) async fn address(&self) -> Result<Address, Failure> {
        Ok(self.connection.endpoint.resolve().await?.address)
    }

    /// Returns where a call that replicas must acknowledge is sent. `None` for any other call.
    fn replicated(&self, call: &ScriptCall, replicas: u32) -> Option<Arc<ReplicatedCalls>> {
        if replicas == 0 || !call.action().can_be_acknowledged() {
            return None;
        }
        let start = || {
            let Connection { common, endpoint, .. } = &*self.connection;
            let connection = Connection::new(common, endpoint.clone(), Purpose::ReplicatedScripts);
            Arc::new(ReplicatedCalls::start(connection, replicas))
        };
        let key = (replicas, call.action().extends_lease());
        Some(Arc::clone(self.replicated.lock().entry(key).or_insert_with(start)))
    }

    /// Opens the connection that a call uses, if it is not open.
    pub(crate) async fn connect_for(&self, call: &ScriptCall, options: CallOptions) -> Result<(), Failure> {
        let replicated = self.replicated(call, options.replicas);
        let connection = replicated.as_ref().map_or(&self.connection, |replicated| &replicated.connection);
        connection.live_within(options.limit).await.map(drop)
    }

    /// Sends a call, and waits for replicas to acknowledge it, if it requires that.
    ///
    /// `asking` is as for [`Connection::call`].
    pub(crate) async fn call(
        &self,
        call: &Arc<ScriptCall>,
        asking: bool,
        CallOptions { limit, replicas, .. }: CallOptions,
    ) -> Result<Reply, Failure> {
        match self.replicated(call, replicas) {
            None => self.connection.call(call, asking, limit).await,
            Some(replicated) => Box::pin(async move { replicated.call(call, asking, limit).await }).await,
        }
    }

    /// Returns the failure of a call, with what its error reply means.
    pub(crate) async fn explain(&self, failure: Failure, call: &ScriptCall, limit: Duration) -> Failure {
        let Some(error) = failure::error_reply(&failure) else { return failure };
        if failure::is_wrong_type(error) {
            return self.wrong_type(call, limit).await;
        }
        match error.code() {
            Some("CORRUPT") => {
                let found = error.detail().unwrap_or("an unknown value").to_owned();
                Failure::refused(FailureKind::NotALock { key: call.lock.key().to_owned(), found })
            }
            // Only the scripts of a read-write lock check this.
            Some("WRONGKIND") => Failure::wrong_kind(&call.lock, Kind::Lock),
            _ if error.redirect_node().is_some() && !self.connection.common.server_mode.is_cluster() => {
                let text = format!("a single node of a cluster ({error}); use redis+cluster://");
                Failure::refused(FailureKind::Unsupported(text))
            }
            _ => failure,
        }
    }

    /// Builds the failure of a call on a key with a value of another type.
    async fn wrong_type(&self, call: &ScriptCall, limit: Duration) -> Failure {
        let key = call.lock.key().to_owned();
        let found = match self.connection.command(&Cmd::key_type(&key), limit).await {
            Ok(Reply { value: Value::SimpleString(kind), .. }) => format!("a value of type {kind}"),
            _ => "a value of another type".to_owned(),
        };
        Failure::refused(FailureKind::NotALock { key, found })
    }
}
