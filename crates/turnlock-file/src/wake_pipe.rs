use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use turnlock_core::ClientId;

use super::store_path::StorePath;

/// The named pipe through which other processes wake a client.
///
/// They write the numbers of its subscriptions, eight bytes each.
#[derive(Debug)]
pub(super) struct WakePipe {
    receiver: Receiver,
    /// Keeps the pipe open when no other process has it open for writing.
    _sender: Sender,
}

impl WakePipe {
    pub(super) fn open(store_path: &StorePath, client: ClientId) -> io::Result<Self> {
        let path = path_of(store_path, client);
        let mode = Mode::RUSR | Mode::WUSR;
        match mknodat(CWD, &path, FileType::Fifo, mode, 0) {
            Ok(()) | Err(Errno::EXIST) => store_path.chown_to_store_owner(&path),
            Err(error) => return Err(error.into()),
        }
        let receiver = OpenOptions::new().open_receiver(&path)?;
        let sender = OpenOptions::new().open_sender(&path)?;
        Ok(Self { receiver, _sender: sender })
    }

    /// Waits for the next number.
    ///
    /// # Cancel safety
    ///
    /// No number is split, since each is written by one call.
    pub(super) async fn next(&mut self) -> io::Result<i64> {
        let mut number = [0; 8];
        self.receiver.read_exact(&mut number).await?;
        Ok(i64::from_be_bytes(number))
    }
}

/// Wakes a client of another process. Returns `false` if the client does not exist.
///
/// A full pipe is no failure: there is enough in it to wake the client.
pub(super) fn wake(store_path: &StorePath, client: ClientId, subscription: i64) -> bool {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let pipe = std::fs::OpenOptions::new().write(true).custom_flags(flags).open(path_of(store_path, client));
    match pipe {
        Ok(mut pipe) => {
            let _ = pipe.write(&subscription.to_be_bytes());
            true
        }
        // `NXIO`: no process reads the pipe. Other errors do not show that the client is gone.
        Err(error) => {
            error.raw_os_error() != Some(Errno::NXIO.raw_os_error())
                && error.kind() != io::ErrorKind::NotFound
        }
    }
}

pub(super) fn path_of(store_path: &StorePath, client: ClientId) -> PathBuf {
    store_path.clients.join(format!("{client}.wake"))
}
