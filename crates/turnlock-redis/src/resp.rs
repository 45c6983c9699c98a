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
    /// The stream fails or ends, or the bytes are not RESP2.
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
        let missing = loop {
            match decode(&mut rest) {
                Ok(value) => values.push(value),
                Err(Undecoded::Incomplete { missing }) => break missing,
                Err(Undecoded::NotResp) => {
                    let text = "the server sent bytes that are not a reply of Redis";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text).into());
                }
            }
        };
        self.wanted = rest.len() + missing;
        let decoded = self.received.len() - rest.len();
        self.received.drain(..decoded);
        if self.received.is_empty() {
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

/// Why there is no value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undecoded {
    /// At least this number of bytes is missing.
    Incomplete { missing: usize },
    /// No more bytes make it a reply.
    NotResp,
}

/// Decodes the next reply, and moves `received` behind it. An error reply is a [`Value::ServerError`].
pub(crate) fn decode(received: &mut &[u8]) -> Result<Value, Undecoded> {
    let mut rest = *received;
    let value = decode_value(&mut rest, MAX_DEPTH)?;
    *received = rest;
    Ok(value)
}

fn decode_value(rest: &mut &[u8], depth: usize) -> Result<Value, Undecoded> {
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
                    let missing = (len - rest.len()).saturating_add(2);
                    return Err(Undecoded::Incomplete { missing });
                }
            },
        },
        b'*' if depth > 0 => match usize::try_from(number(text)?) {
            Err(_) => Value::Nil,
            Ok(len) => {
                // No more than what was received can be there: the length may be nonsense.
                let mut values = Vec::with_capacity(len.min(rest.len() / SHORTEST));
                while values.len() < len {
                    values.push(decode_value(rest, depth - 1).map_err(|undecoded| match undecoded {
                        Undecoded::Incomplete { missing } => {
                            let behind = (len - values.len() - 1).saturating_mul(SHORTEST);
                            Undecoded::Incomplete { missing: missing.saturating_add(behind) }
                        }
                        Undecoded::NotResp => Undecoded::NotResp,
                    })?);
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
    use proptest::prelude::*;
    use redis::Cmd;

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

    /// Bytes as in replies, in any order.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        const PARTS: &[&str] =
            &["*", "$", ":", "+", "-", "\r\n", "\r\n", "\r", "\n", "0", "1", "2", "9", "-1", "OK", "x", " "];
        let parts = proptest::collection::vec(proptest::sample::select(PARTS), 0..40);
        parts.prop_map(|parts| parts.concat().into_bytes())
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
                        Err(Undecoded::NotResp) => panic!("a reply"),
                    }
                };
                prop_assert!(missing > 0);
                start = end - received.len();
                wanted = end + missing;
            }
            prop_assert_eq!(decoded, values);
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in bytes()) {
            let mut received = &bytes[..];
            while decode(&mut received).is_ok() {}
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
