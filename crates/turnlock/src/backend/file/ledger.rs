use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use turnlock_core::model::{Claim, Item, Now, Released, Renewed, Snapshot};
use turnlock_core::{ClientId, Kind, Lease, LockName};

use super::ears::Ears;
use super::place::Place;
use super::presence::{self, Presence};
use super::roll;
use super::row::Row;
use super::schema;
use super::trouble::Trouble;
use super::turn::{Call, Said, Turn};
use super::wake_pipe;
use super::{boot, clerk};
use crate::backend::embedded::now;
use crate::backend::{Search, Sightings};

/// The file, as one client writes in it.
pub(super) struct Ledger {
    place: Place,
    presence: Arc<Presence>,
    ears: Arc<Ears>,
    connection: Connection,
    /// Which file was opened: another may come to stand in its place.
    identity: Option<(u64, u64)>,
}

impl Ledger {
    pub(super) fn open(place: Place, presence: Arc<Presence>, ears: Arc<Ears>) -> Result<Self, Trouble> {
        let (connection, identity) = connect(&place, &presence)?;
        Ok(Self { place, presence, ears, connection, identity })
    }

    /// One step on what stands under a name, and word of it to those whom it concerns.
    pub(super) fn step<T>(
        &mut self,
        name: &LockName,
        step: impl FnOnce(&mut Item, Now) -> Said<T>,
    ) -> Result<T, Trouble> {
        let (answer, calls) = self.transact(|turn| turn.step(name, step))?;
        self.call(calls);
        Ok(answer)
    }

    /// Lowers the count of a hold, and says how many were told of it.
    pub(super) fn release(&mut self, claim: &Claim<'_>) -> Result<(Released, u32), Trouble> {
        let (answer, calls) =
            self.transact(|turn| turn.step(claim.name, |item, now| item.release(now, claim)))?;
        let told = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        self.call(calls);
        Ok((answer, told))
    }

    /// Steps on several names in one go. `None` where the trouble is with just that one.
    pub(super) fn steps<T>(
        &mut self,
        names: &[&LockName],
        step: impl Fn(usize, &mut Item, Now) -> Said<T>,
    ) -> Result<Vec<Option<T>>, Trouble> {
        let (answers, calls) = self.transact(|turn| {
            let one = |(at, name): (usize, &&LockName)| match turn.step(name, |item, now| step(at, item, now))
            {
                Ok(answer) => Ok(Some(answer)),
                Err(trouble) if trouble.is_of_one_name(name) => Ok(None),
                Err(trouble) => Err(trouble),
            };
            names.iter().enumerate().map(one).collect()
        })?;
        self.call(calls);
        Ok(answers)
    }

    /// Sets the lease of a hold to just this, and lets the hold outlast its client.
    pub(super) fn keep(&mut self, claim: &Claim<'_>, lease: Lease) -> Result<Renewed, Trouble> {
        let (answer, calls) = self.transact(|turn| {
            let answer = turn.step(claim.name, |item, now| item.keep(now, claim, lease))?;
            if answer == Renewed::Renewed {
                turn.keep(claim)?;
            }
            Ok(answer)
        })?;
        self.call(calls);
        Ok(answer)
    }

    /// What a thing looks like. Nothing is written: who is gone is only left out.
    pub(super) fn inspect(&mut self, name: &LockName) -> Result<Snapshot, Trouble> {
        self.look_after_the_file()?;
        let transaction = self.connection.transaction()?;
        let now = now();
        let mut row = Row::load(&transaction, name.key())?.unwrap_or_else(|| Row::new(name.kind()));
        row.void_the_dead(&self.place, self.presence.client(), now);
        let found = row.item.snapshot(now, name.kind());
        let mut snapshot = found.map_err(|found| Trouble::of_another_kind(name, found))?;
        for holder in &mut snapshot.holders {
            holder.since = row.since(&holder.owner).map(|micros| UNIX_EPOCH + Duration::from_micros(micros));
        }
        Ok(snapshot)
    }

    /// What is held under the names that somebody looks for. Rows that cannot be read are left out.
    pub(super) fn find(&mut self, search: &Search) -> Result<Sightings, Trouble> {
        self.look_after_the_file()?;
        let transaction = self.connection.transaction()?;
        let now = now();
        let mut select = transaction.prepare_cached("SELECT key, row FROM items ORDER BY key")?;
        let mut rows = select.query([])?;
        let mut found = Vec::new();
        while let Some(line) = rows.next()? {
            let key: String = line.get(0)?;
            if found.len() > search.at_most || !search.wants(&key) {
                continue;
            }
            let Ok(mut row) = Row::read(&key, line.get(1)?) else { continue };
            row.void_the_dead(&self.place, self.presence.client(), now);
            found.extend(row.item.held_kind(now).map(|kind| (key, kind)));
        }
        Ok(Sightings::new(search, found, true))
    }

    /// What stands under a name.
    pub(super) fn kind_of(&mut self, name: &LockName) -> Result<Option<Kind>, Trouble> {
        self.look_after_the_file()?;
        let transaction = self.connection.transaction()?;
        let now = now();
        let Some(mut row) = Row::load(&transaction, name.key())? else { return Ok(None) };
        row.void_the_dead(&self.place, self.presence.client(), now);
        Ok(row.item.remembered_kind(now))
    }

    /// Writes down who a client is.
    pub(super) fn introduce(&mut self, client: ClientId, record: &str) -> Result<(), Trouble> {
        let client = client.to_string();
        self.transact(|turn| {
            let insert = "INSERT OR REPLACE INTO clients VALUES (?1, ?2)";
            turn.transaction.prepare_cached(insert)?.execute([&*client, record])?;
            Ok(())
        })?;
        Ok(())
    }

    /// Who these clients are, as they wrote it down.
    pub(super) fn introductions(&mut self, clients: &[ClientId]) -> Result<Vec<Option<String>>, Trouble> {
        self.look_after_the_file()?;
        let mut select = self.connection.prepare_cached("SELECT card FROM clients WHERE id = ?1")?;
        let mut one = |client: &ClientId| {
            let found: Option<Option<String>> =
                select.query_row([client.to_string()], |row| row.get(0)).optional()?;
            Ok(found.flatten())
        };
        clients.iter().map(&mut one).collect()
    }

    /// Writes down that this client wants to hear of a name.
    pub(super) fn listen(&mut self, name: &LockName, number: u64) -> Result<(), Trouble> {
        let (key, channel, client) = (name.key(), name.channel(), self.presence.client().to_string());
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.transact(|turn| {
            let insert = "INSERT OR REPLACE INTO listeners VALUES (?1, ?2, ?3, ?4)";
            turn.transaction.prepare_cached(insert)?.execute((key, channel, client, number))?;
            Ok(())
        })?;
        Ok(())
    }

    pub(super) fn unlisten(&mut self, number: u64) -> Result<(), Trouble> {
        let client = self.presence.client().to_string();
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.transact(|turn| {
            let delete = "DELETE FROM listeners WHERE client = ?1 AND number = ?2";
            turn.transaction.prepare_cached(delete)?.execute((client, number))?;
            Ok(())
        })?;
        Ok(())
    }

    /// Looks from now on whether those live who have what somebody here waits for.
    pub(super) fn watch_those_in_the_way(&mut self, name: &LockName) {
        let mut look = || -> Result<_, Trouble> {
            let transaction = self.connection.transaction()?;
            let row = Row::load(&transaction, name.key())?;
            Ok(row.map_or_else(Vec::new, |row| row.others(self.presence.client())))
        };
        match look() {
            Ok(clients) => self.ears.watch(name.key(), clients),
            Err(trouble) => tracing::debug!(?trouble, "the poll will have to find out who has died"),
        }
    }

    /// One transaction, and whom to call when it is done.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Turn<'_>) -> Result<T, Trouble>,
    ) -> Result<(T, Vec<Call>), Trouble> {
        self.look_after_the_file()?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.presence.show().map_err(|error| Trouble::of_io(&error))?;
        // By now the file is ours, so moments go forward from one step to the next.
        let mut turn = Turn::new(transaction, &self.place, self.presence.client(), now());
        let outcome = work(&mut turn)?;
        Ok((outcome, turn.finish()?))
    }

    /// A file that was removed or replaced excludes nobody any more: goes over to what stands there now.
    fn look_after_the_file(&mut self) -> Result<(), Trouble> {
        if self.identity.is_some() && identity_of(&self.place) == self.identity {
            return Ok(());
        }
        tracing::warn!(place = %self.place, "the file of the store was removed or replaced: what was held in it is gone");
        (self.connection, self.identity) = connect(&self.place, &self.presence)?;
        self.ears.store_changed();
        Ok(())
    }

    fn call(&mut self, calls: Vec<Call>) {
        for Call { client, number } in calls {
            if let Some(ears) = roll::find(client) {
                ears.hear(number);
            } else if !wake_pipe::ring(&self.place, client, number) {
                let _ =
                    self.connection.execute("DELETE FROM listeners WHERE client = ?1", [client.to_string()]);
            }
        }
    }
}

/// Opens the file, or makes it. Which file it is.
fn connect(place: &Place, presence: &Presence) -> Result<(Connection, Option<(u64, u64)>), Trouble> {
    /// One at a time in a process: see [`Place::prepare`].
    static OPENING: Mutex<()> = Mutex::new(());
    let _turn = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    for times in 0.. {
        place.prepare()?;
        match connect_once(place, presence) {
            // Where several make the same file, SQLite does not always wait by itself.
            Err(trouble) if trouble.is_busy() && clerk::try_again(times) => {}
            outcome => return outcome.map(|connection| (connection, identity_of(place))),
        }
    }
    unreachable!("patience ends before the numbers do")
}

fn connect_once(place: &Place, presence: &Presence) -> Result<Connection, Trouble> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&place.database, flags)?;
    connection.busy_handler(Some(clerk::try_again))?;
    connection.set_prepared_statement_cache_capacity(32);
    if schema::is_foreign(&connection)? {
        return Err(Trouble::foreign(place, "a database of another program"));
    }
    schema::set_up(&mut connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let is_in_use = presence::clear_away_the_dead(place);
    schema::migrate(&transaction, boot::id().as_deref(), now(), is_in_use)?;
    presence.show().map_err(|error| Trouble::of_io(&error))?;
    schema::forget_the_dead(&transaction, |client| presence::is_alive(place, client))?;
    transaction.commit().map_err(Trouble::of_commit)?;
    Ok(connection)
}

fn identity_of(place: &Place) -> Option<(u64, u64)> {
    fs::metadata(&place.database).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
