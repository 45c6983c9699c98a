//! A simulated server: the models of the core, a clock that can be wrong, and a replica.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use turnlock_core::model::{Now, Step};
use turnlock_core::{ClientId, Moment};
use turnlock_store::row::{self, Executed, Row};
use turnlock_store::{Failure, clock};

/// Rows in an order that is the same in each run.
type Rows = HashMap<Box<str>, Row, BuildHasherDefault<DefaultHasher>>;

/// A server, with the log of what it has executed.
#[derive(Clone, Default)]
pub(super) struct Server {
    rows: Rows,
    pub(super) log: Vec<Entry>,
    pub(super) is_down: bool,
    pub(super) is_loading: bool,
    /// Refuses writes.
    pub(super) is_replica: bool,
    /// How much its clock is ahead, in microseconds.
    pub(super) ahead: i64,
    /// How much faster its clock runs, in microseconds per second.
    pub(super) drift: i64,
}

/// Steps that were executed.
#[derive(Clone)]
pub(super) struct Entry {
    steps: Vec<Step>,
    client: ClientId,
    now: Now,
    /// When it was executed, by the clock of the simulation.
    executed: Moment,
}

impl Server {
    /// A server whose clock is faster by so many microseconds per second.
    pub(super) fn with_drift(drift: i64) -> Self {
        Self { drift, ..Self::default() }
    }

    /// The time by the clock of this server.
    fn now(&self) -> Now {
        let now = clock::both();
        let drifted = i64::try_from(now.moment.as_micros()).unwrap_or(0) / 1_000 * self.drift / 1_000;
        let shift = |micros: u64| micros.saturating_add_signed(self.ahead + drifted);
        Now { moment: Moment::from_micros(shift(now.moment.as_micros())), wall: shift(now.wall) }
    }

    /// Executes steps, as a master or not at all.
    pub(super) fn execute(&mut self, steps: Vec<Step>, client: ClientId) -> Result<Executed, Failure> {
        if self.is_loading {
            return Err(Failure::unavailable("LOADING the data set is being loaded"));
        }
        if self.is_replica {
            return Err(Failure::unavailable("READONLY a replica"));
        }
        let now = self.now();
        let executed = row::execute(&mut self.rows, &steps, now, client)?;
        self.log.push(Entry { steps, client, now, executed: clock::now() });
        Ok(executed)
    }

    /// Returns a server with the first `count` entries of the log. Its clock is that of this one.
    pub(super) fn replay(&self, count: usize) -> Self {
        let mut replica = Self { ahead: self.ahead, drift: self.drift, ..Self::default() };
        for entry in &self.log[..count.min(self.log.len())] {
            // What the master executed once, its replicas execute too.
            let _ = row::execute(&mut replica.rows, &entry.steps, entry.now, entry.client);
            replica.log.push(entry.clone());
        }
        replica
    }

    /// The number of entries that were executed `ago` or earlier.
    pub(super) fn executed_until(&self, ago: Duration) -> usize {
        let until = clock::now() - ago;
        self.log.partition_point(|entry| entry.executed <= until)
    }

    /// Deletes all data.
    pub(super) fn lose_data(&mut self) {
        self.rows.clear();
        self.log.clear();
    }

    /// The keys that are held, in order.
    pub(super) fn held(&mut self) -> Vec<String> {
        let now = self.now();
        let held = self.rows.iter_mut().filter_map(|(key, row)| row.held_kind(now).map(|_| key.to_string()));
        let mut held: Vec<_> = held.collect();
        held.sort();
        held
    }
}
