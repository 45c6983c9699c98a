//! What the store does for operators: finds locks, and keeps records of clients. No lock depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{FutureExt, ready};
use futures_util::stream;
use redis::Value;
use turnlock_core::{ClientId, Kind, LockName, Moment};

use crate::key_probe::{self, KeyProbe};
use crate::node::Node;
use crate::reply::{CallOptions, Reply};
use crate::script_call::ScriptCall;
use crate::store::{Redis, Topology};
use crate::{decode, failure, lua};
use turnlock_store::clock;
use turnlock_store::{
    Activity, ActivityRecord, ActivityScope, Directory, Failure, FoundKeys, MAX_ACTIVITY_LEN,
    MAX_ACTIVITY_RECORDS, MAX_ACTIVITY_REPLY_LEN, ReplyFuture, Search, Sent, StepReply, StoredActivity,
};

impl Directory for Redis {
    /// Scans the keys of all primaries for locks.
    fn find(&self, search: Search, limit: Duration) -> ReplyFuture<FoundKeys> {
        let (topology, end, found) = (self.topology.clone(), clock::now() + TIME_LIMIT, BTreeMap::new());
        let finder = Finder { topology, search, limit, end, scanned: 0, found, is_complete: true };
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
            let Reply { value, sent, .. } = topology.call(&Arc::new(call), options).await?;
            decode::script_reply::<i64>(&value)?;
            Ok(StepReply::new((), sent))
        }
        .boxed()
    }

    fn client_records(&self, clients: &[ClientId], limit: Duration) -> ReplyFuture<Vec<Option<String>>> {
        let keys = clients.iter().copied().map(LockName::of_client).collect();
        let read = |keys: &[LockName]| {
            let names: Vec<_> = keys.iter().map(LockName::key).collect();
            // The script reads one byte more than the limit, so that a record that is too long is recognised.
            let call = ScriptCall::on_many(&lua::CLIENT_RECORD_READ, &keys[0], &names);
            Ok(call.arg(turnlock_store::MAX_RECORD_LEN))
        };
        let decode = |_: &ScriptCall, Reply { value, sent, .. }: Reply| {
            let records: Vec<Vec<u8>> = decode::script_reply(&value)?;
            let record = |bytes| String::from_utf8(bytes).ok().filter(|text| !text.is_empty());
            Ok(StepReply::new(records.into_iter().map(record).collect(), sent))
        };
        self.batch(keys, |key| key, read, CallOptions::unreplicated(limit), decode)
    }

    fn write_activity(
        &self,
        client: ClientId,
        record: Option<ActivityRecord>,
        limit: Duration,
    ) -> ReplyFuture<Option<Moment>> {
        let millis = |lasts: Duration| u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        let (text, is_linked, lasts) = record.map_or_else(
            || (String::new(), false, 0),
            |record| (record.text, record.is_linked, millis(record.lasts)),
        );
        let call = ScriptCall::on(&lua::ACTIVITY_WRITE, &LockName::of_activity(), &[]);
        let call = call.arg((client.to_string(), text, u8::from(is_linked), lasts));
        let (topology, options) = (self.topology.clone(), CallOptions::unreplicated(limit));
        async move {
            let Reply { value, sent, .. } = topology.call(&Arc::new(call), options).await?;
            let stamp = decode::script_reply::<u64>(&value)?;
            Ok(StepReply::new(Some(Moment::from_micros(stamp)), sent))
        }
        .boxed()
    }

    fn activity(&self, scope: ActivityScope, limit: Duration) -> ReplyFuture<Activity> {
        let call = ScriptCall::on(&lua::ACTIVITY_READ, &LockName::of_activity(), &[]);
        let limits = (MAX_ACTIVITY_RECORDS, MAX_ACTIVITY_LEN, MAX_ACTIVITY_REPLY_LEN);
        let call = call.arg((u8::from(scope == ActivityScope::Linked), limits.0, limits.1, limits.2));
        let (topology, options) = (self.topology.clone(), CallOptions::unreplicated(limit));
        async move {
            let Reply { value, sent, .. } = topology.call(&Arc::new(call), options).await?;
            Ok(StepReply::new(stored_activity(&value)?, sent))
        }
        .boxed()
    }
}

/// Decodes activity records: client, stamp and text of each. Leaves out what turnlock does not write.
pub(crate) fn stored_activity(reply: &Value) -> Result<Activity, Failure> {
    let (now, scanned, is_complete, lines): (u64, usize, bool, Vec<Vec<u8>>) = decode::script_reply(reply)?;
    let record = |line: &[Vec<u8>]| {
        let [client, written, text] = line else { return None };
        let (client, written) = (str::from_utf8(client).ok()?, str::from_utf8(written).ok()?);
        Some(StoredActivity {
            client: ClientId::from_wire(client)?,
            written: Moment::from_micros(written.parse().ok().filter(|written| *written <= now)?),
            text: String::from_utf8(text.clone()).ok()?,
        })
    };
    let records = lines.chunks(3).filter_map(record).collect();
    Ok(Activity { now: Moment::from_micros(now), records, scanned, is_complete })
}

/// Decodes a reply to `SCAN`: the next cursor, and keys.
pub(crate) fn scanned_keys(page: &Value) -> Result<(String, Vec<Vec<u8>>), Failure> {
    redis::from_redis_value_ref(page).map_err(|_| failure::unexpected_reply("SCAN", page))
}

/// Keys per `SCAN` request. The server handles no other request meanwhile.
const SCAN_COUNT: usize = 500;

/// Limits of one search: the keys that it scans, and its duration.
const MAX_KEYS: usize = 1_000_000;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Probes in flight at a time.
const CONCURRENT_PROBES: usize = 64;

/// A search in progress.
struct Finder {
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
    /// Scans all primaries, one after the other.
    async fn run(mut self) -> Result<FoundKeys, Failure> {
        for node in self.topology.masters() {
            self.scan_node(&node).await?;
        }
        Ok(FoundKeys::new(&self.search, self.found, self.is_complete))
    }

    async fn scan_node(&mut self, node: &Arc<Node>) -> Result<(), Failure> {
        let pattern = self.search.names.widened(&self.search.prefix);
        let mut cursor = "0".to_owned();
        loop {
            if self.found.len() > self.search.at_most || self.scanned >= MAX_KEYS || clock::now() >= self.end
            {
                self.is_complete = false;
                return Ok(());
            }
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let page = node.connection.command(&cmd, self.limit).await?.value;
            let (next, keys) = scanned_keys(&page)?;
            self.scanned += SCAN_COUNT;
            self.probe_keys(keys).await;
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// Adds the keys that are locks. Keys that are gone by now, or cannot be read, are left out.
    async fn probe_keys(&mut self, keys: Vec<Vec<u8>>) {
        // A key that is not UTF-8 is not a lock.
        let keys = keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).filter(|key| {
            self.search.matches(key) && !key_probe::is_auxiliary_key(key) && !self.found.contains_key(key)
        });
        // A plain lock may have any name, also in a cluster.
        let names = keys.filter_map(|key| LockName::of(Kind::Plain, "", &key).ok());
        let (topology, limit) = (&self.topology, self.limit);
        let probe = |name: LockName| async move {
            let outcome = probe(topology, &name, limit).await;
            (name, outcome)
        };
        let probes: Vec<_> = names.map(probe).collect();
        let mut probes = stream::iter(probes).buffer_unordered(CONCURRENT_PROBES);
        while let Some((name, probe)) = probes.next().await {
            match probe {
                Ok(probe) => {
                    self.found.extend(probe.value.certain_kind().map(|kind| (name.key().to_owned(), kind)));
                }
                Err(failure) => {
                    tracing::debug!(key = name.key(), %failure, "key probe failed");
                    self.is_complete &= !failure.is_retryable();
                }
            }
        }
    }
}

/// Probes the key of a name.
async fn probe(
    topology: &Topology,
    name: &LockName,
    limit: Duration,
) -> Result<StepReply<KeyProbe>, Failure> {
    let options = CallOptions::unreplicated(limit);
    let Reply { value, sent, .. } = topology.call(&Arc::new(key_probe::call(name)), options).await?;
    Ok(StepReply::new(KeyProbe::decode(&value)?, sent))
}
