use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use turnlock_core::model::PermitId;
use turnlock_core::wait_graph::{self, Cycle, Held, Wait};
use turnlock_core::{self as core, ClientId, Moment, OwnerId};
use turnlock_store::Activity;

use super::deadlock::Deadlock;
use super::record::{HeldRecord, HoldRecord, Record, WaitRecord, kind_of};
use super::waiter::{HeldLock, Waiter, Waits};
use crate::Kind;
use crate::clock;

/// What one client has announced, and how long ago.
#[derive(Clone, Debug)]
pub(crate) struct ClientActivity {
    pub(crate) client: ClientId,
    pub(crate) record: Record,
    age: Duration,
}

/// What all clients of a store have announced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Situation {
    pub(crate) clients: Vec<ClientActivity>,
    is_complete: bool,
}

/// Waits of which each waits for what the next one holds, and the last for what the first one does.
pub(crate) struct WaitCycle<'a> {
    /// Each with its client.
    pub(crate) waits: Vec<(&'a ClientActivity, &'a WaitRecord)>,
    /// It is a deadlock, if all of this is held as announced.
    pub(crate) is_certain: bool,
}

impl<'a> WaitCycle<'a> {
    /// Returns for each wait the holds of the next one that make it wait for certain.
    pub(crate) fn awaited_holds(&self) -> Vec<Vec<&'a HeldRecord>> {
        let next = self.waits.iter().cycle().skip(1);
        let pairs = self.waits.iter().zip(next);
        let holds = pairs.map(|((_, wait), (_, next))| {
            next.holds.iter().filter(|held| held.key == wait.key && held.exact && !held.fixed).collect()
        });
        holds.collect()
    }

    pub(crate) fn to_deadlock(&self, reader: &Reader<'_>) -> Deadlock {
        let waiters = self.waits.iter().filter_map(|(client, wait)| reader.waiter(client, wait)).collect();
        Deadlock { waiters, is_certain: self.is_certain }
    }
}

impl Situation {
    /// Parses the records of a store, and leaves out those that are none.
    pub(crate) fn new(activity: &Activity) -> Self {
        let Activity { now, records, .. } = activity;
        let clients = records.iter().filter_map(|stored| {
            let (client, age) = (stored.client, now.since(stored.written));
            Some(ClientActivity { client, record: Record::parse(client, &stored.text)?, age })
        });
        Self { clients: clients.collect(), is_complete: activity.is_complete }
    }

    fn waits(&self) -> impl Iterator<Item = (&ClientActivity, &WaitRecord)> {
        self.clients.iter().flat_map(|client| client.record.waits.iter().map(move |wait| (client, wait)))
    }

    /// Returns the waiters, those that wait longest first.
    pub(crate) fn into_waits(self, reader: &Reader<'_>) -> Waits {
        let mut waiters: Vec<_> =
            self.waits().filter_map(|(client, wait)| reader.waiter(client, wait)).collect();
        waiters.sort_by_key(|waiter| waiter.since);
        let unlisted = self.clients.iter().map(|client| client.record.more_waits);
        Waits { waiters, unlisted: unlisted.fold(0, u64::saturating_add), is_complete: self.is_complete }
    }

    /// Returns what was announced about each key.
    pub(crate) fn by_key(&self) -> SituationByKey<'_> {
        let mut by_key = SituationByKey::default();
        for (client, wait) in self.waits() {
            by_key.waits.entry(&wait.key).or_default().push((client, wait));
        }
        for client in &self.clients {
            for hold in &client.record.holds {
                by_key.holds.entry(&hold.key).or_default().push((client, hold));
            }
        }
        by_key
    }

    /// `false` if the store has more records than were read.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the cycles of waits, the certain ones first.
    pub(crate) fn cycles(&self) -> Vec<WaitCycle<'_>> {
        let linked: Vec<_> = self.waits().filter(|(_, wait)| !wait.holds.is_empty()).collect();
        let nodes: Vec<_> = linked.iter().filter_map(|(_, wait)| node_of(wait)).collect();
        if nodes.len() < linked.len() {
            // Unknown kinds were removed when the records were parsed.
            return Vec::new();
        }
        let of_waits = |Cycle { members, is_certain }: Cycle| WaitCycle {
            waits: members.into_iter().map(|number| linked[number]).collect(),
            is_certain,
        };
        wait_graph::cycles(&nodes).into_iter().map(of_waits).collect()
    }
}

/// A [`Situation`], for one lock or many.
#[derive(Default)]
pub(crate) struct SituationByKey<'a> {
    waits: HashMap<&'a str, Vec<(&'a ClientActivity, &'a WaitRecord)>>,
    holds: HashMap<&'a str, Vec<(&'a ClientActivity, &'a HoldRecord)>>,
}

impl SituationByKey<'_> {
    /// Returns the keys that clients wait for, sorted, each once with each kind of its waits.
    pub(crate) fn waited_for(&self) -> Vec<(&str, core::Kind)> {
        let kinds =
            self.waits.iter().flat_map(|(key, waits)| waits.iter().map(|(_, wait)| (*key, &*wait.kind)));
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().filter_map(|(key, kind)| Some((key, kind_of(kind)?))).collect()
    }

    /// Returns the waiters for this key, those that wait longest first.
    pub(crate) fn waiters_of(&self, key: &str, reader: &Reader<'_>) -> Vec<Waiter> {
        let for_key = self.waits.get(key).into_iter().flatten();
        let mut waiters: Vec<_> = for_key.filter_map(|(client, wait)| reader.waiter(client, wait)).collect();
        waiters.sort_by_key(|waiter| waiter.since);
        waiters
    }

    /// Returns what was announced of the hold of `owner` on this key, and since when it holds.
    pub(crate) fn hold_of(
        &self,
        key: &str,
        kind: core::Kind,
        owner: &OwnerId,
    ) -> Option<(&HoldRecord, SystemTime)> {
        // The permits of one hold have most of their ids in common.
        let record_of = |owner: &OwnerId| PermitId::record_of(owner).ok_or_else(|| owner.clone());
        let is_same = |hold: &HoldRecord| {
            kind_of(&hold.kind).is_some_and(|held| held.renewal_group() == kind.renewal_group())
                && record_of(&OwnerId::from_wire(&hold.owner)) == record_of(owner)
        };
        let (client, hold) = self.holds.get(key)?.iter().find(|(_, hold)| is_same(hold))?;
        Some((hold, client.ago(hold.held_ms)))
    }
}

fn node_of(wait: &WaitRecord) -> Option<Wait<'_>> {
    let held = wait.holds.iter().filter_map(|held| {
        let kind = kind_of(&held.kind)?;
        Some(Held { key: &held.key, kind, is_exact: held.exact, ends_by_itself: held.fixed })
    });
    Some(Wait {
        key: &wait.key,
        kind: kind_of(&wait.kind)?,
        ends_by_itself: wait.group || wait.left_ms.is_some(),
        holds: held.collect(),
        proven: wait.proven.map(|(first, last)| (Moment::from_micros(first), Moment::from_micros(last))),
    })
}

impl ClientActivity {
    /// Returns the time so many milliseconds before the record was written, by the clock of this process.
    fn ago(&self, millis: u64) -> SystemTime {
        let ago = Duration::from_millis(millis).saturating_add(self.age);
        clock::wall().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The client for which records are shown: names are without its key prefix.
pub(crate) struct Reader<'a> {
    pub(crate) client: ClientId,
    pub(crate) key_prefix: &'a str,
}

impl Reader<'_> {
    fn name_of(&self, key: &str) -> String {
        key.strip_prefix(self.key_prefix).filter(|name| !name.is_empty()).unwrap_or(key).to_owned()
    }

    fn waiter(&self, from: &ClientActivity, wait: &WaitRecord) -> Option<Waiter> {
        let held = wait.holds.iter().filter_map(|held| {
            Some(HeldLock {
                name: self.name_of(&held.key),
                key: held.key.clone(),
                kind: Kind::from_core(kind_of(&held.kind)?),
                owner: OwnerId::from_wire(&held.owner),
            })
        });
        let left = |millis| Duration::from_millis(millis).saturating_sub(from.age);
        Some(Waiter {
            name: self.name_of(&wait.key),
            key: wait.key.clone(),
            kind: Kind::from_core(kind_of(&wait.kind)?),
            owner: OwnerId::from_wire(&wait.owner),
            client: from.client,
            host: from.record.host.clone(),
            pid: from.record.pid,
            label: from.record.label.clone(),
            task: wait.task.clone(),
            since: from.ago(wait.waited_ms),
            time_left: wait.left_ms.map(left),
            call_site: wait.at.clone(),
            holds: held.collect(),
            is_mine: from.client == self.client,
        })
    }
}
