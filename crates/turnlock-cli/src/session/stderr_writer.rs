use std::cell::{Cell, OnceCell};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// Number of lines that are queued for a slow reader.
const QUEUE_CAPACITY: usize = 256;

/// Writes to standard error from a thread of its own, which starts with the first line.
///
/// A reader that does not read blocks only that thread: renewals, the command and signals are not delayed. Lines that do not
/// fit in the queue are dropped. If the thread cannot be started, `flush` writes them.
pub(crate) struct StderrWriter {
    queue: mpsc::Sender<String>,
    sink: Arc<Mutex<Sink>>,
    /// Whether the thread was started. It keeps the sink locked.
    has_thread: OnceCell<bool>,
    /// Number of lines that were queued.
    queued: Cell<u64>,
    /// Number of lines that were written.
    written: watch::Receiver<u64>,
}

/// The end of the queue.
struct Sink {
    lines: mpsc::Receiver<String>,
    output: Box<dyn Write + Send>,
    written: watch::Sender<u64>,
}

impl StderrWriter {
    pub(crate) fn new(output: impl Write + Send + 'static) -> Self {
        let (queue, lines) = mpsc::channel(QUEUE_CAPACITY);
        let (sender, written) = watch::channel(0);
        let sink = Sink { lines, output: Box::new(output), written: sender };
        Self {
            queue,
            sink: Arc::new(Mutex::new(sink)),
            has_thread: OnceCell::new(),
            queued: Cell::new(0),
            written,
        }
    }

    /// Queues a line, or drops it if the queue is full. Does not block.
    pub(crate) fn write(&self, line: String) {
        self.has_thread.get_or_init(|| start(Arc::clone(&self.sink)).is_ok());
        if self.queue.try_send(line).is_ok() {
            self.queued.set(self.queued.get() + 1);
        }
    }

    /// Returns `true` if all queued lines are written.
    pub(crate) fn is_idle(&self) -> bool {
        *self.written.borrow() >= self.queued.get()
    }

    /// Waits until all queued lines are written, for at most `limit`.
    ///
    /// Without a thread, it writes them, and may block. So it must not be called while the command runs.
    pub(crate) async fn flush(&self, limit: Duration) {
        if self.has_thread.get() == Some(&false) {
            let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
            while let Ok(line) = sink.lines.try_recv() {
                sink.write(&line);
            }
        }
        let (mut written, queued) = (self.written.clone(), self.queued.get());
        let all = async { written.wait_for(|count| *count >= queued).await.is_ok() };
        // The time-out is not an error: the reader is too slow.
        let _ = tokio::time::timeout(limit, all).await;
    }
}

impl Sink {
    fn write(&mut self, line: &str) {
        // In one call, since the command writes there, too. A closed output is ignored.
        let _ = self.output.write_all(line.as_bytes());
        self.written.send_modify(|count| *count += 1);
    }
}

/// Starts the thread.
fn start(sink: Arc<Mutex<Sink>>) -> io::Result<()> {
    let write = move || {
        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(line) = sink.lines.blocking_recv() {
            sink.write(&line);
        }
    };
    std::thread::Builder::new().name("stderr-writer".to_owned()).spawn(write).map(drop)
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
        let writer = StderrWriter::new(BlockingOutput { permits, written: sender });
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
    async fn lines_are_written_without_a_thread() {
        let (permit, permits) = channel();
        let (sender, written) = channel();
        let writer = StderrWriter::new(BlockingOutput { permits, written: sender });
        writer.has_thread.set(false).unwrap();
        for line in ["a", "b"] {
            writer.write(line.to_owned());
            permit.send(()).unwrap();
        }
        assert!(!writer.is_idle());
        writer.flush(LONG).await;
        assert!(writer.is_idle());
        assert_eq!(written.try_iter().collect::<String>(), "ab");
    }

    #[tokio::test]
    async fn a_blocked_reader_does_not_block_the_writer() {
        let (permit, permits) = channel();
        let (sender, written) = channel();
        let writer = StderrWriter::new(BlockingOutput { permits, written: sender });
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
