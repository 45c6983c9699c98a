//! Scans the keys of all primaries for locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;
use turnlock_core::{Kind, LockName, Moment};

use super::connection::Outcome;
use super::key_probe::{self, KeyProbe};
use super::node::Node;
use super::reply::{CallOptions, Reply};
use super::topology::Topology;
use super::{failure, unexpected_reply};
use crate::backend::{Failure, FoundKeys, Search};
use crate::clock;

/// Keys per `SCAN` request. The server handles no other request meanwhile.
const SCAN_COUNT: usize = 500;

/// Limits of one search: the keys that it scans, and its duration.
const MAX_KEYS: usize = 1_000_000;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Probes in flight at a time.
const CONCURRENT_PROBES: usize = 64;

/// A search in progress.
pub(super) struct Finder {
    topology: Topology,
    search: Search,
    /// The time-out of one request.
    limit: Duration,
    end: Moment,
    scanned: usize,
    found: BTreeMap<String, Kind>,
    is_complete: bool,
}

impl Finder {
    pub(super) fn new(topology: Topology, search: Search, limit: Duration) -> Self {
        let end = clock::now() + TIME_LIMIT;
        Self { topology, search, limit, end, scanned: 0, found: BTreeMap::new(), is_complete: true }
    }

    /// Scans all primaries, one after the other.
    pub(super) async fn run(mut self) -> Result<FoundKeys, Failure> {
        for node in self.topology.masters() {
            self.scan_node(&node).await?;
        }
        Ok(FoundKeys::new(&self.search, self.found, self.is_complete))
    }

    async fn scan_node(&mut self, node: &Arc<Node>) -> Result<(), Failure> {
        let pattern = self.search.names.widened(&self.search.prefix);
        let mut cursor = b"0".to_vec();
        loop {
            if self.found.len() > self.search.at_most || self.scanned >= MAX_KEYS || clock::now() >= self.end
            {
                self.is_complete = false;
                return Ok(());
            }
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let page = match node.connection.command(&cmd, self.limit).await? {
                Outcome::Replied(page, _) => page,
                Outcome::Refused(error) => return Err(failure::from_error(error, None)),
                Outcome::NoReply(failure) => return Err(failure),
            };
            let (next, keys) = decode_page(page).map_err(|page| unexpected_reply(&page))?;
            self.scanned += SCAN_COUNT;
            self.probe_keys(keys).await;
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Adds the keys that are locks. Keys that are gone by now, or cannot be read, are left out.
    async fn probe_keys(&mut self, keys: Vec<String>) {
        let (topology, limit) = (&self.topology, self.limit);
        let is_new = |key: &String| {
            self.search.matches(key) && !key_probe::is_auxiliary_key(key) && !self.found.contains_key(key)
        };
        // A plain lock may have any name, also in a cluster.
        let names =
            keys.into_iter().filter(is_new).filter_map(|key| LockName::of(Kind::Plain, "", &key).ok());
        let probes = names.map(|name| async move {
            let kind = probe(topology, &name, limit).await.map(|probe| probe.certain_kind());
            (name, kind)
        });
        let mut probes =
            futures_util::stream::iter(probes.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_PROBES);
        let mut found = Vec::new();
        let mut is_complete = true;
        while let Some((name, kind)) = probes.next().await {
            match kind {
                Ok(Some(kind)) => found.push((name.key().to_owned(), kind)),
                Ok(None) => {}
                Err(failure) => {
                    tracing::debug!(key = name.key(), %failure, "key probe failed");
                    is_complete &= !failure.is_retryable();
                }
            }
        }
        drop(probes);
        self.found.extend(found);
        self.is_complete &= is_complete;
    }
}

/// Probes the key of a name.
pub(super) async fn probe(
    topology: &Topology,
    name: &LockName,
    limit: Duration,
) -> Result<KeyProbe, Failure> {
    let Reply { value, .. } = topology.run(&key_probe::call(name), CallOptions::unreplicated(limit)).await?;
    KeyProbe::decode(value).map_err(|value| unexpected_reply(&value))
}

/// Decodes the next cursor and the keys that are UTF-8. Other keys are not locks.
fn decode_page(page: Value) -> Result<(Vec<u8>, Vec<String>), Value> {
    let Value::Array(parts) = &page else { return Err(page) };
    let [Value::BulkString(cursor), Value::Array(keys)] = &parts[..] else { return Err(page) };
    let text = |key: &Value| match key {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    Ok((cursor.clone(), keys.iter().filter_map(text).collect()))
}
