use std::cell::Cell;
use std::io::{self, Write};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// How much may wait to be written, in pieces: enough for a reader that is slow.
const ROOM: usize = 256;

/// Writes from a thread of its own. A reader that does not read holds up that thread and nothing else: the lock, the command
/// and the signals are looked after meanwhile. What there is no room for is never written.
pub(crate) struct Scribe {
    pieces: mpsc::Sender<String>,
    /// How many pieces there was room for.
    taken: Cell<u64>,
    /// How many of them were written.
    written: watch::Receiver<u64>,
}

impl Scribe {
    pub(crate) fn start(mut output: impl Write + Send + 'static) -> io::Result<Self> {
        let (pieces, mut to_write) = mpsc::channel::<String>(ROOM);
        let (count, written) = watch::channel(0);
        let write = move || {
            while let Some(piece) = to_write.blocking_recv() {
                // In one piece, since the command writes there, too. That nobody reads it is no reason to stop.
                let _ = output.write_all(piece.as_bytes());
                count.send_modify(|count| *count += 1);
            }
        };
        std::thread::Builder::new().name("scribe".to_owned()).spawn(write)?;
        Ok(Self { pieces, taken: Cell::new(0), written })
    }

    /// Has this written, if there is room for it. Does not wait.
    pub(crate) fn write(&self, piece: String) {
        if self.pieces.try_send(piece).is_ok() {
            self.taken.set(self.taken.get() + 1);
        }
    }

    /// Whether all is written.
    pub(crate) fn is_idle(&self) -> bool {
        *self.written.borrow() >= self.taken.get()
    }

    /// Waits until all is written, and no longer than `limit`.
    pub(crate) async fn settle(&self, limit: Duration) {
        let (mut written, taken) = (self.written.clone(), self.taken.get());
        let all = async { written.wait_for(|count| *count >= taken).await.is_ok() };
        // Who does not read in time has had the chance.
        let _ = tokio::time::timeout(limit, all).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// An output that takes a piece whenever it is told to.
    struct Stuck {
        go_on: Receiver<()>,
        seen: Sender<String>,
    }

    impl Write for Stuck {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.go_on.recv().map_err(io::Error::other)?;
            self.seen.send(String::from_utf8_lossy(piece).into_owned()).map_err(io::Error::other)?;
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_is_written_comes_in_its_order() {
        let (go, go_on) = channel();
        let (seen, written) = channel();
        let scribe = Scribe::start(Stuck { go_on, seen }).unwrap();
        assert!(scribe.is_idle());
        for piece in ["a", "b", "c"] {
            scribe.write(piece.to_owned());
            go.send(()).unwrap();
        }
        scribe.settle(LONG).await;
        assert!(scribe.is_idle());
        assert_eq!(written.try_iter().collect::<String>(), "abc");
    }

    #[tokio::test]
    async fn a_reader_that_is_stuck_holds_nobody_up() {
        let (go, go_on) = channel();
        let (seen, written) = channel();
        let scribe = Scribe::start(Stuck { go_on, seen }).unwrap();
        for _ in 0..3 * ROOM {
            scribe.write("x".to_owned());
        }
        scribe.settle(Duration::from_millis(10)).await;
        assert!(!scribe.is_idle());
        for _ in 0..3 * ROOM {
            go.send(()).unwrap();
        }
        scribe.settle(LONG).await;
        // One may have been in the hands of the thread already.
        assert!((ROOM..=ROOM + 1).contains(&written.try_iter().count()));
        scribe.write("y".to_owned());
        scribe.settle(LONG).await;
        assert_eq!(written.try_iter().collect::<String>(), "y", "there is room again");
    }
}
