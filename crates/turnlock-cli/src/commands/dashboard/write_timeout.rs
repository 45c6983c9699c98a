use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail if they make no progress for some time.
///
/// A client that does not read its response would otherwise keep its connection for ever, also without the token.
pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// The end of the write under way. `None` if no write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WriteTimeout<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: None }
    }

    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        step: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(outcome) = step(Pin::new(&mut self.stream), context) {
            self.deadline = None;
            return Poll::Ready(outcome);
        }
        ready!(self.deadline.get_or_insert_with(|| Box::pin(sleep(self.limit))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.limited(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limited(context, |stream, context| stream.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(context, AsyncWrite::poll_shutdown)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn the_time_counts_from_the_last_progress() {
        let (stream, mut reader) = duplex(4);
        let mut stream = WriteTimeout::new(stream, Duration::from_secs(3_600));
        stream.write_all(b"full").await.unwrap();
        assert!(stream.write(b"more").now_or_never().is_none());
        assert!(stream.deadline.is_some());
        reader.read_exact(&mut [0; 4]).await.unwrap();
        stream.write_all(b"more").await.unwrap();
        assert!(stream.deadline.is_none());
    }

    #[tokio::test]
    async fn a_write_without_progress_fails() {
        let (stream, _reader) = duplex(4);
        let mut stream = WriteTimeout::new(stream, Duration::from_millis(1));
        let error = stream.write_all(b"more than four").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
