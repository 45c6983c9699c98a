use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Transaction};
use serde::{Deserialize, Serialize};
use turnlock_core::model::{Item, Now, PermitId, Wake};
use turnlock_core::{ClientId, Kind, OwnerId};

use super::place::Place;
use super::presence;
use super::trouble::Trouble;

/// What is written down under one key: the thing, and whose its holds are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) item: Item,
    parties: BTreeMap<OwnerId, Party>,
    /// As it was read.
    #[serde(skip)]
    text: Option<String>,
}

/// One who holds or waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Party {
    /// The client that it belongs to, where the owner's id does not say it: that of a permit does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// When it began, on the wall, in microseconds.
    since: u64,
    waits: bool,
    /// Whether it was meant to outlast its client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    kept: bool,
}

impl Row {
    pub(super) fn new(kind: Kind) -> Self {
        Self { item: Item::new(kind), parties: BTreeMap::new(), text: None }
    }

    pub(super) fn read(key: &str, text: String) -> Result<Self, Trouble> {
        let row: Self = serde_json::from_str(&text).map_err(|error| Trouble::unreadable(key, &error))?;
        Ok(Self { text: Some(text), ..row })
    }

    pub(super) fn load(transaction: &Transaction<'_>, key: &str) -> Result<Option<Self>, Trouble> {
        let mut select = transaction.prepare_cached("SELECT row FROM items WHERE key = ?1")?;
        let text: Option<String> = select.query_row([key], |row| row.get(0)).optional()?;
        text.map(|text| Self::read(key, text)).transpose()
    }

    /// Writes the row back. What is free needs none.
    pub(super) fn store(
        &mut self,
        transaction: &Transaction<'_>,
        key: &str,
        now: Now,
    ) -> Result<(), Trouble> {
        if self.item.is_free(now) {
            if self.text.is_none() {
                return Ok(());
            }
            transaction.prepare_cached("DELETE FROM items WHERE key = ?1")?.execute([key])?;
            return Ok(());
        }
        let text = serde_json::to_string(self).map_err(|error| Trouble::unreadable(key, &error))?;
        if self.text.as_ref() == Some(&text) {
            return Ok(());
        }
        let mut replace = transaction.prepare_cached("INSERT OR REPLACE INTO items VALUES (?1, ?2)")?;
        replace.execute([key, &text])?;
        Ok(())
    }

    /// The clients that hold or wait, but for `me` and for those whose holds outlast them.
    pub(super) fn others(&self, me: ClientId) -> Vec<ClientId> {
        let mut clients: Vec<_> =
            self.parties.iter().filter_map(|(owner, party)| party.client_of(owner)).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != me);
        clients
    }

    /// Ends what those have who have died, whatever its lease.
    pub(super) fn void_the_dead(&mut self, place: &Place, me: ClientId, now: Now) -> Wake {
        let mut dead = self.others(me);
        dead.retain(|client| !presence::is_alive(place, *client));
        if dead.is_empty() {
            return Wake::Nobody;
        }
        tracing::info!(?dead, "what these clients had is free: they have died");
        let Self { item, parties, .. } = self;
        item.void(now, |owner| {
            parties
                .get(owner)
                .and_then(|party| party.client_of(owner))
                .is_some_and(|client| dead.contains(&client))
        })
    }

    /// Notes who has come and who has gone by a step of `client`.
    pub(super) fn settle(&mut self, client: ClientId, now: Now) {
        let parties = self.item.parties();
        let mut before = std::mem::take(&mut self.parties);
        let found = parties.holding.into_iter().map(|owner| (owner, false));
        let found = parties.waiting.into_iter().map(|owner| (owner, true)).chain(found);
        for (owner, waits) in found {
            let known = before.remove(&owner).filter(|party| party.waits == waits);
            let party = known.unwrap_or_else(|| Party {
                client: (owner.client() != Some(client)).then(|| client.to_string()),
                since: now.wall,
                waits,
                kept: false,
            });
            self.parties.insert(owner, party);
        }
    }

    /// Since when this owner holds, on the wall, in microseconds.
    pub(super) fn since(&self, owner: &OwnerId) -> Option<u64> {
        self.parties.get(owner).filter(|party| !party.waits).map(|party| party.since)
    }

    /// Notes that what this owner holds is to outlast its client.
    pub(super) fn keep(&mut self, owner: &OwnerId, permits: u32) {
        let ids = PermitId::of_hold(owner, permits).map(PermitId::to_owner).chain([owner.clone()]);
        for id in ids {
            if let Some(party) = self.parties.get_mut(&id) {
                party.kept = true;
            }
        }
    }

    pub(super) fn begin_anew(&mut self, now: Now) {
        self.item.begin_anew(now);
        self.parties.clear();
    }
}

impl Party {
    /// The client with which this ends: none, if it is to outlast it.
    fn client_of(&self, owner: &OwnerId) -> Option<ClientId> {
        match &self.client {
            _ if self.kept => None,
            Some(client) => ClientId::from_wire(client),
            None => owner.client(),
        }
    }
}
