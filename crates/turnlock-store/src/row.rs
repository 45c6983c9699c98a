//! The state of a model in a row: for stores that read it, execute a step, and replace it in one transaction.
//!
//! A store of this kind implements [`Table`] on its transaction, and runs its steps by [`execute`]. The rules are those
//! of [`turnlock_core::model`]; the store adds only atomicity, a clock and wake-ups.
//!
//! A store whose driver is async reads the rows of its steps first, and executes the steps on them in a map. It commits
//! the rows that are replaced by compare-and-set. If another client was faster, it reads the rows again, and executes
//! the same steps again: nothing else was changed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::time::{Duration, UNIX_EPOCH};

use turnlock_core::model::{Item, Notification, Now, Owners, PermitId, Renewed, Reply, Step, WrongKind};
use turnlock_core::{ClientId, Kind, LockName, OwnerId};

use crate::failure::Failure;

/// The rows of a store, inside one transaction.
///
/// Between [`load`](Table::load) and the end of the transaction, no other client may change a row.
pub trait Table {
    /// Returns the row of a key. `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`FailureKind::NotALock`](crate::FailureKind::NotALock) with this key: only this row is bad. Any other failure ends
    /// the transaction.
    fn load(&mut self, key: &str) -> Result<Option<Row>, Failure>;

    /// Replaces the row of a key that was loaded. `None` deletes it.
    ///
    /// # Errors
    ///
    /// A failure ends the transaction.
    fn replace(&mut self, key: &str, row: Option<Row>) -> Result<(), Failure>;

    /// Takes back a row that was only inspected. By default, it is dropped: nothing is written.
    fn put_back(&mut self, _key: &str, _row: Row) {}

    /// Returns `false` if a client is dead, so that its holds can be removed before their leases end.
    fn is_alive(&self, _client: ClientId) -> bool {
        true
    }
}

/// Rows in memory. A row is taken out while steps are executed on it.
impl<S: BuildHasher> Table for HashMap<Box<str>, Row, S> {
    fn load(&mut self, key: &str) -> Result<Option<Row>, Failure> {
        Ok(self.remove(key))
    }

    fn replace(&mut self, key: &str, row: Option<Row>) -> Result<(), Failure> {
        self.extend(row.map(|row| (key.into(), row)));
        Ok(())
    }

    fn put_back(&mut self, key: &str, row: Row) {
        self.insert(key.into(), row);
    }
}

/// What [`execute`] did.
#[derive(Debug)]
pub struct Executed {
    /// The reply to each step, in order. Another step is not affected by a failure.
    pub replies: Vec<Result<Reply, Failure>>,
    /// The names whose subscribers are to be woken after the commit.
    pub freed: Vec<LockName>,
}

/// A row while steps are executed on it.
struct Loaded {
    row: Row,
    /// The name whose subscribers are woken since a dead client was removed.
    freed: Option<LockName>,
    /// `false` if all steps only inspect it.
    is_written: bool,
}

/// Executes steps of the client `me` in one transaction.
///
/// Each row is loaded once, and replaced once at the end. A row that is only inspected is not replaced.
///
/// # Errors
///
/// A failure of the table. Nothing must be committed then.
pub fn execute(table: &mut impl Table, steps: &[Step], now: Now, me: ClientId) -> Result<Executed, Failure> {
    let mut rows = BTreeMap::new();
    let mut executed = Executed { replies: Vec::with_capacity(steps.len()), freed: Vec::new() };
    for step in steps {
        let name = step.name();
        let loaded = match rows.entry(name.key()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match table.load(name.key()) {
                Ok(row) => {
                    let mut row = row.unwrap_or_else(|| Row::new(name.kind()));
                    let removed = row.remove_dead_clients(me, now, |client| table.is_alive(client));
                    entry.insert(Loaded { row, freed: freed(name, removed), is_written: false })
                }
                Err(failure) if failure.concerns_only(name) => {
                    executed.replies.push(Err(failure));
                    continue;
                }
                Err(failure) => return Err(failure),
            },
        };
        loaded.is_written |= !matches!(step, Step::Inspect(_));
        executed.replies.push(loaded.row.apply(step, me, now).map(|(reply, notification)| {
            executed.freed.extend(freed(name, notification));
            reply
        }));
    }
    for (key, Loaded { mut row, freed, is_written }) in rows {
        if is_written {
            row.update_parties(me, now);
            executed.freed.extend(freed);
            let is_free = row.item.is_free(now);
            table.replace(key, (!is_free).then_some(row))?;
        } else if !row.item.is_free(now) {
            table.put_back(key, row);
        }
    }
    Ok(executed)
}

/// Returns the name whose subscribers are notified.
fn freed(name: &LockName, notification: Notification) -> Option<LockName> {
    match notification {
        Notification::None => None,
        Notification::Subscribers => Some(name.clone()),
        Notification::Waiter(waiter) => Some(name.for_waiter(&waiter)),
    }
}

/// The row of one key: the state of its primitive, and the clients that its owners belong to.
///
/// With the feature `serde` it can be stored as text. The field names are part of the format of `turnlock-file`.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug)]
pub struct Row {
    item: Item,
    parties: BTreeMap<OwnerId, Party>,
}

/// An owner that holds or waits.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Debug)]
struct Party {
    /// The client of the owner, if the owner's id does not contain it, as the id of a permit.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    client: Option<String>,
    /// When the hold or wait began: microseconds since 1970.
    since: u64,
    waits: bool,
    /// `true` for a hold with a delayed unlock, which outlasts its client.
    #[cfg_attr(
        feature = "serde",
        serde(default, rename = "kept", skip_serializing_if = "std::ops::Not::not")
    )]
    outlasts_client: bool,
}

impl Row {
    /// Creates the initial state of a kind.
    pub fn new(kind: Kind) -> Self {
        Self { item: Item::new(kind), parties: BTreeMap::new() }
    }

    /// Returns the owners that hold or wait, whether their leases have ended or not.
    pub fn owners(&mut self) -> Owners {
        self.item.owners()
    }

    /// Returns the kind, if it has a holder.
    pub fn held_kind(&mut self, now: Now) -> Option<Kind> {
        (!self.item.snapshot(now).holders.is_empty()).then(|| self.item.kind(now))
    }

    /// Returns the kind, unless nothing is left to remember.
    pub fn remembered_kind(&mut self, now: Now) -> Option<Kind> {
        (!self.item.is_free(now)).then(|| self.item.kind(now))
    }

    /// Executes one step of the model.
    fn apply(&mut self, step: &Step, me: ClientId, now: Now) -> Result<(Reply, Notification), Failure> {
        let name = step.name();
        if self.item.is_free(now) {
            // A free item is as good as none: the name may be used for another kind.
            self.item = Item::new(name.kind());
        }
        let applied = self.item.apply(now, step);
        let (mut reply, notification) =
            applied.map_err(|WrongKind(found)| Failure::wrong_kind(name, found))?;
        match (step, &mut reply) {
            (Step::SetLease { claim, outlasts_client: true, .. }, Reply::Renewed(Renewed::Renewed)) => {
                self.update_parties(me, now);
                self.unlock_after(&claim.owner, claim.permits);
            }
            (Step::Inspect(_), Reply::Snapshot(snapshot)) => {
                for holder in &mut snapshot.holders {
                    let party = self.parties.get(&holder.owner).filter(|party| !party.waits);
                    holder.since = party.map(|party| UNIX_EPOCH + Duration::from_micros(party.since));
                }
            }
            _ => {}
        }
        Ok((reply, notification))
    }

    /// Returns the clients that hold or wait, except `me`. Holds that outlast their clients do not count.
    pub fn others(&self, me: ClientId) -> Vec<ClientId> {
        let mut clients: Vec<_> =
            self.parties.iter().filter_map(|(owner, party)| party.client_of(owner)).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != me);
        clients
    }

    /// Removes the owners of clients that are not alive, whatever their leases.
    pub fn remove_dead_clients(
        &mut self,
        me: ClientId,
        now: Now,
        is_alive: impl Fn(ClientId) -> bool,
    ) -> Notification {
        let mut dead = self.others(me);
        dead.retain(|client| !is_alive(*client));
        if dead.is_empty() {
            return Notification::None;
        }
        tracing::info!(clients = ?dead, "removed the locks of dead clients");
        let Self { item, parties, .. } = self;
        item.remove_owners(now, |owner| {
            parties
                .get(owner)
                .and_then(|party| party.client_of(owner))
                .is_some_and(|client| dead.contains(&client))
        })
    }

    /// Updates the parties after a step by `client`: new owners belong to it.
    fn update_parties(&mut self, client: ClientId, now: Now) {
        let owners = self.item.owners();
        let mut before = std::mem::take(&mut self.parties);
        let holders = owners.holders.into_iter().map(|owner| (owner, false));
        let waiters = owners.waiters.into_iter().map(|owner| (owner, true));
        // Holders last: an owner that does both is recorded as a holder.
        for (owner, waits) in waiters.chain(holders) {
            let known = before.remove(&owner).filter(|party| party.waits == waits);
            let party = known.unwrap_or_else(|| Party {
                client: (owner.client() != Some(client)).then(|| client.to_string()),
                since: now.wall,
                waits,
                outlasts_client: false,
            });
            self.parties.insert(owner, party);
        }
    }

    /// Records that the hold of this owner outlasts its client.
    fn unlock_after(&mut self, owner: &OwnerId, permits: u32) {
        let ids = PermitId::of_hold(owner, permits).map(PermitId::to_owner).chain([owner.clone()]);
        for id in ids {
            if let Some(party) = self.parties.get_mut(&id) {
                party.outlasts_client = true;
            }
        }
    }

    /// Removes all owners and requests, after a restart of the clock.
    pub fn reset_after_reboot(&mut self, now: Now) {
        self.item.reset_after_reboot(now);
        self.parties.clear();
    }
}

impl Party {
    /// Returns the client with which the hold or wait ends. `None` if it outlasts its client.
    fn client_of(&self, owner: &OwnerId) -> Option<ClientId> {
        match &self.client {
            _ if self.outlasts_client => None,
            Some(client) => ClientId::from_wire(client),
            None => owner.client(),
        }
    }
}

#[cfg(test)]
mod tests;
