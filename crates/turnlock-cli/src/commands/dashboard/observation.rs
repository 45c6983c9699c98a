use std::time::{Duration, Instant};

use serde::Serialize;
use turnlock::{Client, Deadlock, Error};

use crate::commands::lock_view::LockView;

/// The result of one query of the store.
#[derive(Debug, Default)]
pub(super) struct Observation {
    pub(super) locks: Vec<LockView>,
    pub(super) deadlocks: Vec<Deadlock>,
    pub(super) deadlock_search: DeadlockSearch,
    pub(super) is_complete: bool,
    /// How long the query took: leases were read at some moment of it.
    pub(super) took: Duration,
}

/// How much of what clients have announced was searched for deadlocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DeadlockSearch {
    #[default]
    Complete,
    /// More clients have announced something than one request reads.
    Partial,
    /// This user of the store may not read it.
    Denied,
}

impl Observation {
    /// Queries at most `limit` locks. Cancel safe.
    pub(super) async fn query(client: &Client, limit: usize) -> Result<Self, Error> {
        let start = Instant::now();
        let found = client.find("*", limit).await?;
        let (deadlocks, deadlock_search) = match client.search_deadlocks().await {
            Ok((deadlocks, true)) => (deadlocks, DeadlockSearch::Complete),
            Ok((deadlocks, false)) => (deadlocks, DeadlockSearch::Partial),
            Err(Error::Denied { .. }) => (Vec::new(), DeadlockSearch::Denied),
            Err(error) => return Err(error),
        };
        let locks = LockView::load(client, found.items).await?;
        let is_complete = found.is_complete;
        Ok(Self { locks, deadlocks, deadlock_search, is_complete, took: start.elapsed() })
    }
}
