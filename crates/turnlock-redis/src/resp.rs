//! RESP2, the protocol of Redis: encodes requests, and decodes replies.
//!
//! The codec of the `redis` crate is part of its connections. This one is smaller, and allocates nothing for a reply
//! that is a number or nil, as the replies of most scripts are.

use std::io;

use redis::{RedisResult, Value};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The depth of lists in lists that a reply may have. No reply of a script or a command of this crate is deeper.
const MAX_DEPTH: usize = 16;

/// The longest line: a number, a short text, or an error.
const MAX_LINE: usize = 64 * 1024;

/// The longest reply, in bytes. Those to the scripts and commands of this crate are much shorter.
const MAX_REPLY: usize = 64 * 1024 * 1024;

/// The most values that a reply may have in all its lists.
const MAX_VALUES: usize = 1024 * 1024;

/// The space for replies that are read at once.
const READ_SIZE: usize = 16 * 1024;

/// Replies that were read at once. Mostly one, which needs no allocation.
pub(crate) type Values = SmallVec<[Value; 2]>;

/// Reads replies from a stream.
pub(crate) struct ReplyReader<R> {
    stream: R,
    /// The start of a reply that is not complete.
    received: Vec<u8>,
    /// The length of `received` below which that reply cannot be complete.
    wanted: usize,
}

impl<R: AsyncRead + Unpin> ReplyReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, received: Vec::new(), wanted: 0 }
    }

    /// Reads once. Returns the replies that are complete.
    ///
    /// # Errors
    ///
    /// The stream fails or ends, or the bytes are not RESP2, or a reply is too long.
    ///
    /// # Cancel safety
    ///
    /// No reply is lost if the future is dropped.
    pub(crate) async fn read(&mut self) -> RedisResult<Values> {
        self.received.reserve(READ_SIZE);
        if self.stream.read_buf(&mut self.received).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut values = Values::new();
        if self.received.len() < self.wanted {
            return Ok(values);
        }
        let mut rest = &self.received[..];
        let failed = |text| Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
        let wanted = loop {
            match decode(&mut rest) {
                Ok(value) => values.push(value),
                Err(Undecoded::Incomplete { missing }) => match rest.len().saturating_add(missing) {
                    ..=MAX_REPLY => break rest.len() + missing,
                    _ => return failed(TOO_LONG),
                },
                Err(Undecoded::TooLong) => return failed(TOO_LONG),
                Err(Undecoded::NotResp) => {
                    return failed("the server sent bytes that are not a reply of Redis");
                }
            }
        };
        self.wanted = wanted;
        let decoded = self.received.len() - rest.len();
        self.received.drain(..decoded);
        // After a long reply. The space is also the most that the next read takes.
        if wanted <= READ_SIZE {
            self.received.shrink_to(READ_SIZE * 4);
        }
        Ok(values)
    }
}

/// Appends the start of a request with `count` arguments, the command included.
pub(crate) fn encode_start(request: &mut Vec<u8>, count: usize) {
    encode_number(request, b'*', count);
}

/// Appends one argument of a request.
pub(crate) fn encode_arg(request: &mut Vec<u8>, arg: &[u8]) {
    encode_number(request, b'$', arg.len());
    request.extend_from_slice(arg);
    request.extend_from_slice(b"\r\n");
}

/// Appends a number as an argument of a request.
pub(crate) fn encode_number_arg(request: &mut Vec<u8>, number: usize) {
    encode_arg(request, itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `ASKING`, which applies to the next command of the connection only.
pub(crate) fn encode_asking(request: &mut Vec<u8>) {
    encode_start(request, 1);
    encode_arg(request, b"ASKING");
}

fn encode_number(request: &mut Vec<u8>, prefix: u8, number: usize) {
    request.push(prefix);
    request.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    request.extend_from_slice(b"\r\n");
}

const TOO_LONG: &str = "the server sent a reply that is longer than any that Redis sends for a lock";

/// Why there is no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// At least this number of bytes is missing.
    Incomplete { missing: usize },
    /// No more bytes make it a reply.
    NotResp,
    /// It has more bytes or values than any reply to this crate.
    TooLong,
}

/// Decodes the next reply, and moves `received` behind it. An error reply is a [`Value::ServerError`].
pub(crate) fn decode(received: &mut &[u8]) -> Result<Value, Undecoded> {
    let mut rest = *received;
    let value = decode_value(&mut rest, MAX_DEPTH, &mut { MAX_VALUES })?;
    *received = rest;
    Ok(value)
}

/// Decodes a value. `left` is the number of values that its lists may have.
fn decode_value(rest: &mut &[u8], depth: usize, left: &mut usize) -> Result<Value, Undecoded> {
    let start = *rest;
    let Some((&kind, text)) = take_line(rest)?.split_first() else { return Err(Undecoded::NotResp) };
    Ok(match kind {
        b':' => Value::Int(number(text)?),
        b'+' if text == b"OK" => Value::Okay,
        b'+' => Value::SimpleString(String::from_utf8_lossy(text).into_owned()),
        // Only the parser of the `redis` crate makes an error of it.
        b'-' => redis::parse_redis_value(&start[..text.len() + 3]).map_err(|_| Undecoded::NotResp)?,
        b'$' => match usize::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(MAX_REPLY..) => return Err(Undecoded::TooLong),
            Ok(len) => match rest.split_at_checked(len) {
                Some((bytes, [b'\r', b'\n', behind @ ..])) => {
                    *rest = behind;
                    Value::BulkString(bytes.to_vec())
                }
                Some((_, end @ ([] | [b'\r']))) => {
                    return Err(Undecoded::Incomplete { missing: 2 - end.len() });
                }
                Some(_) => return Err(Undecoded::NotResp),
                None => {
                    return Err(Undecoded::Incomplete { missing: len - rest.len() + 2 });
                }
            },
        },
        b'*' if depth > 0 => match usize::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(len) => {
                *left = left.checked_sub(len).ok_or(Undecoded::TooLong)?;
                // No more than what was received can be there: the length may be nonsense.
                let mut values = Vec::with_capacity(len.min(rest.len() / SHORTEST));
                while values.len() < len {
                    values.push(decode_value(rest, depth - 1, left).map_err(
                        |undecoded| match undecoded {
                            Undecoded::Incomplete { missing } => {
                                let behind = (len - values.len() - 1).saturating_mul(SHORTEST);
                                Undecoded::Incomplete { missing: missing.saturating_add(behind) }
                            }
                            fatal => fatal,
                        },
                    )?);
                }
                Value::Array(values)
            }
        },
        _ => return Err(Undecoded::NotResp),
    })
}

/// The length of the shortest value: an empty text.
const SHORTEST: usize = 3;

/// Takes a line, without its end.
fn take_line<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Undecoded> {
    match rest.windows(2).take(MAX_LINE).position(|end| end == b"\r\n") {
        Some(end) => {
            let line = &rest[..end];
            *rest = &rest[end + 2..];
            Ok(line)
        }
        None if rest.len() > MAX_LINE => Err(Undecoded::NotResp),
        None => Err(Undecoded::Incomplete { missing: 1 }),
    }
}

fn number(text: &[u8]) -> Result<i64, Undecoded> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Undecoded::NotResp)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_util::FutureExt;
    use proptest::prelude::*;
    use redis::Cmd;
    use tokio::io::ReadBuf;

    use super::*;

    /// Encodes a reply, as a server does.
    fn encode(value: &Value, bytes: &mut Vec<u8>) {
        match value {
            Value::Nil => bytes.extend_from_slice(b"$-1\r\n"),
            Value::Int(number) => bytes.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Value::Okay => bytes.extend_from_slice(b"+OK\r\n"),
            Value::SimpleString(text) => bytes.extend_from_slice(format!("+{text}\r\n").as_bytes()),
            Value::BulkString(text) => encode_arg(bytes, text),
            Value::Array(values) => {
                encode_start(bytes, values.len());
                for value in values {
                    encode(value, bytes);
                }
            }
            Value::ServerError(error) => {
                let text = format!("-{} {}\r\n", error.code(), error.details().unwrap_or_default());
                bytes.extend_from_slice(text.as_bytes());
            }
            other => panic!("{other:?} is not RESP2"),
        }
    }

    /// An error reply, which only the parser of the `redis` crate can make.
    fn error(text: &str) -> Value {
        redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a reply")
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            Just(Value::Okay),
            any::<i64>().prop_map(Value::Int),
            "[a-zA-Z ]{3,12}".prop_map(Value::SimpleString),
            "ERR [a-z ]{0,20}".prop_map(|text| error(&text)),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::BulkString),
        ];
        leaf.prop_recursive(4, 40, 8, |inner| proptest::collection::vec(inner, 0..8).prop_map(Value::Array))
    }

    /// Returns at most `read_len` bytes at a time.
    struct Pieces<'a> {
        bytes: &'a [u8],
        read_len: usize,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let (piece, rest) = self.bytes.split_at(self.read_len.min(self.bytes.len()));
            buf.put_slice(piece);
            self.bytes = rest;
            Poll::Ready(Ok(()))
        }
    }

    /// Bytes as in replies, in any order.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        const PARTS: &[&str] = &[
            "*",
            "$",
            ":",
            "+",
            "-",
            "\r\n",
            "\r\n",
            "\r",
            "\n",
            "0",
            "1",
            "2",
            "9",
            "-1",
            "OK",
            "x",
            " ",
            "\u{ff}",
            "*1\r\n",
            "*2\r\n",
            "*1048576\r\n",
            "*9223372036854775807\r\n",
            "$9223372036854775807\r\n",
            "$67108863\r\n",
            "$1\r\nx\r\n",
            "-MOVED 1 :1\r\n",
            "-ERR\r\n",
            "-\r\n",
        ];
        let parts = proptest::collection::vec(proptest::sample::select(PARTS), 0..40);
        parts.prop_map(|parts| parts.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(crate::tests::any_reply::config())]

        #[test]
        fn any_bytes_are_replies_or_an_error(bytes in bytes(), read_len in 1..20_usize) {
            let (mut reader, mut decoded) = (ReplyReader::new(Pieces { bytes: &bytes, read_len }), 0);
            // The end of the bytes is an error too.
            while let Ok(values) = reader.read().now_or_never().expect("the stream is always ready") {
                decoded += values.len();
                prop_assert!(decoded <= bytes.len() / SHORTEST);
                prop_assert!(reader.wanted <= MAX_REPLY && reader.received.capacity() <= READ_SIZE * 4);
            }
        }
    }

    proptest! {
        #[test]
        fn replies_are_decoded_wherever_they_are_split(values in proptest::collection::vec(value(), 1..6)) {
            let mut bytes = Vec::new();
            for value in &values {
                encode(value, &mut bytes);
            }
            // As the parser of the `redis` crate decodes the first of them.
            prop_assert_eq!(&redis::parse_redis_value(&bytes).expect("a reply"), &values[0]);
            let (mut decoded, mut start, mut wanted) = (Vec::new(), 0, 0);
            for end in 0..=bytes.len() {
                let mut received = &bytes[start..end];
                let missing = loop {
                    match decode(&mut received) {
                        Ok(value) => {
                            prop_assert!(end >= wanted, "complete at {}, and said to need {}", end, wanted);
                            decoded.push(value);
                        }
                        Err(Undecoded::Incomplete { missing }) => break missing,
                        Err(undecoded) => panic!("a reply, and not {undecoded:?}"),
                    }
                };
                prop_assert!(missing > 0);
                start = end - received.len();
                wanted = end + missing;
            }
            prop_assert_eq!(decoded, values);
        }
    }

    #[test]
    fn a_list_and_a_text_can_be_nil() {
        for nil in ["*-1\r\n", "$-1\r\n"] {
            assert_eq!(decode(&mut nil.as_bytes()), Ok(Value::Nil), "{nil:?}");
        }
    }

    #[test]
    fn other_bytes_are_an_error() {
        for bytes in ["HTTP/1.1 400\r\n", "\r\n", ":one\r\n", "$2\r\nabc\r\n", "%1\r\n"] {
            assert_eq!(decode(&mut bytes.as_bytes()), Err(Undecoded::NotResp), "{bytes:?}");
        }
        for endless in ["*1\r\n".repeat(1_000), "+".repeat(MAX_LINE + 2)] {
            assert_eq!(decode(&mut endless.as_bytes()), Err(Undecoded::NotResp));
        }
    }

    #[test]
    fn a_reply_that_declares_too_much_is_an_error_at_once() {
        for header in [
            "$999999999999\r\n",
            "$67108864\r\n",
            "*9223372036854775807\r\n",
            "*1048577\r\n",
            "*1000000\r\n*1000000\r\n",
        ] {
            assert_eq!(decode(&mut header.as_bytes()), Err(Undecoded::TooLong), "{header:?}");
        }
        assert_eq!(decode(&mut &b"$67108863\r\n"[..]), Err(Undecoded::Incomplete { missing: 67_108_865 }));
        assert_eq!(
            decode(&mut &b"*1048576\r\n"[..]),
            Err(Undecoded::Incomplete { missing: 3 * 1_048_576 - 2 })
        );
    }

    #[tokio::test]
    async fn an_endless_reply_is_an_error_at_its_limit() {
        // Each value is short enough, and all of them together are not.
        let mut value = b"$20000000\r\n".to_vec();
        value.resize(value.len() + 20_000_000, b'x');
        value.extend_from_slice(b"\r\n");
        let bytes = [b"*9\r\n", &*value.repeat(4)].concat();
        let mut reader = ReplyReader::new(&bytes[..]);
        let error = loop {
            match reader.read().await {
                Ok(values) => assert!(values.is_empty()),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("longer than any"), "{error}");
        assert!(reader.received.len() <= MAX_REPLY && reader.received.capacity() <= 2 * MAX_REPLY);
    }

    #[tokio::test]
    async fn a_long_list_is_decoded_a_few_times_only() {
        let mut bytes = Vec::new();
        encode(&Value::Array(vec![Value::BulkString(vec![b'x'; 40]); 10_000]), &mut bytes);
        let (mut server, client) = tokio::io::duplex(1_000);
        let writing = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            server.write_all(&bytes).await.expect("the client reads");
            server
        });
        let (mut reader, mut changes, mut wanted) = (ReplyReader::new(client), 0, 0);
        loop {
            let values = reader.read().await.expect("bytes");
            changes += usize::from(reader.wanted != wanted);
            wanted = reader.wanted;
            if let [Value::Array(list)] = &values[..] {
                assert_eq!(list.len(), 10_000);
                break;
            }
            assert!(values.is_empty());
        }
        drop(writing.await);
        // It arrives in about 500 parts.
        assert!(changes < 150, "decoded {changes} times");
    }

    #[test]
    fn requests_are_encoded_as_the_redis_crate_does() {
        let mut request = Vec::new();
        encode_start(&mut request, 3);
        encode_arg(&mut request, b"SET");
        encode_arg(&mut request, b"");
        encode_number_arg(&mut request, 1_234);
        assert_eq!(request, Cmd::new().arg("SET").arg("").arg(1_234).get_packed_command());
    }
}
