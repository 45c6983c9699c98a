use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use turnlock_core::ClientId;

use super::place::Place;

/// The way by which other processes wake a client: a named pipe, and numbers in it that only this client understands.
#[derive(Debug)]
pub(super) struct WakePipe {
    receiver: Receiver,
    /// With a writer of our own, the pipe never ends.
    _sender: Sender,
}

impl WakePipe {
    pub(super) fn open(place: &Place, client: ClientId) -> io::Result<Self> {
        let path = path_of(place, client);
        let mode = Mode::RUSR | Mode::WUSR;
        match mknodat(CWD, &path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(Errno::EXIST) => place.give_to_owner(&path),
            Err(error) => return Err(error.into()),
        }
        let receiver = OpenOptions::new().open_receiver(&path)?;
        let sender = OpenOptions::new().open_sender(&path)?;
        Ok(Self { receiver, _sender: sender })
    }

    /// The next number. Cancelling: a number is never torn, since each was written in one go.
    pub(super) async fn next(&mut self) -> io::Result<u64> {
        let mut number = [0; 8];
        loop {
            self.receiver.readable().await?;
            match self.receiver.try_read(&mut number) {
                Ok(8) => return Ok(u64::from_be_bytes(number)),
                // Somebody else writes to our pipe, or nobody does: neither should be.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => drop(self.receiver.read_exact(&mut number[read..]).await?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Wakes a client of another process. Whether it is there; one whose pipe is full has more than enough to wake it.
pub(super) fn ring(place: &Place, client: ClientId, number: u64) -> bool {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let pipe = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(path_of(place, client));
    match pipe {
        Ok(mut pipe) => {
            let _ = pipe.write(&number.to_be_bytes());
            true
        }
        // Nobody has it open, or it is not there. What else there may be says nothing of the client.
        Err(error) => {
            error.raw_os_error() != Some(Errno::NXIO.raw_os_error())
                && error.kind() != io::ErrorKind::NotFound
        }
    }
}

pub(super) fn path_of(place: &Place, client: ClientId) -> PathBuf {
    place.clients.join(format!("{client}.wake"))
}
