use std::collections::HashMap;

use rusqlite::Transaction;
use turnlock_core::model::{Claim, Item, Now, OfAnotherKind, Wake};
use turnlock_core::{ClientId, LockName};

use super::boot;
use super::place::Place;
use super::row::Row;
use super::trouble::Trouble;

/// What a step says of a thing under one key.
pub(super) type Said<T> = Result<(T, Wake), OfAnotherKind>;

/// A number to be said to a client.
pub(super) struct Call {
    pub(super) client: ClientId,
    pub(super) number: u64,
}

/// One transaction under way. A row is read when it is first needed, and written once, at the end.
pub(super) struct Turn<'a> {
    pub(super) transaction: Transaction<'a>,
    pub(super) place: &'a Place,
    pub(super) client: ClientId,
    pub(super) now: Now,
    rows: HashMap<Box<str>, Row>,
    calls: Vec<Call>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(transaction: Transaction<'a>, place: &'a Place, client: ClientId, now: Now) -> Self {
        Self { transaction, place, client, now, rows: HashMap::new(), calls: Vec::new() }
    }

    /// One step of the model on what stands under a name.
    pub(super) fn step<T>(
        &mut self,
        name: &LockName,
        step: impl FnOnce(&mut Item, Now) -> Said<T>,
    ) -> Result<T, Trouble> {
        let now = self.now;
        let row = self.row(name)?;
        if row.item.is_free(now) {
            // As if there had been nothing: another kind may come.
            row.item = Item::new(name.kind());
        }
        let (answer, wake) =
            step(&mut row.item, now).map_err(|found| Trouble::of_another_kind(name, found))?;
        self.summon(name, wake)?;
        Ok(answer)
    }

    /// Notes that a hold is to outlast this client.
    pub(super) fn keep(&mut self, claim: &Claim<'_>) -> Result<(), Trouble> {
        let (client, now) = (self.client, self.now);
        let row = self.row(claim.name)?;
        row.settle(client, now);
        row.keep(claim.owner, claim.permits);
        boot::note_clock(&self.transaction, now.moment)?;
        Ok(())
    }

    /// Writes everything down. Whom to call when it is certain.
    pub(super) fn finish(mut self) -> Result<Vec<Call>, Trouble> {
        for (key, row) in &mut self.rows {
            row.settle(self.client, self.now);
            row.store(&self.transaction, key, self.now)?;
        }
        self.transaction.commit().map_err(Trouble::of_commit)?;
        Ok(self.calls)
    }

    /// The row of a name, without what the dead had of it.
    fn row(&mut self, name: &LockName) -> Result<&mut Row, Trouble> {
        if !self.rows.contains_key(name.key()) {
            let found = Row::load(&self.transaction, name.key())?;
            let mut row = found.unwrap_or_else(|| Row::new(name.kind()));
            let wake = row.void_the_dead(self.place, self.client, self.now);
            self.summon(name, wake)?;
            self.rows.insert(name.key().into(), row);
        }
        Ok(self.rows.get_mut(name.key()).expect("just put there"))
    }

    /// Notes whom to call.
    fn summon(&mut self, name: &LockName, wake: Wake) -> Result<(), Trouble> {
        let channel = match wake {
            Wake::Nobody => return Ok(()),
            Wake::Listeners => name.channel().to_owned(),
            Wake::Waiter(waiter) => name.for_waiter(&waiter).channel().to_owned(),
        };
        let select = "SELECT client, number FROM listeners WHERE key = ?1 AND channel = ?2";
        let mut select = self.transaction.prepare_cached(select)?;
        let mut rows = select.query((name.key(), channel))?;
        while let Some(row) = rows.next()? {
            let (client, number): (String, i64) = (row.get(0)?, row.get(1)?);
            if let (Some(client), Ok(number)) = (ClientId::from_wire(&client), u64::try_from(number)) {
                self.calls.push(Call { client, number });
            }
        }
        Ok(())
    }
}
