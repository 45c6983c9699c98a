use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Value;
use turnlock_core::Kind;

use super::address::Address;
use super::batcher::Batcher;
use super::common::Common;
use super::connection::{Connection, Outcome, Purpose};
use super::endpoint::Endpoint;
use super::failure;
use super::replicated_pipelines::ReplicatedPipelines;
use super::reply::{CallOptions, ReplicatedReply, Reply};
use super::script_call::ScriptCall;
use super::subscriber::{ResubscribeQueue, Subscriber};
use crate::backend::{Failure, FailureKind};

/// One server that stores locks.
///
/// Has a connection for commands, one for pub/sub, and two for each number of replicas that must acknowledge.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) common: Arc<Common>,
    endpoint: Endpoint,
    pub(super) connection: Arc<Connection>,
    /// `None` in a cluster, where only steps of one slot can share a call.
    batcher: Option<Batcher>,
    pipelines: ReplicatedPipelines,
    subscriber: OnceLock<Subscriber>,
    resubscribe: Option<ResubscribeQueue>,
}

impl Node {
    /// Creates a node without connecting.
    pub(super) fn new(
        common: &Arc<Common>,
        endpoint: Endpoint,
        resubscribe: Option<ResubscribeQueue>,
    ) -> Self {
        let connection = Arc::new(Connection::new(common, endpoint.clone(), Purpose::Scripts));
        let batcher = (!common.server_mode.is_cluster()).then(|| Batcher::new(&connection));
        let pipelines = ReplicatedPipelines::new(common, &endpoint);
        Self {
            common: Arc::clone(common),
            endpoint,
            connection,
            batcher,
            pipelines,
            subscriber: OnceLock::new(),
            resubscribe,
        }
    }

    /// Opens the connections for commands and for pub/sub.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        self.connection.live().await?;
        let subscriber = Subscriber::connect(&self.common, &self.endpoint, &self.connection).await?;
        let _ = self.subscriber.set(subscriber);
        Ok(())
    }

    /// Returns the subscriber of this server, which the first call starts.
    pub(super) fn subscriber(&self) -> &Subscriber {
        self.subscriber.get_or_init(|| {
            Subscriber::start(&self.common, &self.endpoint, &self.connection, self.resubscribe.clone(), None)
        })
    }

    /// Returns the current address of the server.
    pub(super) async fn address(&self) -> Result<Address, Failure> {
        Ok(self.endpoint.resolve().await?.address)
    }

    /// Runs a script on a server that has all keys.
    pub(super) async fn run(&self, call: &ScriptCall, options: CallOptions) -> Result<Reply, Failure> {
        let reply = self.call(call, false, options).await?;
        self.classify(reply, call, options).await
    }

    /// Opens the connection that a call with these options uses, if it is not open.
    pub(super) async fn connect_for(&self, options: CallOptions) -> Result<(), Failure> {
        match options.replicas {
            0 => self.connection.live_within(options.limit).await.map(drop),
            _ => self.pipelines.pipeline(options).connection.live_within(options.limit).await.map(drop),
        }
    }

    /// Sends a script call; `asking` as for [`Connection::call`].
    pub(super) async fn call(
        &self,
        call: &ScriptCall,
        asking: bool,
        options: CallOptions,
    ) -> Result<ReplicatedReply, Failure> {
        let CallOptions { limit, replicas, .. } = options;
        if replicas == 0 {
            let outcome = match &self.batcher {
                Some(batcher) if call.can_be_batched() => batcher.run(call, limit).await?,
                _ => self.connection.call(call, asking, limit).await?,
            };
            return Ok(ReplicatedReply { outcome, acknowledged: None });
        }
        Box::pin(self.pipelines.pipeline(options).run(call.clone(), asking, options)).await
    }

    /// Turns the outcome of a call into the result of its step.
    pub(super) async fn classify(
        &self,
        reply: ReplicatedReply,
        call: &ScriptCall,
        options: CallOptions,
    ) -> Result<Reply, Failure> {
        let CallOptions { limit, replicas: wanted, .. } = options;
        match reply.outcome {
            Outcome::Replied(value, sent) => {
                Ok(Reply::new((value, sent), reply.acknowledged, &call.lock, wanted))
            }
            Outcome::Refused(error) if failure::is_wrong_type(&error) => {
                Err(Box::pin(self.wrong_type(call, limit)).await)
            }
            Outcome::Refused(error) if error.code() == Some("CORRUPT") => {
                let found = error.detail().unwrap_or("an unknown value").to_owned();
                Err(Failure::refused(FailureKind::NotALock { key: call.lock.key().to_owned(), found }))
            }
            // Only the scripts of a read-write lock check this.
            Outcome::Refused(error) if error.code() == Some("WRONGKIND") => {
                Err(Failure::wrong_kind(&call.lock, Kind::Lock))
            }
            Outcome::Refused(error)
                if error.redirect_node().is_some() && !self.common.server_mode.is_cluster() =>
            {
                let text = format!("a single node of a cluster ({error}); use redis+cluster://");
                Err(Failure::refused(FailureKind::Unsupported(text)))
            }
            Outcome::Refused(error) => Err(failure::from_error(error, None)),
            Outcome::NoReply(failure) => Err(failure),
        }
    }

    /// Builds the failure of a call on a key with a value of another type.
    async fn wrong_type(&self, call: &ScriptCall, limit: Duration) -> Failure {
        let key = call.lock.key().to_owned();
        let mut cmd = redis::cmd("TYPE");
        cmd.arg(&key);
        let found = match self.connection.command(&cmd, limit).await {
            Ok(Outcome::Replied(Value::SimpleString(kind), _)) => format!("a value of type {kind}"),
            _ => "a value of another type".to_owned(),
        };
        Failure::refused(FailureKind::NotALock { key, found })
    }
}
