use std::io;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::access::{Access, Stream};
use super::common::Common;
use super::failure;
use super::place::{Place, Stay};
use crate::backend::Failure;

/// A connection on which a server tells of messages.
///
/// The `redis` crate has one too, which takes an end of a subscription that the server declares by itself, because a slot
/// has moved, for the answer to whatever was asked last. Here everything that comes is news, and the listener knows what
/// it asked for.
pub(super) struct Inlet {
    writer: WriteHalf<Stream>,
    news: mpsc::UnboundedReceiver<RedisResult<Value>>,
    reader: AbortHandle,
    /// When the place was found where this leads to.
    pub(super) epoch: u64,
}

/// What a server says on such a connection.
#[derive(Debug)]
pub(super) enum News {
    Subscribed(String),
    Unsubscribed(String),
    Message(String),
    Pong,
    Refused(RedisError),
}

impl Inlet {
    /// Connects and logs in.
    pub(super) async fn open(common: &Common, place: &Place) -> Result<Self, Failure> {
        let limit = common.access.connect_limit;
        let opened = timeout(limit, Self::dial(common, place)).await;
        opened.unwrap_or_else(|_| Err(failure::no_connection(place, limit)))
    }

    async fn dial(common: &Common, place: &Place) -> Result<Self, Failure> {
        let stay = place.find().await?;
        tokio::select! {
            inlet = Self::enter(common, &stay) => inlet,
            // A server that died in silence would be waited for although another one is the master by now.
            () = place.moves_on_from(stay.epoch) => Err(failure::moved_on(place, &stay.address)),
        }
    }

    async fn enter(common: &Common, Stay { address, epoch }: &Stay) -> Result<Self, Failure> {
        let at = |error| failure::not_let_in(address, error);
        let stream = common.access.dial(address).await.map_err(|error| at(error.into()))?;
        let (reader, writer) = tokio::io::split(stream);
        let (sender, news) = mpsc::unbounded_channel();
        let reader = common.runtime.spawn(read(reader, sender)).abort_handle();
        let mut inlet = Self { writer, news, reader, epoch: *epoch };
        let greeting = greeting(&common.access);
        inlet.say(&greeting).await.map_err(|error| at(error.into()))?;
        for cmd in &greeting {
            let answer = match inlet.news.recv().await {
                Some(answer) => answer.and_then(Value::extract_error),
                None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            };
            let is_login = cmd.args_iter().next() == Some(redis::Arg::Simple(b"AUTH"));
            match answer {
                Err(error)
                    if is_login
                        || failure::is_unauthenticated(&error)
                        || failure::breaks_connection(&error) =>
                {
                    return Err(at(error));
                }
                _ => {}
            }
        }
        Ok(inlet)
    }

    /// Says something. What is answered comes as news.
    pub(super) async fn say(&mut self, words: &[Cmd]) -> io::Result<()> {
        let packed: Vec<u8> = words.iter().flat_map(Cmd::get_packed_command).collect();
        self.writer.write_all(&packed).await?;
        self.writer.flush().await
    }

    /// The next news; `None` when the connection is gone. Nothing is lost when this is given up.
    pub(super) async fn hear(&mut self) -> Option<News> {
        loop {
            let value = self.news.recv().await?;
            match value.and_then(Value::extract_error) {
                Ok(value) => {
                    if let Some(news) = news(&value) {
                        return Some(news);
                    }
                    tracing::debug!("a server said something that is no message");
                }
                Err(error) if failure::is_answer(&error) => return Some(News::Refused(error)),
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// What is said first: who we are, and something that a server answers only to those it knows.
fn greeting(access: &Access) -> Vec<Cmd> {
    let mut said = Vec::new();
    if let Some(password) = &access.password {
        let mut cmd = redis::cmd("AUTH");
        if let Some(username) = &access.username {
            cmd.arg(username);
        }
        cmd.arg(password.reveal());
        said.push(cmd);
    }
    if let Some(name) = &access.client_name {
        let mut cmd = redis::cmd("CLIENT");
        cmd.arg("SETNAME").arg(name);
        said.push(cmd);
    }
    said.push(redis::cmd("PING"));
    said
}

/// Reads what comes, until nothing does any more.
async fn read(mut reader: ReadHalf<Stream>, news: mpsc::UnboundedSender<RedisResult<Value>>) {
    #[allow(clippy::default_trait_access, reason = "its type is that of a crate that we do not name")]
    let mut decoder = Default::default();
    loop {
        let value = redis::parse_redis_value_async(&mut decoder, &mut reader).await;
        let is_last = value.is_err();
        if news.send(value).is_err() || is_last {
            return;
        }
    }
}

fn news(value: &Value) -> Option<News> {
    let (kind, rest) = match value {
        Value::Array(items) => items.split_first()?,
        Value::SimpleString(_) => return Some(News::Pong),
        _ => return None,
    };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let channel = || rest.first().and_then(text);
    match text(kind)?.as_str() {
        "message" | "smessage" => channel().map(News::Message),
        "subscribe" | "ssubscribe" => channel().map(News::Subscribed),
        "unsubscribe" | "sunsubscribe" => channel().map(News::Unsubscribed),
        "pong" => Some(News::Pong),
        _ => None,
    }
}
