use std::io::{self, Write};

use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use turnlock_core::ClientId;

use super::clients_directory::{ClientsDirectory, is_pipe};
use super::file_error::FileError;
use super::store_directory::StoreDirectory;
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
    pub(super) fn open(store_path: &StorePath, client: ClientId) -> Result<Self, FileError> {
        let open = || {
            let clients = StoreDirectory::open(store_path)?.clients()?;
            let (receiver, sender) = clients.create_pipe(&name_of(client))?;
            Ok(Self { receiver: Receiver::from_file(receiver)?, _sender: Sender::from_file(sender)? })
        };
        open().map_err(FileError::at(&store_path.clients))
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
    let clients = ClientsDirectory::open(store_path);
    match clients.and_then(|clients| clients.open_file(&name_of(client), OFlags::WRONLY)) {
        // Nothing is written into a file that another process has put there.
        Ok(mut pipe) if fstat(&pipe).is_ok_and(|found| is_pipe(&found)) => {
            let _ = pipe.write(&subscription.to_be_bytes());
            true
        }
        Ok(_) => false,
        // `NXIO`: no process reads the pipe. Other errors do not show that the client is gone.
        Err(error) => {
            error.raw_os_error() != Some(Errno::NXIO.raw_os_error())
                && error.kind() != io::ErrorKind::NotFound
        }
    }
}

/// Returns the name of a client's pipe.
pub(super) fn name_of(client: ClientId) -> String {
    format!("{client}.wake")
}
