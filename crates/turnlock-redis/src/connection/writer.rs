use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, WriteHalf};

use crate::handshake::Stream;

/// The buffer size that is kept after a larger request was written.
const KEPT_CAPACITY: usize = 64 * 1024;

/// The half of a stream that requests are written to.
pub(super) struct Writer {
    stream: WriteHalf<Stream>,
    bytes: Vec<u8>,
    written: usize,
}

impl Writer {
    pub(super) fn new(stream: WriteHalf<Stream>) -> Self {
        Self { stream, bytes: Vec::new(), written: 0 }
    }

    /// Takes the bytes to write, once the last ones are written. Leaves an empty buffer.
    pub(super) fn refill(&mut self, bytes: &mut Vec<u8>) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_CAPACITY);
        self.written = 0;
        mem::swap(&mut self.bytes, bytes);
    }

    /// Writes and flushes the rest of the bytes.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let rest @ [_, ..] = &self.bytes[self.written..] {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.written += count,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }
}
