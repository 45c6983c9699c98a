use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, TransactionBehavior};
use turnlock_core::model::{Acquired, Reply, Step};
use turnlock_core::{ClientId, Kind, LockName, Moment};
use turnlock_store::row::{self, Table};
use turnlock_store::{
    Activity, ActivityRecord, ActivityScope, Failure, FoundKeys, MAX_ACTIVITY_LEN, MAX_ACTIVITY_RECORDS,
    Search, StoredActivity, clock,
};

use super::file_error::FileError;
use super::file_table::{self, FileTable};
use super::preparation::prepare;
use super::presence::{self, Presence};
use super::store_path::StorePath;
use super::wakeups::Wakeups;
use super::{boot, schema, wake_pipe};

/// The number of steps after which a connection is one of many steps.
const MANY_STEPS: u32 = 100;

/// One client's connection to the file.
///
/// Used by one thread, the [`Worker`](super::worker::Worker), since every call may block on the file.
pub(super) struct Database {
    store_path: StorePath,
    presence: Arc<Presence>,
    wakeups: Arc<Wakeups>,
    connection: Connection,
    /// The number of transactions that wrote.
    steps: u32,
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
        Ok(Self { store_path, presence, wakeups, connection, steps: 0, identity })
    }

    /// Executes steps in one transaction, and wakes the clients that they concern.
    ///
    /// Returns the reply to each step, and how many clients were notified.
    pub(super) fn execute(
        &mut self,
        steps: &[Step],
    ) -> Result<(Vec<Result<Reply, Failure>>, u32), FileError> {
        let me = self.presence.client();
        if steps.iter().all(|step| matches!(step, Step::Inspect(_))) {
            // Dead clients are left out, but nothing is written.
            self.reopen_if_replaced()?;
            return self.read(|table| Ok((row::execute(table, steps, clock::both(), me)?.replies, 0)));
        }
        let (replies, wakeups) = self.transact(|table| {
            // The transaction has the write lock by now, so moments are monotonic from one step to the next.
            let now = clock::both();
            let executed = row::execute(table, steps, now, me)?;
            if steps.iter().any(|step| matches!(step, Step::SetLease { outlasts_client: true, .. })) {
                boot::record_clock(table.sql, now.moment)?;
            }
            Ok((executed.replies, table.subscribers(&executed.freed)?))
        })?;
        let notified = u32::try_from(wakeups.len()).unwrap_or(u32::MAX);
        self.wake(wakeups);
        for (step, reply) in steps.iter().zip(&replies) {
            if matches!(reply, Ok(Reply::Acquired(Acquired::Busy { .. } | Acquired::Queued))) {
                self.watch_blockers(step.name());
            }
        }
        Ok((replies, notified))
    }

    /// Executes a transaction that takes the write lock of the file and changes nothing.
    pub(super) fn ping(&mut self) -> Result<(), FileError> {
        self.reopen_if_replaced()?;
        let sql = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        sql.commit().map_err(FileError::Commit)
    }

    /// Finds held locks by name. Rows that cannot be read are left out.
    pub(super) fn find(&mut self, search: &Search) -> Result<FoundKeys, FileError> {
        self.reopen_if_replaced()?;
        let transaction = self.connection.transaction()?;
        let now = clock::both();
        let mut select = transaction.prepare_cached("SELECT key, row FROM items ORDER BY key")?;
        let mut rows = select.query([])?;
        let mut found = Vec::new();
        while let Some(line) = rows.next()? {
            let Ok(key) = line.get_ref(0)?.as_str() else { continue };
            if found.len() > search.at_most || !search.matches(key) {
                continue;
            }
            let text = file_table::text_of(key, line.get_ref(1)?);
            let Ok(mut row) = text.and_then(|text| file_table::parse(key, &text)) else { continue };
            row.remove_dead_clients(self.presence.client(), now, |client| {
                presence::is_alive(&self.store_path, client)
            });
            found.extend(row.held_kind(now).map(|kind| (key.to_owned(), kind)));
        }
        Ok(FoundKeys::new(search, found, true))
    }

    /// Returns the kind found under a name.
    pub(super) fn kind_of(&mut self, name: &LockName) -> Result<Option<Kind>, FileError> {
        self.reopen_if_replaced()?;
        let me = self.presence.client();
        self.read(|table| {
            let now = clock::both();
            let Some(mut row) = table.load(name.key())? else { return Ok(None) };
            row.remove_dead_clients(me, now, |client| table.is_alive(client));
            Ok(row.remembered_kind(now))
        })
    }

    /// Stores the record of a client.
    pub(super) fn write_client_record(&mut self, client: ClientId, record: &str) -> Result<(), FileError> {
        self.write("INSERT OR REPLACE INTO clients VALUES (?1, ?2)", (client.to_string(), record))
    }

    /// Returns the records of these clients, in order.
    pub(super) fn client_records(&mut self, clients: &[ClientId]) -> Result<Vec<Option<String>>, FileError> {
        self.reopen_if_replaced()?;
        let mut select = self.connection.prepare_cached("SELECT card FROM clients WHERE id = ?1")?;
        let mut one = |client: &ClientId| {
            // A damaged record is none.
            let text = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_str().ok().map(str::to_owned));
            Ok(select.query_row([client.to_string()], text).optional()?.flatten())
        };
        clients.iter().map(&mut one).collect()
    }

    /// Stores the activity record of a client, or removes it. Returns when.
    ///
    /// Removes those that have expired, and so those of dead clients, which an older version does not remove.
    pub(super) fn write_activity(
        &mut self,
        client: ClientId,
        record: Option<&ActivityRecord>,
    ) -> Result<Moment, FileError> {
        self.transact(|table| {
            // The transaction has the write lock by now, so that stamps are in the order of the writes.
            let now = clock::now();
            let mut delete =
                table.sql.prepare_cached("DELETE FROM activity WHERE client = ?1 OR ends <= ?2")?;
            delete.execute((client.to_string(), micros(now)))?;
            if let Some(ActivityRecord { text, is_linked, lasts }) = record {
                let mut insert =
                    table.sql.prepare_cached("INSERT INTO activity VALUES (?1, ?2, ?3, ?4, ?5)")?;
                let ends = micros(now + *lasts);
                insert.execute((client.to_string(), micros(now), ends, is_linked, text))?;
            }
            Ok(now)
        })
    }

    /// Returns the activity records of the clients that are alive. Damaged ones are left out.
    pub(super) fn activity(&mut self, scope: ActivityScope) -> Result<Activity, FileError> {
        self.reopen_if_replaced()?;
        let transaction = self.connection.transaction()?;
        let now = clock::now();
        let mut select = transaction.prepare_cached(
            "SELECT client, written, record FROM activity
             WHERE ends > ?1 AND (is_linked OR NOT ?2) AND length(CAST(record AS BLOB)) <= ?3
             ORDER BY client LIMIT ?4",
        )?;
        let limits = (MAX_ACTIVITY_LEN, MAX_ACTIVITY_RECORDS + 1);
        let mut rows = select.query((micros(now), scope == ActivityScope::Linked, limits.0, limits.1))?;
        let (mut records, mut count) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            count += 1;
            let client = row.get_ref(0)?.as_str().ok().and_then(ClientId::from_wire);
            let written = row.get_ref(1)?.as_i64().ok().and_then(|written| u64::try_from(written).ok());
            let (Some(client), Some(written), Ok(text)) = (client, written, row.get_ref(2)?.as_str()) else {
                continue;
            };
            let written = Moment::from_micros(written);
            // Not a moment of an earlier boot, in a damaged file. The first row begins the snapshot, later than `now`.
            let is_past = written <= clock::now();
            if count <= MAX_ACTIVITY_RECORDS && is_past && presence::is_alive(&self.store_path, client) {
                records.push(StoredActivity { client, written, text: text.to_owned() });
            }
        }
        Ok(Activity { now, records, scanned: count, is_complete: count <= MAX_ACTIVITY_RECORDS })
    }

    /// Stores a subscription of this client to a name.
    pub(super) fn subscribe(&mut self, name: &LockName, subscription: i64) -> Result<(), FileError> {
        let client = self.presence.client().to_string();
        let line = (name.key(), name.channel(), client, subscription);
        self.write("INSERT OR REPLACE INTO listeners VALUES (?1, ?2, ?3, ?4)", line)
    }

    pub(super) fn unsubscribe(&mut self, subscription: i64) -> Result<(), FileError> {
        let client = self.presence.client().to_string();
        self.write("DELETE FROM listeners WHERE client = ?1 AND number = ?2", (client, subscription))
    }

    /// Watches from now on whether the other clients that hold a name or wait for it are alive.
    fn watch_blockers(&mut self, name: &LockName) {
        let me = self.presence.client();
        match self.read(|table| Ok(table.load(name.key())?.map_or_else(Vec::new, |row| row.others(me)))) {
            Ok(clients) => self.wakeups.watch(name.key(), clients),
            Err(error) => tracing::debug!(%name, ?error, "dead holders are not watched, will poll"),
        }
    }

    /// Runs one transaction that only reads.
    fn read<T>(
        &mut self,
        work: impl FnOnce(&mut FileTable<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        let sql = self.connection.transaction()?;
        work(&mut FileTable::new(&sql, &self.store_path))
    }

    /// Executes one statement that writes.
    fn write(&mut self, statement: &str, params: impl Params) -> Result<(), FileError> {
        self.transact(|table| {
            table.sql.prepare_cached(statement)?.execute(params)?;
            Ok(())
        })
    }

    /// Runs one transaction that writes.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut FileTable<'_>) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        self.reopen_if_replaced()?;
        let sql = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.presence.ensure()?;
        let outcome = work(&mut FileTable::new(&sql, &self.store_path))?;
        sql.commit().map_err(FileError::Commit)?;
        self.steps = self.steps.saturating_add(1);
        if self.steps == MANY_STEPS {
            // The step has taken effect, whatever comes of this.
            let _ = schema::allow_long_log(&self.connection);
        }
        Ok(outcome)
    }

    /// Opens the file at the path again if it was removed or replaced, since the old file excludes no other
    /// process.
    fn reopen_if_replaced(&mut self) -> Result<(), FileError> {
        if self.identity.is_some() && identity_of(&self.store_path) == self.identity {
            return Ok(());
        }
        tracing::warn!(store_path = %self.store_path, "store file was removed or replaced, its locks are lost");
        (self.connection, self.identity) = connect(&self.store_path, &self.presence)?;
        self.steps = 0;
        self.wakeups.store_replaced();
        Ok(())
    }

    /// Wakes clients by their subscriptions.
    fn wake(&mut self, subscriptions: Vec<(ClientId, i64)>) {
        for (client, subscription) in subscriptions {
            if let Some(wakeups) = Wakeups::of(client) {
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
    /// One thread of a process at a time: see [`prepare`].
    static OPENING: Mutex<()> = Mutex::new(());
    let _guard = OPENING.lock();
    for times in 0.. {
        match connect_once(store_path, presence) {
            // If several processes create the file, SQLite does not always call the busy handler.
            Err(error) if error.is_busy() && retry_busy(times) => {}
            Err(error) => return Err(error.of_opening(store_path)),
            Ok(connection) => return Ok((connection, identity_of(store_path))),
        }
    }
    unreachable!("the busy time-out ends before the counter")
}

fn connect_once(store_path: &StorePath, presence: &Presence) -> Result<Connection, FileError> {
    prepare(store_path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&store_path.database, flags)?;
    connection.busy_handler(Some(retry_busy))?;
    connection.set_prepared_statement_cache_capacity(32);
    schema::set_up(&mut connection, store_path)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_in_use = presence::remove_dead(store_path);
    schema::migrate(&transaction, boot::id().as_deref(), clock::both(), is_in_use)?;
    schema::check_tables(&transaction, store_path)?;
    presence.ensure()?;
    schema::remove_dead_clients(&transaction, |client| presence::is_alive(store_path, client))?;
    transaction.commit().map_err(FileError::Commit)?;
    Ok(connection)
}

/// A moment as an integer of `SQLite`.
fn micros(moment: Moment) -> i64 {
    i64::try_from(moment.as_micros()).unwrap_or(i64::MAX)
}

fn identity_of(store_path: &StorePath) -> Option<(u64, u64)> {
    fs::metadata(&store_path.database).ok().map(|metadata| presence::identity(&metadata))
}

thread_local! {
    /// Until when this thread waits while other processes have the file locked.
    static BUSY_DEADLINE: Cell<Moment> = const { Cell::new(Moment::NEVER) };
}

/// Sets until when this thread waits while other processes have the file locked.
pub(super) fn set_busy_deadline(deadline: Moment) {
    BUSY_DEADLINE.set(deadline);
}

/// The busy handler of `SQLite`: waits a moment. Returns `false` to give up.
///
/// A step takes some microseconds, so the waits are short. They are random, so that waiting processes do not
/// collide again.
pub(super) fn retry_busy(times: i32) -> bool {
    if clock::now() >= BUSY_DEADLINE.get() {
        return false;
    }
    let longest = 50_u64 << times.clamp(0, 5);
    thread::sleep(Duration::from_micros(fastrand::u64(longest / 2..=longest)));
    true
}
