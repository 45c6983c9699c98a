use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use turnlock_core::model::{Claim, Item, Now, Released, Renewed, Snapshot};
use turnlock_core::{ClientId, Kind, Lease, LockName};

use super::file_error::FileError;
use super::local_clients;
use super::presence::{self, Presence};
use super::row::Row;
use super::schema;
use super::store_path::StorePath;
use super::transaction::{PendingWakeup, StepOutcome, StepTransaction};
use super::wake_pipe;
use super::wakeups::Wakeups;
use super::{boot, worker};
use crate::backend::embedded::now;
use crate::backend::{FoundKeys, Search};

/// One client's connection to the file.
///
/// Used by one thread, the [`Worker`](super::worker::Worker), since every call may block on the file.
pub(super) struct Database {
    store_path: StorePath,
    presence: Arc<Presence>,
    wakeups: Arc<Wakeups>,
    connection: Connection,
    /// Device and inode of the open file, to notice that it was replaced.
    identity: Option<(u64, u64)>,
}

impl Database {
    pub(super) fn open(
        store_path: StorePath,
        presence: Arc<Presence>,
        wakeups: Arc<Wakeups>,
    ) -> Result<Self, FileError> {
        let (connection, identity) = connect(&store_path, &presence)?;
        Ok(Self { store_path, presence, wakeups, connection, identity })
    }

    /// Executes one step on the item of a name, and wakes the clients that it concerns.
    pub(super) fn step<T>(
        &mut self,
        name: &LockName,
        step: impl FnOnce(&mut Item, Now) -> StepOutcome<T>,
    ) -> Result<T, FileError> {
        let (reply, wakeups) = self.transact(|transaction| transaction.step(name, step))?;
        self.wake(wakeups);
        Ok(reply)
    }

    /// Lowers the count of a hold. Returns also how many clients were notified.
    pub(super) fn release(&mut self, claim: &Claim<'_>) -> Result<(Released, u32), FileError> {
        let (reply, wakeups) =
            self.transact(|transaction| transaction.step(claim.name, |item, now| item.release(now, claim)))?;
        let notified = u32::try_from(wakeups.len()).unwrap_or(u32::MAX);
        self.wake(wakeups);
        Ok((reply, notified))
    }

    /// Executes steps on several names in one transaction. `None` for a name whose own step failed.
    pub(super) fn steps<T>(
        &mut self,
        names: &[&LockName],
        step: impl Fn(usize, &mut Item, Now) -> StepOutcome<T>,
    ) -> Result<Vec<Option<T>>, FileError> {
        let (replies, wakeups) = self.transact(|transaction| {
            let one = |(at, name): (usize, &&LockName)| {
                let reply = transaction.step(name, |item, now| step(at, item, now));
                match reply {
                    Ok(reply) => Ok(Some(reply)),
                    Err(error) if error.concerns_only(name) => Ok(None),
                    Err(error) => Err(error),
                }
            };
            names.iter().enumerate().map(one).collect()
        })?;
        self.wake(wakeups);
        Ok(replies)
    }

    /// Sets the lease of a hold to exactly `lease`, and lets the hold outlast its client.
    pub(super) fn unlock_after(&mut self, claim: &Claim<'_>, lease: Lease) -> Result<Renewed, FileError> {
        let (reply, wakeups) = self.transact(|transaction| {
            let reply = transaction.step(claim.name, |item, now| item.unlock_after(now, claim, lease))?;
            if reply == Renewed::Renewed {
                transaction.unlock_after(claim)?;
            }
            Ok(reply)
        })?;
        self.wake(wakeups);
        Ok(reply)
    }

    /// Returns the state of a name as seen from outside. Dead clients are left out, but nothing is written.
    pub(super) fn inspect(&mut self, name: &LockName) -> Result<Snapshot, FileError> {
        self.reopen_if_replaced()?;
        let transaction = self.connection.transaction()?;
        let now = now();
        let mut row = Row::load(&transaction, name.key())?.unwrap_or_else(|| Row::new(name.kind()));
        row.remove_dead_clients(&self.store_path, self.presence.client(), now);
        let snapshot = row.item.snapshot(now, name.kind());
        let mut snapshot = snapshot.map_err(|found| FileError::wrong_kind(name, found))?;
        for holder in &mut snapshot.holders {
            holder.since = row.since(&holder.owner).map(|micros| UNIX_EPOCH + Duration::from_micros(micros));
        }
        Ok(snapshot)
    }

    /// Finds held locks by name. Rows that cannot be read are left out.
    pub(super) fn find(&mut self, search: &Search) -> Result<FoundKeys, FileError> {
        self.reopen_if_replaced()?;
        let transaction = self.connection.transaction()?;
        let now = now();
        let mut select = transaction.prepare_cached("SELECT key, row FROM items ORDER BY key")?;
        let mut rows = select.query([])?;
        let mut found = Vec::new();
        while let Some(line) = rows.next()? {
            let key: String = line.get(0)?;
            if found.len() > search.at_most || !search.matches(&key) {
                continue;
            }
            let Ok(mut row) = Row::read(&key, line.get(1)?) else { continue };
            row.remove_dead_clients(&self.store_path, self.presence.client(), now);
            found.extend(row.item.held_kind(now).map(|kind| (key, kind)));
        }
        Ok(FoundKeys::new(search, found, true))
    }

    /// Returns the kind found under a name.
    pub(super) fn kind_of(&mut self, name: &LockName) -> Result<Option<Kind>, FileError> {
        self.reopen_if_replaced()?;
        let transaction = self.connection.transaction()?;
        let now = now();
        let Some(mut row) = Row::load(&transaction, name.key())? else { return Ok(None) };
        row.remove_dead_clients(&self.store_path, self.presence.client(), now);
        Ok(row.item.remembered_kind(now))
    }

    /// Stores the record of a client.
    pub(super) fn write_client_record(&mut self, client: ClientId, record: &str) -> Result<(), FileError> {
        let client = client.to_string();
        self.transact(|transaction| {
            let insert = "INSERT OR REPLACE INTO clients VALUES (?1, ?2)";
            transaction.sql.prepare_cached(insert)?.execute([&*client, record])?;
            Ok(())
        })?;
        Ok(())
    }

    /// Returns the records of these clients, in order.
    pub(super) fn client_records(&mut self, clients: &[ClientId]) -> Result<Vec<Option<String>>, FileError> {
        self.reopen_if_replaced()?;
        let mut select = self.connection.prepare_cached("SELECT card FROM clients WHERE id = ?1")?;
        let mut one = |client: &ClientId| {
            let found: Option<Option<String>> =
                select.query_row([client.to_string()], |row| row.get(0)).optional()?;
            Ok(found.flatten())
        };
        clients.iter().map(&mut one).collect()
    }

    /// Stores a subscription of this client to a name.
    pub(super) fn subscribe(&mut self, name: &LockName, subscription: u64) -> Result<(), FileError> {
        let (key, channel, client) = (name.key(), name.channel(), self.presence.client().to_string());
        let number = i64::try_from(subscription).unwrap_or(i64::MAX);
        self.transact(|transaction| {
            let insert = "INSERT OR REPLACE INTO listeners VALUES (?1, ?2, ?3, ?4)";
            transaction.sql.prepare_cached(insert)?.execute((key, channel, client, number))?;
            Ok(())
        })?;
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, subscription: u64) -> Result<(), FileError> {
        let client = self.presence.client().to_string();
        let number = i64::try_from(subscription).unwrap_or(i64::MAX);
        self.transact(|transaction| {
            let delete = "DELETE FROM listeners WHERE client = ?1 AND number = ?2";
            transaction.sql.prepare_cached(delete)?.execute((client, number))?;
            Ok(())
        })?;
        Ok(())
    }

    /// Watches from now on whether the other clients that hold a name or wait for it are alive.
    pub(super) fn watch_blockers(&mut self, name: &LockName) {
        let mut load_blockers = || -> Result<_, FileError> {
            let transaction = self.connection.transaction()?;
            let row = Row::load(&transaction, name.key())?;
            Ok(row.map_or_else(Vec::new, |row| row.others(self.presence.client())))
        };
        match load_blockers() {
            Ok(clients) => self.wakeups.watch(name.key(), clients),
            Err(error) => tracing::debug!(%name, ?error, "dead holders are not watched, will poll"),
        }
    }

    /// Runs one transaction. Returns also the clients to wake.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut StepTransaction<'_>) -> Result<T, FileError>,
    ) -> Result<(T, Vec<PendingWakeup>), FileError> {
        self.reopen_if_replaced()?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.presence.ensure().map_err(|error| FileError::from_io(&error))?;
        // The transaction has the write lock by now, so moments are monotonic from one step to the next.
        let mut transaction =
            StepTransaction::new(transaction, &self.store_path, self.presence.client(), now());
        let outcome = work(&mut transaction)?;
        Ok((outcome, transaction.finish()?))
    }

    /// Opens the file at the path again if it was removed or replaced, since the old file excludes no other
    /// process.
    fn reopen_if_replaced(&mut self) -> Result<(), FileError> {
        if self.identity.is_some() && identity_of(&self.store_path) == self.identity {
            return Ok(());
        }
        tracing::warn!(store_path = %self.store_path, "store file was removed or replaced, its locks are lost");
        (self.connection, self.identity) = connect(&self.store_path, &self.presence)?;
        self.wakeups.store_replaced();
        Ok(())
    }

    fn wake(&mut self, pending: Vec<PendingWakeup>) {
        for PendingWakeup { client, subscription } in pending {
            if let Some(wakeups) = local_clients::find(client) {
                wakeups.wake(subscription);
            } else if !wake_pipe::wake(&self.store_path, client, subscription) {
                let _ =
                    self.connection.execute("DELETE FROM listeners WHERE client = ?1", [client.to_string()]);
            }
        }
    }
}

/// Opens or creates the file. Returns also its identity.
fn connect(
    store_path: &StorePath,
    presence: &Presence,
) -> Result<(Connection, Option<(u64, u64)>), FileError> {
    /// One thread of a process at a time: see [`StorePath::prepare`].
    static OPENING: Mutex<()> = Mutex::new(());
    let _guard = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    for times in 0.. {
        store_path.prepare()?;
        match connect_once(store_path, presence) {
            // If several processes create the file, SQLite does not always call the busy handler.
            Err(error) if error.is_busy() && worker::retry_busy(times) => {}
            outcome => return outcome.map(|connection| (connection, identity_of(store_path))),
        }
    }
    unreachable!("the busy time-out ends before the counter")
}

fn connect_once(store_path: &StorePath, presence: &Presence) -> Result<Connection, FileError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&store_path.database, flags)?;
    connection.busy_handler(Some(worker::retry_busy))?;
    connection.set_prepared_statement_cache_capacity(32);
    if schema::is_foreign(&connection)? {
        return Err(FileError::foreign(store_path, "a database of another program"));
    }
    schema::set_up(&mut connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_in_use = presence::remove_dead(store_path);
    schema::migrate(&transaction, boot::id().as_deref(), now(), is_in_use)?;
    presence.ensure().map_err(|error| FileError::from_io(&error))?;
    schema::remove_dead_clients(&transaction, |client| presence::is_alive(store_path, client))?;
    transaction.commit().map_err(FileError::from_commit)?;
    Ok(connection)
}

fn identity_of(store_path: &StorePath) -> Option<(u64, u64)> {
    fs::metadata(&store_path.database).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
