//! One direction of a proxied connection.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

#[derive(Debug)]
enum Load {
    Bytes(Vec<u8>),
    /// Nothing to deliver; tells when all that was pushed before has been.
    Mark,
    /// The sender has ended its half of the connection.
    End,
}

/// What has come out of a lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Some bytes were written, or none could be just now.
    Wrote,
    /// Everything before the mark is written.
    Mark,
    /// Everything is written, and the sender has ended.
    End,
    /// The receiver takes nothing any more.
    Broken,
}

/// What is on its way in one direction, in order, each with the time before which it must not arrive.
#[derive(Debug, Default)]
pub(crate) struct Lane(VecDeque<(Instant, Load)>);

impl Lane {
    pub(crate) fn push(&mut self, delay: Duration, bytes: &[u8]) {
        self.0.push_back((Instant::now() + delay, Load::Bytes(bytes.to_vec())));
    }

    pub(crate) fn push_mark(&mut self) {
        self.0.push_back((Instant::now(), Load::Mark));
    }

    pub(crate) fn push_end(&mut self, delay: Duration) {
        self.0.push_back((Instant::now() + delay, Load::End));
    }

    /// Loses all that is on its way; true if there was anything.
    pub(crate) fn clear(&mut self) -> bool {
        let any = !self.0.is_empty();
        self.0.clear();
        any
    }

    /// Takes out all bytes that are on their way.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        let bytes = |(_, load)| {
            if let Load::Bytes(bytes) = load { bytes } else { Vec::new() }
        };
        self.0.drain(..).flat_map(bytes).collect()
    }

    /// Waits until [`Lane::advance`] has something to do; for ever when nothing is on its way.
    ///
    /// With `hurry` nothing has to wait for its time.
    pub(crate) async fn ready(&self, receiver: &TcpStream, hurry: bool) {
        let Some((due, load)) = self.0.front() else {
            return pending().await;
        };
        if !hurry {
            tokio::time::sleep_until(*due).await;
        }
        if let Load::Bytes(_) = load {
            // An error shows again, and is handled, when writing.
            let _ = receiver.writable().await;
        }
    }

    /// Whether everything before a mark is written.
    pub(crate) fn is_at_mark(&self) -> bool {
        matches!(self.0.front(), Some((_, Load::Mark)))
    }

    /// Delivers the foremost load, or as much of it as the receiver takes without waiting.
    pub(crate) fn advance(&mut self, receiver: &TcpStream) -> Step {
        let step = match self.0.front_mut() {
            None => return Step::Wrote,
            Some((_, Load::Mark)) => Step::Mark,
            Some((_, Load::End)) => Step::End,
            Some((_, Load::Bytes(bytes))) => match receiver.try_write(bytes) {
                Ok(length) if length < bytes.len() => {
                    bytes.drain(..length);
                    return Step::Wrote;
                }
                Ok(_) => Step::Wrote,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Wrote,
                Err(_) => Step::Broken,
            },
        };
        self.0.pop_front();
        step
    }
}
