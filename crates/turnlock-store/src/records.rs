use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use turnlock_core::{ClientId, Moment};

use crate::activity::{Activity, ActivityRecord, ActivityScope, StoredActivity};

/// The records of clients in memory. Time is an argument: the clock of the store.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Each with when it expires.
    of_clients: HashMap<ClientId, (String, Moment)>,
    /// Each with when it was written.
    activity: BTreeMap<ClientId, (ActivityRecord, Moment)>,
}

impl Records {
    /// See [`Directory::write_client_record`](crate::Directory::write_client_record).
    pub fn write_client_record(&mut self, client: ClientId, record: String, lasts: Duration, now: Moment) {
        self.of_clients.retain(|_, (_, end)| *end > now);
        self.of_clients.insert(client, (record, now + lasts));
    }

    /// See [`Directory::client_records`](crate::Directory::client_records).
    pub fn client_records(&self, clients: &[ClientId], now: Moment) -> Vec<Option<String>> {
        let unexpired = |client| self.of_clients.get(client).filter(|(_, end)| *end > now);
        clients.iter().map(|client| unexpired(client).map(|(record, _)| record.clone())).collect()
    }

    /// See [`Directory::write_activity`](crate::Directory::write_activity). It is stamped with `now`.
    pub fn write_activity(&mut self, client: ClientId, record: Option<ActivityRecord>, now: Moment) {
        self.activity.retain(|_, (record, written)| *written + record.lasts > now);
        match record {
            Some(record) => self.activity.insert(client, (record, now)),
            None => self.activity.remove(&client),
        };
    }

    /// See [`Directory::activity`](crate::Directory::activity). Without a limit of their number.
    pub fn activity(&self, scope: ActivityScope, now: Moment) -> Activity {
        let wanted = self.activity.iter().filter(|(_, (record, written))| {
            (scope == ActivityScope::All || record.is_linked) && *written + record.lasts > now
        });
        let stored = wanted.map(|(client, (record, written))| StoredActivity {
            client: *client,
            written: *written,
            text: record.text.clone(),
        });
        Activity { now, records: stored.collect(), scanned: 0, is_complete: true }
    }
}
