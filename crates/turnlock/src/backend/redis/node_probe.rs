use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::Outcome;
use super::failure;
use super::node::Node;
use crate::backend::{Failure, FailureKind};
use crate::doctor::{ProbeError, ServerProbe};

/// The time limit for a reply. Long, because the doctor measures slow servers.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// Probes a server over the connection that its locks use.
pub(super) struct NodeProbe {
    node: Arc<Node>,
    address: String,
}

impl NodeProbe {
    pub(super) async fn new(node: &Arc<Node>) -> Result<Self, Failure> {
        Ok(Self { node: Arc::clone(node), address: node.address().await?.to_string() })
    }
}

impl ServerProbe for NodeProbe {
    fn address(&self) -> &str {
        &self.address
    }

    fn send(&self, cmd: Cmd) -> Pin<Box<dyn Future<Output = Result<Value, ProbeError>> + Send + '_>> {
        Box::pin(async move {
            match self.node.connection.command(&cmd, REPLY_LIMIT).await {
                Ok(Outcome::Replied(value, _)) => Ok(value),
                Ok(Outcome::Refused(error)) => {
                    let failure = failure::from_error(error, None);
                    let text = failure.to_string();
                    Err(match failure.kind {
                        FailureKind::Denied(_) => ProbeError::Denied(text),
                        _ => ProbeError::Refused(text),
                    })
                }
                Ok(Outcome::NoReply(failure)) | Err(failure) => Err(ProbeError::NoReply(failure.to_string())),
            }
        })
    }
}
