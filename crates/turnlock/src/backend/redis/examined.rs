use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::failure;
use super::link::Outcome;
use super::node::Node;
use crate::backend::{Failure, FailureKind};
use crate::doctor::{Examinee, Unanswered};

/// How long an answer is waited for. Long, since what is slow is to be measured.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server under examination: asked over the connection that its locks use.
pub(super) struct Examined {
    node: Arc<Node>,
    address: String,
}

impl Examined {
    pub(super) async fn new(node: &Arc<Node>) -> Result<Self, Failure> {
        Ok(Self { node: Arc::clone(node), address: node.address().await?.to_string() })
    }
}

impl Examinee for Examined {
    fn address(&self) -> &str {
        &self.address
    }

    fn ask(&self, cmd: Cmd) -> Pin<Box<dyn Future<Output = Result<Value, Unanswered>> + Send + '_>> {
        Box::pin(async move {
            match self.node.link.command(&cmd, PATIENCE).await {
                Ok(Outcome::Answered(value, _)) => Ok(value),
                Ok(Outcome::Refused(error)) => {
                    let failure = failure::from_error(error, None);
                    let text = failure.to_string();
                    Err(match failure.kind {
                        FailureKind::Denied(_) => Unanswered::Denied(text),
                        _ => Unanswered::Refused(text),
                    })
                }
                Ok(Outcome::Unanswered(failure)) | Err(failure) => {
                    Err(Unanswered::Silent(failure.to_string()))
                }
            }
        })
    }
}
