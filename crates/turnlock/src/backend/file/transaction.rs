use std::collections::HashMap;

use rusqlite::Transaction;
use turnlock_core::model::{Claim, Item, Notification, Now, WrongKind};
use turnlock_core::{ClientId, LockName};

use super::boot;
use super::file_error::FileError;
use super::row::Row;
use super::store_path::StorePath;

/// The outcome of a model step.
pub(super) type StepOutcome<T> = Result<(T, Notification), WrongKind>;

/// A client to wake after the commit, with the number of its subscription.
pub(super) struct PendingWakeup {
    pub(super) client: ClientId,
    pub(super) subscription: u64,
}

/// A transaction with one or more steps. A row is read when it is first needed, and written once, at the end.
pub(super) struct StepTransaction<'a> {
    pub(super) sql: Transaction<'a>,
    pub(super) store_path: &'a StorePath,
    pub(super) client: ClientId,
    pub(super) now: Now,
    rows: HashMap<Box<str>, Row>,
    wakeups: Vec<PendingWakeup>,
}

impl<'a> StepTransaction<'a> {
    pub(super) fn new(sql: Transaction<'a>, store_path: &'a StorePath, client: ClientId, now: Now) -> Self {
        Self { sql, store_path, client, now, rows: HashMap::new(), wakeups: Vec::new() }
    }

    /// Executes one step of the model on the row of a name.
    pub(super) fn step<T>(
        &mut self,
        name: &LockName,
        step: impl FnOnce(&mut Item, Now) -> StepOutcome<T>,
    ) -> Result<T, FileError> {
        let now = self.now;
        let row = self.row(name)?;
        if row.item.is_free(now) {
            // A free item is as good as none: the name may be used for another kind.
            row.item = Item::new(name.kind());
        }
        let (reply, notification) =
            step(&mut row.item, now).map_err(|found| FileError::wrong_kind(name, found))?;
        self.notify(name, notification)?;
        Ok(reply)
    }

    /// Records that a hold outlasts this client.
    pub(super) fn unlock_after(&mut self, claim: &Claim<'_>) -> Result<(), FileError> {
        let (client, now) = (self.client, self.now);
        let row = self.row(claim.name)?;
        row.update_parties(client, now);
        row.unlock_after(claim.owner, claim.permits);
        boot::record_clock(&self.sql, now.moment)?;
        Ok(())
    }

    /// Writes the rows and commits. Returns the clients to wake.
    pub(super) fn finish(mut self) -> Result<Vec<PendingWakeup>, FileError> {
        for (key, row) in &mut self.rows {
            row.update_parties(self.client, self.now);
            row.store(&self.sql, key, self.now)?;
        }
        self.sql.commit().map_err(FileError::from_commit)?;
        Ok(self.wakeups)
    }

    /// Returns the row of a name, without dead clients.
    fn row(&mut self, name: &LockName) -> Result<&mut Row, FileError> {
        if !self.rows.contains_key(name.key()) {
            let found = Row::load(&self.sql, name.key())?;
            let mut row = found.unwrap_or_else(|| Row::new(name.kind()));
            let notification = row.remove_dead_clients(self.store_path, self.client, self.now);
            self.notify(name, notification)?;
            self.rows.insert(name.key().into(), row);
        }
        Ok(self.rows.get_mut(name.key()).expect("just inserted"))
    }

    /// Adds the subscribers of a notification to the clients to wake.
    fn notify(&mut self, name: &LockName, notification: Notification) -> Result<(), FileError> {
        let channel = match notification {
            Notification::None => return Ok(()),
            Notification::Subscribers => name.channel().to_owned(),
            Notification::Waiter(waiter) => name.for_waiter(&waiter).channel().to_owned(),
        };
        let select = "SELECT client, number FROM listeners WHERE key = ?1 AND channel = ?2";
        let mut select = self.sql.prepare_cached(select)?;
        let mut rows = select.query((name.key(), channel))?;
        while let Some(row) = rows.next()? {
            let (client, number): (String, i64) = (row.get(0)?, row.get(1)?);
            if let (Some(client), Ok(subscription)) = (ClientId::from_wire(&client), u64::try_from(number)) {
                self.wakeups.push(PendingWakeup { client, subscription });
            }
        }
        Ok(())
    }
}
