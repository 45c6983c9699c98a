//! A simulated server: the models of the core, a clock that can be wrong, and a replica.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use turnlock_core::model::{Now, Reply, Step};
use turnlock_core::{ClientId, Kind, LockName, Moment, OwnerId};
use turnlock_store::row::{self, Executed, Row};
use turnlock_store::{Failure, Records, clock};

/// Rows in an order that is the same in each run.
type Rows = HashMap<Box<str>, Row, BuildHasherDefault<DefaultHasher>>;

/// A server, with the log of what it has executed.
#[derive(Clone, Default)]
pub(super) struct Server {
    rows: Rows,
    /// What clients announce. A replica has it too.
    pub(super) records: Records,
    /// What it has executed, since a moment ago. `None` if no replica needs it.
    log: Option<Log>,
    pub(super) is_down: bool,
    pub(super) is_loading: bool,
    /// Refuses writes.
    pub(super) is_replica: bool,
    /// How much its clock is ahead, in microseconds.
    pub(super) ahead: i64,
    /// How much faster its clock runs, in microseconds per second.
    pub(super) drift: i64,
}

/// What a server has executed.
#[derive(Clone, Default)]
struct Log {
    /// The rows before the first entry.
    base: Rows,
    /// The number of entries before the first one.
    before: usize,
    entries: Vec<Entry>,
}

/// The age of entries that no replica or snapshot lacks.
const OLD: Duration = Duration::from_secs(30);

/// Steps that were executed.
#[derive(Clone)]
struct Entry {
    steps: Vec<Step>,
    client: ClientId,
    now: Now,
    /// When it was executed, by the clock of the simulation.
    executed: Moment,
}

impl Server {
    /// A server whose clock is faster by so many microseconds per second.
    pub(super) fn new(drift: i64, needs_log: bool) -> Self {
        Self { drift, log: needs_log.then(Log::default), ..Self::default() }
    }

    /// The time by the clock of this server.
    pub(super) fn now(&self) -> Now {
        let now = clock::both();
        let drifted = i64::try_from(now.moment.as_micros()).unwrap_or(0) / 1_000 * self.drift / 1_000;
        let shift = |micros: u64| micros.saturating_add_signed(self.ahead + drifted);
        Now { moment: Moment::from_micros(shift(now.moment.as_micros())), wall: shift(now.wall) }
    }

    /// Fails if it executes nothing.
    pub(super) fn check_ready(&self) -> Result<(), Failure> {
        if self.is_loading {
            return Err(Failure::unavailable("LOADING the data set is being loaded"));
        }
        if self.is_replica {
            return Err(Failure::unavailable("READONLY a replica"));
        }
        Ok(())
    }

    /// Executes steps, as a master or not at all.
    ///
    /// Also returns the owners that were removed from the queue of a fair lock, without a step of their own.
    pub(super) fn execute(
        &mut self,
        steps: Vec<Step>,
        client: ClientId,
    ) -> Result<(Executed, Vec<OwnerId>), Failure> {
        self.check_ready()?;
        let (now, waiters) = (self.now(), self.fair_waiters(&steps));
        let executed = row::execute(&mut self.rows, &steps, now, client)?;
        let purged = self.purged(waiters, &steps);
        if let Some(log) = &mut self.log {
            log.push(Entry { steps, client, now, executed: clock::now() });
        }
        Ok((executed, purged))
    }

    /// The waiters of the fair locks in these steps.
    fn fair_waiters(&mut self, steps: &[Step]) -> Vec<(Box<str>, Vec<OwnerId>)> {
        let mut keys: Vec<&str> =
            steps.iter().filter(|step| step.kind() == Kind::Fair).map(|step| step.name().key()).collect();
        keys.dedup();
        keys.into_iter()
            .filter_map(|key| Some((key.into(), self.rows.get_mut(key)?.owners().waiters)))
            .filter(|(_, waiters)| !waiters.is_empty())
            .collect()
    }

    /// The former waiters that neither wait nor hold the lock nor have left.
    fn purged(&mut self, before: Vec<(Box<str>, Vec<OwnerId>)>, steps: &[Step]) -> Vec<OwnerId> {
        let mut purged = Vec::new();
        for (key, mut waiters) in before {
            let now = self.rows.get_mut(&key).map(Row::owners).unwrap_or_default();
            let has_left = |owner: &OwnerId| {
                steps.iter().any(|step| matches!(step, Step::Release(claim) if claim.owner == *owner))
            };
            waiters.retain(|owner| {
                !now.waiters.contains(owner) && !now.holders.contains(owner) && !has_left(owner)
            });
            purged.append(&mut waiters);
        }
        purged
    }

    /// The free permits of a semaphore.
    pub(super) fn available(&mut self, name: LockName) -> Option<i64> {
        let (now, any) = (self.now(), ClientId::from_random([0; 16]));
        let executed = row::execute(&mut self.rows, &[Step::Inspect(name)], now, any).ok()?;
        match executed.replies.into_iter().next()?.ok()? {
            Reply::Snapshot(snapshot) => snapshot.number,
            _ => None,
        }
    }

    /// Returns a server with the first `count` entries of the log. Its clock is that of this one.
    pub(super) fn replay(&self, count: usize) -> Self {
        let mut log = self.log.clone().unwrap_or_default();
        log.entries.truncate(count.saturating_sub(log.before));
        let mut rows = log.base.clone();
        log.entries.iter().for_each(|entry| entry.replay(&mut rows));
        let records = self.records.clone();
        Self { rows, records, ahead: self.ahead, drift: self.drift, log: Some(log), ..Self::default() }
    }

    /// The number of entries that were executed `ago` or earlier.
    pub(super) fn executed_until(&self, ago: Duration) -> usize {
        let until = clock::now() - ago;
        self.log
            .as_ref()
            .map_or(0, |log| log.before + log.entries.partition_point(|entry| entry.executed <= until))
    }

    /// The number of entries that were executed.
    pub(super) fn executed(&self) -> usize {
        self.log.as_ref().map_or(0, |log| log.before + log.entries.len())
    }

    /// Deletes all data.
    pub(super) fn lose_data(&mut self) {
        self.rows.clear();
        self.records = Records::default();
        self.log = self.log.take().map(|_| Log::default());
    }

    /// The keys that are held or have waiters, in order. The next request for a lock removes dead ones.
    pub(super) fn left(&mut self, ignores_dead_waiters: bool) -> Vec<String> {
        let now = self.now();
        let is_left = |row: &mut Row| {
            let has_waiters = !row.owners().waiters.is_empty();
            let is_waiting = has_waiters && (!ignores_dead_waiters || row.remembered_kind(now).is_some());
            is_waiting || row.held_kind(now).is_some()
        };
        let left = self.rows.iter_mut().filter_map(|(key, row)| is_left(row).then(|| key.to_string()));
        let mut left: Vec<_> = left.collect();
        left.sort();
        left
    }
}

impl Log {
    fn push(&mut self, entry: Entry) {
        let old = entry.executed - OLD;
        self.entries.push(entry);
        // Rarely, since all entries move.
        if self.entries.len().is_multiple_of(256) {
            let count = self.entries.partition_point(|entry| entry.executed <= old);
            self.entries.drain(..count).for_each(|entry| entry.replay(&mut self.base));
            self.before += count;
        }
    }
}

impl Entry {
    /// What the master executed once, its replicas execute too.
    fn replay(&self, rows: &mut Rows) {
        let _ = row::execute(rows, &self.steps, self.now, self.client);
    }
}
