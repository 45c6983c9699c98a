use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::aio::AsyncStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream to a server, before the first command.
pub(crate) type Stream = Pin<Box<dyn AsyncStream + Send + Sync>>;

/// A stream that checks the first bytes from the server, and explains errors until then.
///
/// A server that expects TLS, or a client certificate, closes the connection without a RESP reply. The errors name the
/// likely remedy.
pub(crate) struct HandshakeStream<S> {
    stream: S,
    /// Explains errors. `None` after the first reply.
    explain: Option<Explain>,
}

/// Builds the error for a failed handshake.
type Explain = fn(HandshakeFailure) -> io::Error;

/// What happened instead of a first RESP reply.
pub(crate) enum HandshakeFailure {
    /// The server closed the connection.
    Closed,
    /// The server sent a TLS alert on a connection without TLS.
    TlsAlert,
    /// The server sent bytes that are not RESP.
    NotResp,
    Io(io::Error),
}

/// The first bytes of a TLS alert record.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// The first byte of a reply in RESP2 or RESP3.
const RESP_TYPE_BYTES: &[u8] = b"+-:$*_#,(=%~>!|";

impl<S> HandshakeStream<S> {
    /// Wraps a stream without TLS.
    pub(crate) fn plain(stream: S) -> Self {
        Self { stream, explain: Some(explain_plain) }
    }

    /// Wraps a stream with its own explanations of errors.
    #[cfg(feature = "tls")]
    pub(crate) fn new(stream: S, explain: Explain) -> Self {
        Self { stream, explain: Some(explain) }
    }
}

fn explain_plain(failure: HandshakeFailure) -> io::Error {
    match failure {
        HandshakeFailure::TlsAlert => {
            io::Error::new(io::ErrorKind::InvalidData, "the server requires TLS on this port; use rediss://")
        }
        HandshakeFailure::NotResp => not_redis(),
        HandshakeFailure::Closed => closed_early(io::ErrorKind::UnexpectedEof),
        HandshakeFailure::Io(error) if is_disconnect(&error) => closed_early(error.kind()),
        HandshakeFailure::Io(error) => error,
    }
}

fn closed_early(kind: io::ErrorKind) -> io::Error {
    let text =
        "the server closed the connection before its first reply; if this port requires TLS, use rediss://";
    io::Error::new(kind, text)
}

/// The server does not speak RESP.
pub(crate) fn not_redis() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the server on this port is not Redis; check the host and the port",
    )
}

/// Returns `true` if the server closed or reset the connection.
pub(crate) fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl<S: AsyncRead + Unpin> AsyncRead for HandshakeStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let Some(explain) = self.explain else { return Poll::Ready(outcome) };
        Poll::Ready(match (outcome, &buf.filled()[before..]) {
            (Err(error), _) => Err(explain(HandshakeFailure::Io(error))),
            (Ok(()), []) if buf.remaining() > 0 => Err(explain(HandshakeFailure::Closed)),
            (Ok(()), reply) if reply.starts_with(&TLS_ALERT) => Err(explain(HandshakeFailure::TlsAlert)),
            (Ok(()), [first, ..]) if !RESP_TYPE_BYTES.contains(first) => {
                Err(explain(HandshakeFailure::NotResp))
            }
            (Ok(()), []) => Ok(()),
            (Ok(()), _) => {
                self.explain = None;
                Ok(())
            }
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HandshakeStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        Poll::Ready(self.map_error(outcome))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs));
        Poll::Ready(self.map_error(outcome))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(self.map_error(outcome))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> HandshakeStream<S> {
    fn map_error<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        match (outcome, self.explain) {
            (Err(error), Some(explain)) => Err(explain(HandshakeFailure::Io(error))),
            (outcome, _) => outcome,
        }
    }
}
