//! A look at many keys, to find those that are locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;
use turnlock_core::{Kind, LockName, Moment};

use super::arrival::{Arrival, Delivery};
use super::key_look::{self, KeyLook};
use super::link::Outcome;
use super::node::Node;
use super::topology::Topology;
use super::{failure, strange};
use crate::backend::{Failure, Search, Sightings};
use crate::clock;

/// How many keys a server looks at for one request: it does nothing else meanwhile.
const COUNT: usize = 500;

/// How many keys are looked at by one search, at the most, and for how long.
const MOST_KEYS: usize = 1_000_000;
const LONGEST: Duration = Duration::from_secs(10);

/// How many keys are being asked about at a time.
const AT_ONCE: usize = 64;

/// One search, under way.
pub(super) struct Finder {
    topology: Topology,
    search: Search,
    /// How long to wait for one answer.
    limit: Duration,
    end: Moment,
    looked_at: usize,
    found: BTreeMap<String, Kind>,
    is_complete: bool,
}

impl Finder {
    pub(super) fn new(topology: Topology, search: Search, limit: Duration) -> Self {
        let end = clock::now() + LONGEST;
        Self { topology, search, limit, end, looked_at: 0, found: BTreeMap::new(), is_complete: true }
    }

    /// Looks at the keys of all masters, one after the other.
    pub(super) async fn run(mut self) -> Result<Sightings, Failure> {
        for node in self.topology.masters() {
            self.look_through(&node).await?;
        }
        Ok(Sightings::new(&self.search, self.found, self.is_complete))
    }

    async fn look_through(&mut self, node: &Arc<Node>) -> Result<(), Failure> {
        let pattern = self.search.names.widened(&self.search.prefix);
        let mut cursor = b"0".to_vec();
        loop {
            if self.found.len() > self.search.at_most
                || self.looked_at >= MOST_KEYS
                || clock::now() >= self.end
            {
                self.is_complete = false;
                return Ok(());
            }
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(COUNT);
            let page = match node.link.command(&cmd, self.limit).await? {
                Outcome::Answered(page, _) => page,
                Outcome::Refused(error) => return Err(failure::from_error(error, None)),
                Outcome::Unanswered(failure) => return Err(failure),
            };
            let (next, keys) = decode_page(page).map_err(|page| strange(&page))?;
            self.looked_at += COUNT;
            self.sort_out(keys).await;
            if next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Keeps those keys that are locks. What is gone by now, or cannot be looked at, is left out.
    async fn sort_out(&mut self, keys: Vec<String>) {
        let (topology, limit) = (&self.topology, self.limit);
        let is_new = |key: &String| {
            self.search.wants(key) && !key_look::is_of_another(key) && !self.found.contains_key(key)
        };
        // As a plain lock, which may have any name also in a cluster.
        let names =
            keys.into_iter().filter(is_new).filter_map(|key| LockName::of(Kind::Plain, "", &key).ok());
        let looks = names.map(|name| async move {
            let look = look_at(topology, &name, limit).await.map(|look| look.held());
            (name, look)
        });
        let mut looks = futures_util::stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let mut found = Vec::new();
        let mut is_complete = true;
        while let Some((name, look)) = looks.next().await {
            match look {
                Ok(Some(kind)) => found.push((name.key().to_owned(), kind)),
                Ok(None) => {}
                Err(failure) => {
                    tracing::debug!(key = name.key(), %failure, "a key could not be looked at");
                    is_complete &= !failure.is_worth_a_retry();
                }
            }
        }
        drop(looks);
        self.found.extend(found);
        self.is_complete &= is_complete;
    }
}

/// What stands at the key of a name.
pub(super) async fn look_at(
    topology: &Topology,
    name: &LockName,
    limit: Duration,
) -> Result<KeyLook, Failure> {
    let Arrival { value, .. } = topology.run(&key_look::look(name), Delivery::plain(limit)).await?;
    KeyLook::decode(value).map_err(|value| strange(&value))
}

/// Where to go on, and the keys that are text: a lock has no other.
fn decode_page(page: Value) -> Result<(Vec<u8>, Vec<String>), Value> {
    let Value::Array(parts) = &page else { return Err(page) };
    let [Value::BulkString(cursor), Value::Array(keys)] = &parts[..] else { return Err(page) };
    let text = |key: &Value| match key {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    Ok((cursor.clone(), keys.iter().filter_map(text).collect()))
}
