use std::cell::Cell;
use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// Number of lines that are queued for a slow reader.
const QUEUE_CAPACITY: usize = 256;

/// Writes to standard error from a thread of its own.
///
/// A reader that does not read blocks only that thread: renewals, the command and signals are not delayed. Lines that do not
/// fit in the queue are dropped.
pub(crate) struct StderrWriter {
    queue: mpsc::Sender<String>,
    /// Number of lines that were queued.
    queued: Cell<u64>,
    /// Number of lines that were written.
    written: watch::Receiver<u64>,
}

impl StderrWriter {
    pub(crate) fn start(mut output: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, mut lines) = mpsc::channel::<String>(QUEUE_CAPACITY);
        let (count, written) = watch::channel(0);
        let write = move || {
            while let Some(line) = lines.blocking_recv() {
                // In one call, since the command writes there, too. A closed output is ignored.
                let _ = output.write_all(line.as_bytes());
                count.send_modify(|count| *count += 1);
            }
        };
        std::thread::Builder::new().name("stderr-writer".to_owned()).spawn(write)?;
        Ok(Self { queue, queued: Cell::new(0), written })
    }

    /// Queues a line, or drops it if the queue is full. Does not block.
    pub(crate) fn write(&self, line: String) {
        if self.queue.try_send(line).is_ok() {
            self.queued.set(self.queued.get() + 1);
        }
    }

    /// Returns `true` if all queued lines are written.
    pub(crate) fn is_idle(&self) -> bool {
        *self.written.borrow() >= self.queued.get()
    }

    /// Waits until all queued lines are written, for at most `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        let (mut written, queued) = (self.written.clone(), self.queued.get());
        let all = async { written.wait_for(|count| *count >= queued).await.is_ok() };
        // The time-out is not an error: the reader is too slow.
        let _ = tokio::time::timeout(limit, all).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// An output that blocks each write until it is permitted.
    struct BlockingOutput {
        permits: Receiver<()>,
        written: Sender<String>,
    }

    impl Write for BlockingOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(io::Error::other)?;
            self.written.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_are_written_in_order() {
        let (permit, permits) = channel();
        let (sender, written) = channel();
        let writer = StderrWriter::start(BlockingOutput { permits, written: sender }).unwrap();
        assert!(writer.is_idle());
        for line in ["a", "b", "c"] {
            writer.write(line.to_owned());
            permit.send(()).unwrap();
        }
        writer.flush(LONG).await;
        assert!(writer.is_idle());
        assert_eq!(written.try_iter().collect::<String>(), "abc");
    }

    #[tokio::test]
    async fn a_blocked_reader_does_not_block_the_writer() {
        let (permit, permits) = channel();
        let (sender, written) = channel();
        let writer = StderrWriter::start(BlockingOutput { permits, written: sender }).unwrap();
        for _ in 0..3 * QUEUE_CAPACITY {
            writer.write("x".to_owned());
        }
        writer.flush(Duration::from_millis(10)).await;
        assert!(!writer.is_idle());
        for _ in 0..3 * QUEUE_CAPACITY {
            permit.send(()).unwrap();
        }
        writer.flush(LONG).await;
        // The thread may have received one line before the queue was full.
        assert!((QUEUE_CAPACITY..=QUEUE_CAPACITY + 1).contains(&written.try_iter().count()));
        writer.write("y".to_owned());
        writer.flush(LONG).await;
        assert_eq!(written.try_iter().collect::<String>(), "y", "the queue accepts lines again");
    }
}
