use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use turnlock_core::ClientId;
use turnlock_core::planted::Bug;

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
    pub(super) fn ensure(&self) -> io::Result<()> {
        let path = path_of(&self.store_path, self.client);
        let mut state = self.state.lock();
        match &*state {
            State::Ended => return Ok(()),
            State::Locked(file) if is_at(file, &path) => return Ok(()),
            State::NotLocked | State::Locked(_) => {}
        }
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.store_path.create_clients_directory()?;
                open()?
            }
            outcome => outcome?,
        };
        self.store_path.chown_to_store_owner(&path);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        *state = State::Locked(file);
        Ok(())
    }

    /// Removes the file for good.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        // Removed while it is locked, so that no other client removes it at the same time.
        if let State::Locked(_) = *state {
            remove(&self.store_path, self.client);
        }
        *state = State::Ended;
    }
}

/// Returns `false` if the client is certainly dead.
pub(super) fn is_alive(store_path: &StorePath, client: ClientId) -> bool {
    if Bug::PresenceIgnored.is_planted() {
        return false;
    }
    match File::open(path_of(store_path, client)) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        // A shared lock, so that two clients that check at the same time do not find each other's lock.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
    }
}

/// Removes the files of dead clients, a bounded number at a time. Returns `true` if a client is alive.
///
/// Must be called within a transaction: see [`Presence::ensure`].
pub(super) fn remove_dead(store_path: &StorePath) -> bool {
    let entries = fs::read_dir(&store_path.clients).into_iter().flatten().flatten();
    let clients = entries.filter_map(|entry| ClientId::from_wire(entry.file_name().to_str()?));
    let (alive, dead): (Vec<_>, Vec<_>) =
        clients.take(MAX_CHECKED).partition(|client| is_alive(store_path, *client));
    for client in dead {
        remove(store_path, client);
    }
    !alive.is_empty()
}

const MAX_CHECKED: usize = 1_000;

fn remove(store_path: &StorePath, client: ClientId) {
    let _ = fs::remove_file(wake_pipe::path_of(store_path, client));
    let _ = fs::remove_file(path_of(store_path, client));
}

fn path_of(store_path: &StorePath, client: ClientId) -> PathBuf {
    store_path.clients.join(client.to_string())
}

fn is_at(file: &File, path: &PathBuf) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(found)) => identity(&open) == identity(&found),
        _ => false,
    }
}

/// Returns device and inode of a file.
pub(super) fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
