use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use turnlock_store::{Failure, FailureKind};

use crate::failure;
use crate::node::Node;
use crate::reply::{Reply, RequestError};

/// The time limit for a reply. Long, because the doctor measures slow servers.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// A server to which the doctor sends commands, over the connection that its locks use.
pub(super) struct ServerProbe {
    node: Arc<Node>,
    /// The server's address, without a password.
    pub(super) address: String,
}

/// Why a command of a [`ServerProbe`] failed.
pub(super) enum ProbeError {
    /// The user lacks the right.
    Denied(String),
    /// The server replied with another error.
    Refused(String),
    /// There was no reply.
    NoReply(String),
}

impl ServerProbe {
    pub(super) async fn new(node: Arc<Node>) -> Result<Self, Failure> {
        let address = node.address().await?.to_string();
        Ok(Self { node, address })
    }

    /// Sends one command and waits for its reply.
    pub(super) async fn send(&self, cmd: &Cmd) -> Result<Value, ProbeError> {
        match self.node.connection.command(cmd, REPLY_LIMIT).await {
            Ok(Reply { value, .. }) => Ok(value),
            Err(RequestError::Refused(error)) => {
                let failure = failure::from_error(error, None);
                let text = failure.to_string();
                Err(match failure.kind {
                    FailureKind::Denied(_) => ProbeError::Denied(text),
                    _ => ProbeError::Refused(text),
                })
            }
            Err(RequestError::Failed(failure)) => Err(ProbeError::NoReply(failure.to_string())),
        }
    }

    /// Sends one command and decodes its reply. The error is a text for a finding.
    pub(super) async fn read<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, String> {
        match self.send(cmd).await {
            Ok(value) => redis::from_redis_value(value).map_err(|error| error.to_string()),
            Err(ProbeError::Denied(why) | ProbeError::Refused(why) | ProbeError::NoReply(why)) => Err(why),
        }
    }
}
