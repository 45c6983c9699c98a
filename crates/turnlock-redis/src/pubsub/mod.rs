//! Releases that are published: connections, channels and waiters.

pub(crate) mod subscriber;
pub(crate) mod subscriptions;

use std::io;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::access::Access;
use crate::common::Common;
use crate::endpoint::{Endpoint, ResolvedEndpoint};
use crate::failure;
use crate::handshake::Stream;

use turnlock_store::Failure;

/// A pub/sub connection to one server.
///
/// The one of the `redis` crate takes an unsubscription that the server sends by itself, because a slot has moved,
/// for the reply to the last command. Here everything received is a [`Push`], and the caller matches replies to its
/// commands.
pub(crate) struct PubSubConnection {
    writer: WriteHalf<Stream>,
    replies: mpsc::UnboundedReceiver<RedisResult<Value>>,
    reader: AbortHandle,
    /// The epoch in which the endpoint was resolved.
    pub(crate) epoch: u64,
}

/// What a server sends on a pub/sub connection.
#[derive(Debug)]
pub(crate) enum Push {
    Subscribed(String),
    Unsubscribed(String),
    Message(String),
    Pong,
    Refused(RedisError),
}

impl PubSubConnection {
    /// Connects and logs in, within the limit for connecting.
    pub(crate) async fn open(common: &Common, endpoint: &Endpoint) -> Result<Self, Failure> {
        endpoint.open(common.access.connect_limit, |resolved| Self::handshake(common, resolved)).await
    }

    async fn handshake(
        common: &Common,
        ResolvedEndpoint { address, epoch }: ResolvedEndpoint,
    ) -> Result<Self, Failure> {
        let connect_failed = |error| failure::connect_failed(&address, error);
        let stream = common.access.connect(&address).await.map_err(|error| connect_failed(error.into()))?;
        let (reader, writer) = tokio::io::split(stream);
        let (sender, replies) = mpsc::unbounded_channel();
        let reader = common.runtime.spawn(read_replies(reader, sender)).abort_handle();
        let mut pubsub = Self { writer, replies, reader, epoch };
        let cmds = setup_commands(&common.access);
        pubsub.send(&cmds).await.map_err(|error| connect_failed(error.into()))?;
        for cmd in &cmds {
            let reply = match pubsub.replies.recv().await {
                Some(reply) => reply.and_then(Value::extract_error),
                None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            };
            let is_login = cmd.args_iter().next() == Some(redis::Arg::Simple(b"AUTH"));
            match reply {
                Err(error)
                    if is_login
                        || failure::is_unauthenticated(&error)
                        || failure::breaks_connection(&error) =>
                {
                    return Err(connect_failed(error));
                }
                _ => {}
            }
        }
        Ok(pubsub)
    }

    /// Sends commands. Their replies arrive through [`next_push`](Self::next_push).
    pub(crate) async fn send(&mut self, cmds: &[Cmd]) -> io::Result<()> {
        let packed: Vec<u8> = cmds.iter().flat_map(Cmd::get_packed_command).collect();
        self.writer.write_all(&packed).await?;
        self.writer.flush().await
    }

    /// Receives the next push. `None` if the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// No push is lost if the future is dropped.
    pub(crate) async fn next_push(&mut self) -> Option<Push> {
        loop {
            let value = self.replies.recv().await?;
            match value.and_then(Value::extract_error) {
                Ok(value) => {
                    if let Some(push) = decode_push(&value) {
                        return Some(push);
                    }
                    tracing::debug!("ignored an unexpected pub/sub reply");
                }
                Err(error) if failure::is_reply(&error) => return Some(Push::Refused(error)),
                Err(_) => return None,
            }
        }
    }
}

impl Drop for PubSubConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The commands on a new connection: the login, and a `PING` that succeeds only after a login.
fn setup_commands(access: &Access) -> Vec<Cmd> {
    let mut cmds = Vec::new();
    if let Some(password) = &access.password {
        let mut cmd = redis::cmd("AUTH");
        if let Some(username) = &access.username {
            cmd.arg(username);
        }
        cmd.arg(password.reveal());
        cmds.push(cmd);
    }
    if let Some(name) = &access.client_name {
        let mut cmd = redis::cmd("CLIENT");
        cmd.arg("SETNAME").arg(name);
        cmds.push(cmd);
    }
    cmds.push(redis::cmd("PING"));
    cmds
}

/// Reads replies until the connection closes.
async fn read_replies(mut reader: ReadHalf<Stream>, replies: mpsc::UnboundedSender<RedisResult<Value>>) {
    #[allow(clippy::default_trait_access, reason = "the type is of a crate that is no direct dependency")]
    let mut decoder = Default::default();
    loop {
        let value = redis::parse_redis_value_async(&mut decoder, &mut reader).await;
        let is_last = value.is_err();
        if replies.send(value).is_err() || is_last {
            return;
        }
    }
}

fn decode_push(value: &Value) -> Option<Push> {
    let (kind, rest) = match value {
        Value::Array(items) => items.split_first()?,
        Value::SimpleString(_) => return Some(Push::Pong),
        _ => return None,
    };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let channel = || rest.first().and_then(text);
    match text(kind)?.as_str() {
        "message" | "smessage" => channel().map(Push::Message),
        "subscribe" | "ssubscribe" => channel().map(Push::Subscribed),
        "unsubscribe" | "sunsubscribe" => channel().map(Push::Unsubscribed),
        "pong" => Some(Push::Pong),
        _ => None,
    }
}
