//! Releases that are published: connections, channels and waiters.

pub(crate) mod subscriber;
pub(crate) mod subscriptions;

use std::io;

use redis::{Arg, Cmd, RedisError, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWriteExt, WriteHalf};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::access::Access;
use crate::common::Common;
use crate::endpoint::{Endpoint, ResolvedEndpoint};
use crate::failure;
use crate::handshake::Stream;
use crate::resp::ReplyReader;

use turnlock_store::Failure;

/// A pub/sub connection to one server.
///
/// The one of the `redis` crate takes an unsubscription that the server sends by itself, because a slot has moved,
/// for the reply to the last command. Here everything received is a [`Push`], and the caller matches replies to its
/// commands.
pub(crate) struct PubSubConnection {
    writer: WriteHalf<Stream>,
    replies: mpsc::Receiver<RedisResult<Value>>,
    /// The task that reads. It ends when this is dropped.
    _reader: JoinSet<()>,
    is_sharded: bool,
    /// The epoch in which the endpoint was resolved.
    pub(crate) epoch: u64,
}

/// How many replies may wait for the caller of [`PubSubConnection::next_push`].
///
/// Then nothing more is read: the server keeps the messages, and closes the connection if they are too many.
const MAX_UNREAD: usize = 1_024;

/// A command on a pub/sub connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Subscribe(String),
    Unsubscribe(String),
    Ping,
}

/// What a server sends on a pub/sub connection.
#[derive(Debug)]
pub(crate) enum Push {
    /// On this channel, with this text.
    Message(String, String),
    /// The command is done. An unsubscription can also be the server's own.
    Done(Command),
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
        let (replies, reading) = start_reading(reader, &common.runtime);
        let is_sharded = common.server_mode.has_sharded_pubsub();
        let mut pubsub = Self { writer, replies, _reader: reading, is_sharded, epoch };
        let cmds = setup_commands(&common.access);
        pubsub.write(&cmds).await.map_err(|error| connect_failed(error.into()))?;
        for cmd in &cmds {
            let is_login = cmd.args_iter().next() == Some(Arg::Simple(b"AUTH"));
            match pubsub.next_reply().await {
                Err(error) if is_login && failure::is_about_login(&error) => {
                    return Err(failure::login_failed(error));
                }
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
    pub(crate) async fn send(&mut self, commands: &[Command]) -> io::Result<()> {
        let cmds: Vec<_> = commands.iter().map(|command| command.cmd(self.is_sharded)).collect();
        self.write(&cmds).await
    }

    async fn write(&mut self, cmds: &[Cmd]) -> io::Result<()> {
        let packed: Vec<u8> = cmds.iter().flat_map(Cmd::get_packed_command).collect();
        self.writer.write_all(&packed).await?;
        self.writer.flush().await
    }

    /// Receives the next push. Fails if the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// No push is lost if the future is dropped.
    pub(crate) async fn next_push(&mut self) -> io::Result<Push> {
        loop {
            match self.next_reply().await {
                Ok(value) => {
                    if let Some(push) = decode_push(&value) {
                        return Ok(push);
                    }
                    tracing::debug!("ignored an unexpected pub/sub reply");
                }
                Err(error) if failure::is_reply(&error) => return Ok(Push::Refused(error)),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    async fn next_reply(&mut self) -> RedisResult<Value> {
        let closed = || Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        self.replies.recv().await.unwrap_or_else(closed).and_then(Value::extract_error)
    }
}

impl Command {
    fn cmd(&self, is_sharded: bool) -> Cmd {
        let (plain, sharded, channel) = match self {
            Self::Subscribe(channel) => ("SUBSCRIBE", "SSUBSCRIBE", Some(channel)),
            Self::Unsubscribe(channel) => ("UNSUBSCRIBE", "SUNSUBSCRIBE", Some(channel)),
            Self::Ping => ("PING", "PING", None),
        };
        redis::cmd(if is_sharded { sharded } else { plain }).arg(channel).take()
    }
}

/// The commands on a new connection: the login, and a `PING` that succeeds only after a login.
fn setup_commands(access: &Access) -> Vec<Cmd> {
    let mut cmds = Vec::new();
    if let Some(password) = &access.password {
        cmds.push(redis::cmd("AUTH").arg(&access.username).arg(password.reveal()).take());
    }
    cmds.extend(access.client_name.iter().map(Cmd::client_setname));
    cmds.push(Cmd::ping());
    cmds
}

/// Starts the task that reads. Returns its replies, and the set that ends it when it is dropped.
fn start_reading(
    reader: impl AsyncRead + Send + Unpin + 'static,
    runtime: &Handle,
) -> (mpsc::Receiver<RedisResult<Value>>, JoinSet<()>) {
    let (sender, replies) = mpsc::channel(MAX_UNREAD);
    let mut reading = JoinSet::new();
    reading.spawn_on(read_replies(reader, sender), runtime);
    (replies, reading)
}

/// Reads replies until the connection closes.
async fn read_replies(reader: impl AsyncRead + Unpin, replies: mpsc::Sender<RedisResult<Value>>) {
    let mut reader = ReplyReader::new(reader);
    loop {
        match reader.read().await {
            Ok(values) => {
                for value in values {
                    if replies.send(Ok(value)).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                let _ = replies.send(Err(error)).await;
                return;
            }
        }
    }
}

fn decode_push(value: &Value) -> Option<Push> {
    let Value::Array(items) = value else {
        return matches!(value, Value::SimpleString(_)).then_some(Push::Done(Command::Ping));
    };
    let text = |index: usize| redis::from_redis_value_ref::<String>(items.get(index)?).ok();
    let (kind, channel) = (text(0)?, text(1)?);
    match kind.as_str() {
        "message" | "smessage" => Some(Push::Message(channel, text(2)?)),
        "subscribe" | "ssubscribe" => Some(Push::Done(Command::Subscribe(channel))),
        "unsubscribe" | "sunsubscribe" => Some(Push::Done(Command::Unsubscribe(channel))),
        "pong" => Some(Push::Done(Command::Ping)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::time::timeout;

    use super::*;
    use crate::tests::any_reply::{any_reply, config};

    // The clock advances only when no task has anything to do, so a time-out is a server that has to wait.
    #[tokio::test(start_paused = true)]
    async fn a_server_waits_while_many_replies_are_unread() {
        let (mut server, client) = tokio::io::duplex(100);
        let (mut replies, _reading) = start_reading(client, &Handle::current());
        let sending = tokio::spawn(async move {
            for _ in 0..3 * MAX_UNREAD {
                server.write_all(b"+PONG\r\n").await.expect("the client reads");
            }
        });
        let (limit, mut received) = (Duration::from_secs(60), 0);
        let mut sending = std::pin::pin!(sending);
        timeout(limit, &mut sending).await.expect_err("the replies are not read");
        assert_eq!(replies.len(), MAX_UNREAD);
        while let Some(Ok(_)) = timeout(limit, replies.recv()).await.expect("replies, or the end") {
            received += 1;
        }
        sending.await.expect("all were sent");
        assert_eq!(received, 3 * MAX_UNREAD, "none is lost");
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_reply_is_a_push_or_ignored(value in any_reply()) {
            match decode_push(&value) {
                Some(Push::Message(..)) => prop_assert!(matches!(&value, Value::Array(items) if items.len() > 2)),
                Some(Push::Done(_)) | None => {}
                Some(Push::Refused(_)) => panic!("an error is no push: {value:?}"),
            }
        }
    }
}
