use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

use tokio::io::Interest;
use tokio::net::unix::pipe::Receiver;

/// Detects when standard input closes, if it is a pipe or a socket.
///
/// A terminal, a file, `/dev/null` or a standard input that was closed at the start never closes. Nothing is read: what the
/// pipe contains may be meant for the script that started this program.
pub(super) struct StdinWatch(Option<Receiver>);

impl StdinWatch {
    /// Must be called on the runtime.
    pub(super) fn new() -> io::Result<Self> {
        let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let kind = stdin.metadata()?.file_type();
        if !kind.is_fifo() && !kind.is_socket() {
            return Ok(Self(None));
        }
        // "Unchecked", since it may be a socket, and stays in blocking mode, which others share. Only its readiness is used.
        Ok(Self(Some(Receiver::from_file_unchecked(stdin)?)))
    }

    /// Waits until the other end is closed. Cancel safe.
    pub(super) async fn closed(&self) {
        let Some(stdin) = &self.0 else { return std::future::pending().await };
        loop {
            match stdin.ready(Interest::READABLE).await {
                Ok(ready) if ready.is_read_closed() => return,
                // Data, which is not read: clears the readiness, so that the next event is more data or the end.
                Ok(_) => drop(stdin.try_io(|| Err::<(), _>(io::ErrorKind::WouldBlock.into()))),
                Err(_) => return std::future::pending().await,
            }
        }
    }
}
