use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose first answer is looked at. A server that speaks TLS where we do not, or wants a certificate that we
/// do not show, says so by hanging up; whoever reads that needs to be told what it may mean.
pub(super) struct FirstAnswer<S> {
    stream: S,
    /// What an error is turned into, until something was answered.
    explain: Option<Explain>,
}

/// A clearer error for what came in place of an answer.
type Explain = fn(Instead) -> io::Error;

/// What came in place of an answer.
pub(super) enum Instead {
    /// The connection was closed.
    Nothing,
    /// An alert of TLS, on a connection without TLS.
    Alert,
    /// Something that no Redis would say.
    Nonsense,
    Error(io::Error),
}

/// How a message of TLS begins that tells of an error.
const ALERT: [u8; 2] = [0x15, 0x03];

/// How an answer of Redis may begin, in either version of its protocol.
const BEGINNINGS: &[u8] = b"+-:$*_#,(=%~>!|";

impl<S> FirstAnswer<S> {
    /// Of a connection without TLS.
    pub(super) fn of_plain(stream: S) -> Self {
        Self { stream, explain: Some(explain_plain) }
    }

    /// Of another kind of connection, with its own words.
    #[cfg(feature = "tls")]
    pub(super) fn new(stream: S, explain: Explain) -> Self {
        Self { stream, explain: Some(explain) }
    }
}

fn explain_plain(instead: Instead) -> io::Error {
    match instead {
        Instead::Alert => {
            io::Error::new(io::ErrorKind::InvalidData, "the server speaks TLS on this port; use rediss://")
        }
        Instead::Nonsense => no_redis(),
        Instead::Nothing => hung_up(io::ErrorKind::UnexpectedEof),
        Instead::Error(error) if is_hang_up(&error) => hung_up(error.kind()),
        Instead::Error(error) => error,
    }
}

fn hung_up(kind: io::ErrorKind) -> io::Error {
    let text = "the server closed the connection at once; if it speaks TLS on this port, use rediss://";
    io::Error::new(kind, text)
}

/// Somebody else listens there.
pub(super) fn no_redis() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what listens on this port is not Redis")
}

/// Whether the other side closed the connection, by one way or another.
pub(super) fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstAnswer<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let outcome = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let Some(explain) = self.explain else { return Poll::Ready(outcome) };
        Poll::Ready(match (outcome, &buf.filled()[before..]) {
            (Err(error), _) => Err(explain(Instead::Error(error))),
            (Ok(()), []) if buf.remaining() > 0 => Err(explain(Instead::Nothing)),
            (Ok(()), answer) if answer.starts_with(&ALERT) => Err(explain(Instead::Alert)),
            (Ok(()), [first, ..]) if !BEGINNINGS.contains(first) => Err(explain(Instead::Nonsense)),
            (Ok(()), []) => Ok(()),
            (Ok(()), _) => {
                self.explain = None;
                Ok(())
            }
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstAnswer<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        Poll::Ready(self.explained(outcome))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs));
        Poll::Ready(self.explained(outcome))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(self.explained(outcome))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> FirstAnswer<S> {
    fn explained<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        match (outcome, self.explain) {
            (Err(error), Some(explain)) => Err(explain(Instead::Error(error))),
            (outcome, _) => outcome,
        }
    }
}
