use parking_lot::Mutex;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, OFlags, flock};
use turnlock_core::ClientId;
use turnlock_core::planted::Bug;

use super::clients_directory::ClientsDirectory;
use super::file_error::FileError;
use super::store_directory::StoreDirectory;
use super::store_path::StorePath;
use super::wake_pipe;

/// Shows that a client is alive: it has a file of its own, locked with `flock`.
///
/// The operating system releases the lock when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Presence {
    client: ClientId,
    store_path: StorePath,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    NotLocked,
    Locked(File),
    Ended,
}

impl Presence {
    pub(super) fn new(store_path: &StorePath, client: ClientId) -> Self {
        Self { client, store_path: store_path.clone(), state: Mutex::new(State::NotLocked) }
    }

    pub(super) fn client(&self) -> ClientId {
        self.client
    }

    /// Creates and locks the file if it does not exist, or was removed.
    ///
    /// If it was removed, other clients may have considered this one dead; its next renewals find their holds
    /// gone.
    ///
    /// Must be called within a transaction, so that no other client removes a file that is not locked yet.
    pub(super) fn ensure(&self) -> Result<(), FileError> {
        let path = path_of(&self.store_path, self.client);
        let mut state = self.state.lock();
        match &*state {
            State::Ended => return Ok(()),
            State::Locked(file) if is_at(file, &path) => return Ok(()),
            State::NotLocked | State::Locked(_) => {}
        }
        *state = State::Locked(self.create().map_err(FileError::at(&path))?);
        Ok(())
    }

    fn create(&self) -> io::Result<File> {
        let directory = StoreDirectory::open(&self.store_path)?;
        directory.create_clients()?;
        let file = directory.clients()?.create_file(&self.client.to_string())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Removes the file for good.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        // Removed while it is locked, so that no other client removes it at the same time.
        if let State::Locked(_) = *state
            && let Ok(clients) = ClientsDirectory::open(&self.store_path)
        {
            remove(&clients, self.client);
        }
        *state = State::Ended;
    }
}

/// Returns `false` if the client is certainly dead.
pub(super) fn is_alive(store_path: &StorePath, client: ClientId) -> bool {
    match ClientsDirectory::open(store_path) {
        Ok(clients) => is_alive_in(&clients, client),
        Err(error) => !Bug::PresenceIgnored.is_planted() && error.kind() != io::ErrorKind::NotFound,
    }
}

fn is_alive_in(clients: &ClientsDirectory, client: ClientId) -> bool {
    if Bug::PresenceIgnored.is_planted() {
        return false;
    }
    match clients.open_file(&client.to_string(), OFlags::RDONLY) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        // A shared lock, so that two clients that check at the same time do not find each other's lock.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
    }
}

/// Removes the files of dead clients, a bounded number at a time. Returns `true` if a client is alive.
///
/// Must be called within a transaction: see [`Presence::ensure`].
pub(super) fn remove_dead(store_path: &StorePath) -> bool {
    let Ok(directory) = ClientsDirectory::open(store_path) else { return false };
    let clients = directory.names().filter_map(|name| ClientId::from_wire(&name));
    let (alive, dead): (Vec<_>, Vec<_>) =
        clients.take(MAX_CHECKED).partition(|client| is_alive_in(&directory, *client));
    for client in dead {
        remove(&directory, client);
    }
    !alive.is_empty()
}

const MAX_CHECKED: usize = 1_000;

fn remove(clients: &ClientsDirectory, client: ClientId) {
    let _ = clients.remove(&wake_pipe::name_of(client));
    let _ = clients.remove(&client.to_string());
}

fn path_of(store_path: &StorePath, client: ClientId) -> PathBuf {
    store_path.clients.join(client.to_string())
}

fn is_at(file: &File, path: &PathBuf) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(found)) => identity(&open) == identity(&found),
        _ => false,
    }
}

/// Returns device and inode of a file.
pub(super) fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
