use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream to a server.
pub(crate) type Stream = Pin<Box<dyn ByteStream + Send + Sync>>;

/// What TCP, TLS and Unix sockets have in common.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite {}

impl<S: AsyncRead + AsyncWrite> ByteStream for S {}

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
    /// The server sent a TLS alert on a connection without TLS.
    TlsAlert,
    /// Also if the server closed the connection.
    Io(io::Error),
}

/// The first bytes of a TLS alert record.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// The first byte of a reply in RESP2 or RESP3.
const RESP_TYPE_BYTES: &[u8] = b"+-:$*_#,(=%~>!|";

impl<S> HandshakeStream<S> {
    pub(crate) fn new(stream: S, explain: Explain) -> Self {
        Self { stream, explain: Some(explain) }
    }

    fn explained(&self, error: io::Error) -> io::Error {
        match self.explain {
            Some(explain) => explain(HandshakeFailure::Io(error)),
            None => error,
        }
    }
}

/// Explains errors of a stream without TLS.
pub(crate) fn explain_plain(failure: HandshakeFailure) -> io::Error {
    match failure {
        HandshakeFailure::TlsAlert => {
            io::Error::new(io::ErrorKind::InvalidData, "the server requires TLS on this port; use rediss://")
        }
        HandshakeFailure::Io(error) if is_disconnect(&error) => {
            let text = "the server closed the connection before its first reply; if this port requires TLS, use rediss://";
            io::Error::new(error.kind(), text)
        }
        HandshakeFailure::Io(error) => error,
    }
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
            (Ok(()), []) if buf.remaining() > 0 => {
                Err(explain(HandshakeFailure::Io(io::ErrorKind::UnexpectedEof.into())))
            }
            (Ok(()), reply) if reply.starts_with(&TLS_ALERT) => Err(explain(HandshakeFailure::TlsAlert)),
            (Ok(()), [first, ..]) if !RESP_TYPE_BYTES.contains(first) => {
                let text = "the server on this port is not Redis; check the host and the port";
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
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
        Pin::new(&mut self.stream).poll_write(cx, buf).map_err(|error| self.explained(error))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx).map_err(|error| self.explained(error))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
