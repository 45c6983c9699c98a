use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use turnlock_core::ClientId;

use super::place::Place;
use super::wake_pipe;

/// The sign that a client lives: a lock of the system on a file of its own, which ends with its process in any case.
#[derive(Debug)]
pub(super) struct Presence {
    client: ClientId,
    place: Place,
    sign: Mutex<Sign>,
}

#[derive(Debug)]
enum Sign {
    NotYet,
    Shown(File),
    TakenAway,
}

impl Presence {
    pub(super) fn new(place: &Place, client: ClientId) -> Self {
        Self { client, place: place.clone(), sign: Mutex::new(Sign::NotYet) }
    }

    pub(super) fn client(&self) -> ClientId {
        self.client
    }

    /// Makes the sign if it is not there, or somebody took it away. Others may have noticed that, and taken the client for
    /// dead; what it held then is found gone when it is next renewed.
    ///
    /// Only within a transaction, so that nobody clears away a file that is not locked yet.
    pub(super) fn show(&self) -> io::Result<()> {
        let path = path_of(&self.place, self.client);
        let mut sign = self.sign.lock().unwrap_or_else(PoisonError::into_inner);
        match &*sign {
            Sign::TakenAway => return Ok(()),
            Sign::Shown(file) if is_at(file, &path) => return Ok(()),
            Sign::NotYet | Sign::Shown(_) => {}
        }
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let fresh = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.place.make_directory_of_clients()?;
                open()?
            }
            outcome => outcome?,
        };
        self.place.give_to_owner(&path);
        flock(&fresh, FlockOperation::NonBlockingLockExclusive)?;
        *sign = Sign::Shown(fresh);
        Ok(())
    }

    /// Takes the sign away, for good.
    pub(super) fn end(&self) {
        let mut sign = self.sign.lock().unwrap_or_else(PoisonError::into_inner);
        // Removed while it is still locked, so that nobody else clears it away.
        if let Sign::Shown(_) = *sign {
            remove(&self.place, self.client);
        }
        *sign = Sign::TakenAway;
    }
}

/// Whether this client lives. What cannot be looked at is taken for alive.
pub(super) fn is_alive(place: &Place, client: ClientId) -> bool {
    match File::open(path_of(place, client)) {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        // Shared, so that two who look at the same time do not take each other for the client.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
    }
}

/// Clears away what the dead have left in the directory, a bounded number at a time. Whether somebody lives.
///
/// Only within a transaction: see [`Presence::show`].
pub(super) fn clear_away_the_dead(place: &Place) -> bool {
    let entries = fs::read_dir(&place.clients).into_iter().flatten().flatten();
    let clients = entries.filter_map(|entry| ClientId::from_wire(entry.file_name().to_str()?));
    let (alive, dead): (Vec<_>, Vec<_>) =
        clients.take(MOST_LOOKED_AT).partition(|client| is_alive(place, *client));
    for client in dead {
        remove(place, client);
    }
    !alive.is_empty()
}

const MOST_LOOKED_AT: usize = 1_000;

fn remove(place: &Place, client: ClientId) {
    let _ = fs::remove_file(wake_pipe::path_of(place, client));
    let _ = fs::remove_file(path_of(place, client));
}

fn path_of(place: &Place, client: ClientId) -> PathBuf {
    place.clients.join(client.to_string())
}

fn is_at(file: &File, path: &PathBuf) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(found)) => identity(open) == identity(found),
        _ => false,
    }
}
