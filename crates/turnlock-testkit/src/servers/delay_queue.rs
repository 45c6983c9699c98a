//! One direction of a proxied connection.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

#[derive(Debug)]
enum Item {
    Bytes(Vec<u8>),
    /// A marker: reached when all items before it are delivered.
    Mark,
    /// The sender has shut down its half of the connection.
    End,
}

/// The result of one delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Some bytes were written, or none because the socket is full.
    Wrote,
    /// Everything before the mark is written.
    Mark,
    /// Everything is written, and the sender has shut down its half.
    End,
    /// Writing failed.
    Broken,
}

/// Bytes in transit in one direction, in order, each with its earliest delivery time.
#[derive(Debug, Default)]
pub(crate) struct DelayQueue(VecDeque<(Instant, Item)>);

impl DelayQueue {
    pub(crate) fn push(&mut self, delay: Duration, bytes: &[u8]) {
        self.0.push_back((Instant::now() + delay, Item::Bytes(bytes.to_vec())));
    }

    pub(crate) fn push_mark(&mut self) {
        self.0.push_back((Instant::now(), Item::Mark));
    }

    pub(crate) fn push_end(&mut self, delay: Duration) {
        self.0.push_back((Instant::now() + delay, Item::End));
    }

    /// Discards everything in transit. Returns `true` if there was anything.
    pub(crate) fn clear(&mut self) -> bool {
        let any = !self.0.is_empty();
        self.0.clear();
        any
    }

    /// Removes and returns all bytes in transit.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        let bytes = |(_, item)| {
            if let Item::Bytes(bytes) = item { bytes } else { Vec::new() }
        };
        self.0.drain(..).flat_map(bytes).collect()
    }

    /// Waits until [`DelayQueue::advance`] has something to do; forever if the queue is empty.
    ///
    /// With `ignore_delays`, delivery times are ignored.
    pub(crate) async fn ready(&self, receiver: &TcpStream, ignore_delays: bool) {
        let Some((due, item)) = self.0.front() else {
            return pending().await;
        };
        if !ignore_delays {
            tokio::time::sleep_until(*due).await;
        }
        if let Item::Bytes(_) = item {
            // An error occurs again in the write, where it is handled.
            let _ = receiver.writable().await;
        }
    }

    /// Returns `true` if everything before a mark is written.
    pub(crate) fn is_at_mark(&self) -> bool {
        matches!(self.0.front(), Some((_, Item::Mark)))
    }

    /// Delivers the first item, or as much of it as the receiver accepts without blocking.
    pub(crate) fn advance(&mut self, receiver: &TcpStream) -> Progress {
        let progress = match self.0.front_mut() {
            None => return Progress::Wrote,
            Some((_, Item::Mark)) => Progress::Mark,
            Some((_, Item::End)) => Progress::End,
            Some((_, Item::Bytes(bytes))) => match receiver.try_write(bytes) {
                Ok(length) if length < bytes.len() => {
                    bytes.drain(..length);
                    return Progress::Wrote;
                }
                Ok(_) => Progress::Wrote,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Wrote,
                Err(_) => Progress::Broken,
            },
        };
        self.0.pop_front();
        progress
    }
}
