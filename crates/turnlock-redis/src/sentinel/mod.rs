//! The sentinels that monitor a master.

pub(crate) mod failover;
mod report;

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, join3};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use turnlock_core::Moment;

use crate::access::{Access, Address};
use crate::common::Common;
use crate::connection::Connection;
use crate::endpoint::{MasterFinder, ResolvedEndpoint};
use crate::failure;
use crate::lua::ServerMode;
use report::SentinelReport;
use turnlock_store::clock;
use turnlock_store::{Failure, FailureKind};

/// The time limit for the reply of one sentinel.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// The number of query rounds. Each round adds the sentinels that others named.
const MAX_ROUNDS: usize = 3;

/// The most sentinels that are known. In practice there are three to seven, at some addresses each.
const MAX_SENTINELS: usize = 1_000;

/// The sentinels that monitor a master.
///
/// A majority must reply, and the report with the highest epoch counts: a partitioned sentinel may still report the old
/// master, but not with a higher epoch. Once a fail-over is known, no report leads back to an earlier master.
pub(crate) struct Sentinels {
    master: String,
    pub(crate) common: Arc<Common>,
    /// The number of sentinels in the configuration.
    configured: usize,
    connections: Mutex<BTreeMap<Address, Arc<Connection>>>,
    /// The last query: when it began, and its result. Locked during a query.
    last_query: tokio::sync::Mutex<Option<(Moment, Result<ResolvedEndpoint, Failure>)>>,
    known: Mutex<Option<KnownMaster>>,
    /// Increases with every new master. Changed only while `known` is locked.
    epoch: watch::Sender<u64>,
    /// Requests a new query.
    pub(crate) recheck: Arc<Notify>,
}

/// The last known master.
struct KnownMaster {
    address: Address,
    /// The highest epoch that the sentinels reported.
    config_epoch: u64,
    /// Addresses that the master left in the config epoch of its last move.
    previous: Vec<Address>,
}

impl KnownMaster {
    /// Returns `true` if the report has a newer address of the master.
    ///
    /// Of two reports with the same epoch, the first one was right at its time, so an earlier address is never newer.
    fn is_superseded_by(&self, report: &SentinelReport) -> bool {
        report.address != self.address
            && (report.config_epoch > self.config_epoch
                || report.config_epoch == self.config_epoch && !self.previous.contains(&report.address))
    }
}

/// The replies of all sentinels to one query.
#[derive(Default)]
struct Replies {
    reports: Vec<(Address, SentinelReport)>,
    /// The number of sentinels that do not know the master.
    without_master: usize,
    denial: Option<Failure>,
    failures: Vec<String>,
}

impl Sentinels {
    pub(crate) fn new(addresses: Vec<Address>, master: String, access: Access) -> Self {
        let common = Common::new(access, ServerMode::Standalone);
        let sentinels = Self {
            master,
            common,
            configured: addresses.len(),
            connections: Mutex::default(),
            last_query: tokio::sync::Mutex::new(None),
            known: Mutex::default(),
            epoch: watch::Sender::default(),
            recheck: Arc::default(),
        };
        sentinels.add(addresses);
        sentinels
    }

    /// Returns the addresses of all known sentinels.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.connections.lock().keys().cloned().collect()
    }

    /// Adds sentinels. Returns `true` if any of them is new.
    fn add(&self, addresses: Vec<Address>) -> bool {
        let mut connections = self.connections.lock();
        let before = connections.len();
        for address in addresses.into_iter().take(MAX_SENTINELS.saturating_sub(before)) {
            let connect = || Connection::for_queries(&self.common, &address);
            connections.entry(address.clone()).or_insert_with(connect);
        }
        connections.len() > before
    }

    /// Applies a report, unless a newer one is known. Returns the current master.
    fn apply_report(&self, report: SentinelReport) -> ResolvedEndpoint {
        let mut known = self.known.lock();
        let is_first = known.is_none();
        let known = known.get_or_insert_with(|| KnownMaster {
            address: report.address.clone(),
            config_epoch: report.config_epoch,
            previous: Vec::new(),
        });
        let is_newer = known.is_superseded_by(&report);
        if is_newer {
            tracing::info!(master = %self.master, address = %report.address, "master changed");
            if report.config_epoch > known.config_epoch {
                known.previous.clear();
            }
            known.previous.push(std::mem::replace(&mut known.address, report.address));
        } else if report.config_epoch < known.config_epoch {
            tracing::warn!(
                master = %self.master, address = %known.address, epoch = known.config_epoch,
                reported_address = %report.address, reported_epoch = report.config_epoch,
                "ignored an outdated report of the sentinels"
            );
        }
        known.config_epoch = known.config_epoch.max(report.config_epoch);
        if is_first || is_newer {
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
        ResolvedEndpoint { address: known.address.clone(), epoch: *self.epoch.borrow() }
    }

    async fn query_majority(&self) -> Result<SentinelReport, Failure> {
        let mut round = 1;
        loop {
            let replies = self.query_all().await;
            let reports = replies.reports.iter().map(|(_, report)| report);
            let newest = reports.max_by_key(|report| report.config_epoch);
            if let Some(newest) = newest.filter(|_| self.is_majority(&replies.reports)) {
                return Ok(newest.clone());
            }
            // The sentinels that replied may know others.
            let mut found_more = false;
            for (address, _) in &replies.reports {
                found_more |= self.add(self.query_other_sentinels(address).await);
            }
            if !found_more || round == MAX_ROUNDS {
                return Err(self.no_majority(replies));
            }
            round += 1;
        }
    }

    fn is_majority(&self, reports: &[(Address, SentinelReport)]) -> bool {
        distinct_sentinels(reports) > self.total(reports) / 2
    }

    /// Counts all sentinels: those in the configuration, or more if a sentinel knows more.
    fn total(&self, reports: &[(Address, SentinelReport)]) -> usize {
        let known_to_them =
            reports.iter().map(|(_, report)| report.others.saturating_add(1)).max().unwrap_or(0);
        known_to_them.max(self.configured)
    }

    /// Queries all sentinels at once, until a majority has replied or all have.
    async fn query_all(&self) -> Replies {
        let connections = self.connections.lock().clone();
        let queries = connections.iter().map(async |(address, connection)| {
            let reply = timeout(REPLY_LIMIT, self.query_one(address, connection)).await;
            let late = || Err(Failure::unavailable(format!("no reply within {REPLY_LIMIT:?}")));
            (address.clone(), reply.unwrap_or_else(|_| late()))
        });
        let mut queries: FuturesUnordered<_> = queries.collect();
        let mut replies = Replies::default();
        while let Some((address, reply)) = queries.next().await {
            match reply {
                Ok(Some(report)) => replies.reports.push((address, report)),
                Ok(None) => replies.without_master += 1,
                Err(failure) if matches!(failure.kind, FailureKind::Denied(_)) => {
                    replies.denial = Some(failure);
                }
                Err(failure) => replies.failures.push(format!("{address}: {failure}")),
            }
            if self.is_majority(&replies.reports) {
                break;
            }
        }
        replies
    }

    /// Queries one sentinel. `None` if it does not know the master.
    async fn query_one(
        &self,
        address: &Address,
        connection: &Arc<Connection>,
    ) -> Result<Option<SentinelReport>, Failure> {
        let cmds = [
            report::query("MASTER", &self.master),
            report::query("GET-MASTER-ADDR-BY-NAME", &self.master),
            redis::cmd("SENTINEL").arg("MYID").take(),
        ];
        // Sent on one connection, and so in this order.
        connection.live().await?;
        let [master, master_address, id] = cmds.each_ref().map(|cmd| connection.command(cmd, REPLY_LIMIT));
        let (master, master_address, id) = join3(master, master_address, id).await;
        let (master, master_address) = match master.and_then(|master| Ok((master, master_address?))) {
            Ok(replies) => replies,
            Err(failure) if failure::has_detail(&failure, "No such master") => return Ok(None),
            Err(failure) => return Err(failure::query_failed(address, failure)),
        };
        let sentinel_id = id.ok().and_then(|id| redis::from_redis_value(id.value).ok());
        // A user may lack the permission for it.
        let sentinel_id = sentinel_id.unwrap_or_else(|| address.to_string());
        let report = SentinelReport::read(sentinel_id, &master.value, &master_address.value);
        report.map(Some).ok_or_else(|| Failure::unavailable("the reply cannot be decoded"))
    }

    async fn query_other_sentinels(&self, address: &Address) -> Vec<Address> {
        let connection = self.connections.lock().get(address).cloned();
        let Some(connection) = connection else { return Vec::new() };
        let cmd = report::query("SENTINELS", &self.master);
        match timeout(REPLY_LIMIT, connection.command(&cmd, REPLY_LIMIT)).await {
            Ok(Ok(reply)) => report::others(&reply.value),
            _ => Vec::new(),
        }
    }

    fn no_majority(&self, replies: Replies) -> Failure {
        if replies.reports.is_empty() && replies.without_master > 0 {
            let name = &self.master;
            return Failure::unavailable(format!(
                "the sentinels know no master named {name:?}; use a name from their configuration"
            ));
        }
        if let Some(denial) = replies.denial {
            return denial;
        }
        let (named, total) = (distinct_sentinels(&replies.reports), self.total(&replies.reports));
        let failures = replies.failures.join("; ");
        Failure::unavailable(format!(
            "only {named} of {total} sentinels named the master, and a majority must: {failures}"
        ))
    }
}

/// Counts the sentinels that replied. One that was queried at two addresses counts once.
fn distinct_sentinels(reports: &[(Address, SentinelReport)]) -> usize {
    let ids: BTreeSet<_> = reports.iter().map(|(_, report)| &report.sentinel_id).collect();
    ids.len()
}

impl MasterFinder for Sentinels {
    /// # Errors
    ///
    /// No majority of the sentinels replied.
    fn resolve(&self) -> BoxFuture<'_, Result<ResolvedEndpoint, Failure>> {
        async move {
            let called = clock::now();
            let mut last = self.last_query.lock().await;
            if let Some((began, found)) = &*last
                && *began > called
            {
                return found.clone();
            }
            let began = clock::now();
            let found = self.query_majority().await.map(|report| self.apply_report(report));
            *last = Some((began, found.clone()));
            found
        }
        .boxed()
    }

    fn epoch(&self) -> &watch::Sender<u64> {
        &self.epoch
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the master {:?}", self.master)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(port: u16, config_epoch: u64, others: usize) -> SentinelReport {
        by("sentinel", port, config_epoch, others)
    }

    fn by(sentinel_id: &str, port: u16, config_epoch: u64, others: usize) -> SentinelReport {
        let address = Address::tcp("127.0.0.1", port);
        SentinelReport { sentinel_id: sentinel_id.to_owned(), address, config_epoch, others }
    }

    fn three() -> Sentinels {
        let addresses = (1..=3).map(|port| Address::tcp("127.0.0.1", port)).collect();
        Sentinels::new(addresses, "m".to_owned(), Access::for_tests())
    }

    #[tokio::test]
    async fn a_report_of_an_earlier_epoch_is_ignored() {
        let sentinels = three();
        let first = sentinels.apply_report(report(7000, 1, 2));
        let second = sentinels.apply_report(report(7001, 2, 2));
        assert!(second.epoch > first.epoch);
        assert_eq!(sentinels.apply_report(report(7000, 1, 2)), second);
        assert_eq!(sentinels.apply_report(report(7001, 3, 2)), second);
        // Older than the highest epoch, although newer than the last move.
        assert_eq!(sentinels.apply_report(report(7000, 2, 2)), second);
        // A sentinel that leads a fail-over reports the new epoch, and for a while the old address.
        assert_eq!(sentinels.apply_report(report(7000, 3, 2)), second);
        let back = sentinels.apply_report(report(7000, 4, 2));
        assert!(back.epoch > second.epoch && back.address == first.address);
    }

    #[tokio::test]
    async fn sentinels_that_others_name_are_limited() {
        let sentinels = three();
        for host in ["a", "b"] {
            sentinels.add((1..60_000).map(|port| Address::tcp(host, port)).collect());
            assert_eq!(sentinels.addresses().len(), MAX_SENTINELS);
        }
    }

    #[tokio::test]
    async fn a_majority_is_of_all_sentinels_that_any_sentinel_knows() {
        let sentinels = three();
        let from = |port| Address::tcp("127.0.0.1", port);
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2))]));
        assert!(sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2)), (from(2), by("b", 7000, 1, 2))]));
        // One of the two knows five.
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2)), (from(2), by("b", 7000, 1, 4))]));
        // A sentinel at two addresses counts once.
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, 2)), (from(2), by("a", 7000, 1, 2))]));
        // A number that no sentinel knows.
        assert!(!sentinels.is_majority(&[(from(1), by("a", 7000, 1, usize::MAX))]));
    }
}
