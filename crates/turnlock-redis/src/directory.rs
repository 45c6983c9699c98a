//! What the store does for operators: finds locks, and keeps records of clients. No lock depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{FutureExt, ready};
use redis::Value;
use turnlock_core::{ClientId, Kind, LockName, Moment};

use crate::key_probe::{self, KeyProbe};
use crate::node::Node;
use crate::reply::{CallOptions, Reply, RequestError};
use crate::script_call::ScriptCall;
use crate::store::{Redis, Topology};
use crate::{decode, failure, lua};
use turnlock_store::clock;
use turnlock_store::{Directory, Failure, FoundKeys, ReplyFuture, Search, Sent, StepReply};

impl Directory for Redis {
    /// Scans the keys of all primaries for locks.
    fn find(&self, search: Search, limit: Duration) -> ReplyFuture<FoundKeys> {
        let finder = Finder::new(self.topology.clone(), search, limit);
        async move { Ok(StepReply::new(finder.run().await?, Sent::never())) }.boxed()
    }

    fn kind_of(&self, name: &LockName, limit: Duration) -> ReplyFuture<Option<Kind>> {
        if key_probe::is_auxiliary_key(name.key()) {
            return ready(Ok(StepReply::new(None, Sent::never()))).boxed();
        }
        let (topology, name) = (self.topology.clone(), name.with_kind(Kind::Plain));
        async move {
            let StepReply { value, sent, .. } = probe(&topology, &name, limit).await?;
            Ok(StepReply::new(value.possible_kind(), sent))
        }
        .boxed()
    }

    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        lasts: Duration,
        limit: Duration,
    ) -> ReplyFuture<()> {
        let millis = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        let key = LockName::of_client(client);
        let call = ScriptCall::on(&lua::CLIENT_RECORD_WRITE, &key, &[]).arg((record, millis));
        let (topology, options) = (self.topology.clone(), CallOptions::unreplicated(limit));
        async move {
            let Reply { value, sent, .. } = topology.call(&call, options).await?;
            decode::number(value).map_err(|value| failure::unexpected_reply("a script", &value))?;
            Ok(StepReply::new((), sent))
        }
        .boxed()
    }

    fn client_records(&self, clients: &[ClientId], limit: Duration) -> ReplyFuture<Vec<Option<String>>> {
        let keys = clients.iter().copied().map(LockName::of_client).collect();
        let options = CallOptions::unreplicated(limit);
        self.batch(keys, |key| key, |keys| Ok(read_records(keys)), options, decode_records)
    }
}

fn read_records(keys: &[LockName]) -> ScriptCall {
    let names: Vec<_> = keys.iter().map(LockName::key).collect();
    // The script reads one byte more than the limit, so that a record that is too long is recognised.
    let call = ScriptCall::on_many(&lua::CLIENT_RECORD_READ, &keys[0], &names);
    call.arg(turnlock_store::MAX_RECORD_LEN)
}

fn decode_records(
    _: &ScriptCall,
    Reply { value, sent, .. }: Reply,
) -> Result<StepReply<Vec<Option<String>>>, Failure> {
    let Value::Array(records) = value else { return Err(failure::unexpected_reply("a script", &value)) };
    let decode = |record| match record {
        Value::BulkString(bytes) if !bytes.is_empty() => String::from_utf8(bytes).ok(),
        _ => None,
    };
    Ok(StepReply::new(records.into_iter().map(decode).collect(), sent))
}

/// Keys per `SCAN` request. The server handles no other request meanwhile.
const SCAN_COUNT: usize = 500;

/// Limits of one search: the keys that it scans, and its duration.
const MAX_KEYS: usize = 1_000_000;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Probes in flight at a time.
const CONCURRENT_PROBES: usize = 64;

/// A search in progress.
pub(crate) struct Finder {
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
    pub(crate) fn new(topology: Topology, search: Search, limit: Duration) -> Self {
        let end = clock::now() + TIME_LIMIT;
        Self { topology, search, limit, end, scanned: 0, found: BTreeMap::new(), is_complete: true }
    }

    /// Scans all primaries, one after the other.
    pub(crate) async fn run(mut self) -> Result<FoundKeys, Failure> {
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
            let page = match node.connection.command(&cmd, self.limit).await {
                Ok(Reply { value, .. }) => value,
                Err(RequestError::Refused(error)) => return Err(failure::from_error(error, None)),
                Err(RequestError::Failed(failure)) => return Err(failure),
            };
            let (next, keys) = decode_page(page).map_err(|page| failure::unexpected_reply("SCAN", &page))?;
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
            let kind = probe(topology, &name, limit).await.map(|probe| probe.value.certain_kind());
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
async fn probe(
    topology: &Topology,
    name: &LockName,
    limit: Duration,
) -> Result<StepReply<KeyProbe>, Failure> {
    let options = CallOptions::unreplicated(limit);
    let Reply { value, sent, .. } = topology.call(&key_probe::call(name), options).await?;
    let probe = KeyProbe::decode(value).map_err(|value| failure::unexpected_reply("a script", &value))?;
    Ok(StepReply::new(probe, sent))
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
