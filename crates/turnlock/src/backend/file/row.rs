use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Transaction};
use serde::{Deserialize, Serialize};
use turnlock_core::model::{Item, Notification, Now, PermitId};
use turnlock_core::{ClientId, Kind, OwnerId};

use super::file_error::FileError;
use super::presence;
use super::store_path::StorePath;

/// The row of one key: the state of its primitive, and the clients that its owners belong to.
///
/// Stored as JSON. The field names are part of the file format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) item: Item,
    parties: BTreeMap<OwnerId, Party>,
    /// The text that was read, to skip a write without a change.
    #[serde(skip)]
    text: Option<String>,
}

/// An owner that holds or waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Party {
    /// The client of the owner, if the owner's id does not contain it, as the id of a permit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// When the hold or wait began: microseconds since 1970.
    since: u64,
    waits: bool,
    /// `true` for a hold with a delayed unlock, which outlasts its client.
    #[serde(default, rename = "kept", skip_serializing_if = "std::ops::Not::not")]
    outlasts_client: bool,
}

impl Row {
    pub(super) fn new(kind: Kind) -> Self {
        Self { item: Item::new(kind), parties: BTreeMap::new(), text: None }
    }

    pub(super) fn read(key: &str, text: String) -> Result<Self, FileError> {
        let row: Self = serde_json::from_str(&text).map_err(|error| FileError::unreadable(key, &error))?;
        Ok(Self { text: Some(text), ..row })
    }

    pub(super) fn load(transaction: &Transaction<'_>, key: &str) -> Result<Option<Self>, FileError> {
        let mut select = transaction.prepare_cached("SELECT row FROM items WHERE key = ?1")?;
        let text: Option<String> = select.query_row([key], |row| row.get(0)).optional()?;
        text.map(|text| Self::read(key, text)).transpose()
    }

    /// Writes the row if it has changed. Deletes it if the item is free.
    pub(super) fn store(
        &mut self,
        transaction: &Transaction<'_>,
        key: &str,
        now: Now,
    ) -> Result<(), FileError> {
        if self.item.is_free(now) {
            if self.text.is_none() {
                return Ok(());
            }
            transaction.prepare_cached("DELETE FROM items WHERE key = ?1")?.execute([key])?;
            return Ok(());
        }
        let text = serde_json::to_string(self).map_err(|error| FileError::unreadable(key, &error))?;
        if self.text.as_ref() == Some(&text) {
            return Ok(());
        }
        let mut replace = transaction.prepare_cached("INSERT OR REPLACE INTO items VALUES (?1, ?2)")?;
        replace.execute([key, &text])?;
        Ok(())
    }

    /// Returns the clients that hold or wait, except `me`. Holds that outlast their clients do not count.
    pub(super) fn others(&self, me: ClientId) -> Vec<ClientId> {
        let mut clients: Vec<_> =
            self.parties.iter().filter_map(|(owner, party)| party.client_of(owner)).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != me);
        clients
    }

    /// Removes the owners of dead clients, whatever their leases.
    pub(super) fn remove_dead_clients(
        &mut self,
        store_path: &StorePath,
        me: ClientId,
        now: Now,
    ) -> Notification {
        let mut dead = self.others(me);
        dead.retain(|client| !presence::is_alive(store_path, *client));
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
    pub(super) fn update_parties(&mut self, client: ClientId, now: Now) {
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

    /// Returns since when this owner holds: microseconds since 1970.
    pub(super) fn since(&self, owner: &OwnerId) -> Option<u64> {
        self.parties.get(owner).filter(|party| !party.waits).map(|party| party.since)
    }

    /// Records that the hold of this owner outlasts its client.
    pub(super) fn unlock_after(&mut self, owner: &OwnerId, permits: u32) {
        let ids = PermitId::of_hold(owner, permits).map(PermitId::to_owner).chain([owner.clone()]);
        for id in ids {
            if let Some(party) = self.parties.get_mut(&id) {
                party.outlasts_client = true;
            }
        }
    }

    pub(super) fn reset_after_reboot(&mut self, now: Now) {
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
