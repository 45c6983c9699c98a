//! Checks of the servers for what endangers locks.
//!
//! Facts are read first, with plain commands; each check is a pure function of them. Then a probe of every primitive
//! shows which rights the user has, and whether messages arrive.

mod clocks;
mod connections;
mod data_loss;
mod overview;
mod probe;
mod replication;
mod rights;
mod server_facts;

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, try_join_all};
use turnlock_store::{ClientProfile, Examination, Failure, Finding, Level, Overview, ReleaseMessages, Topic};

use crate::Redis;
use crate::store::Topology;
use probe::Probe;
use server_facts::{ServerFacts, ServerProbe};

/// The time limit for a reply to the doctor. Long, because it measures slow servers.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

impl Examination for Redis {
    fn examine<'a>(
        &'a self,
        client: &'a ClientProfile,
        messages: &'a dyn ReleaseMessages,
    ) -> BoxFuture<'a, Vec<Finding>> {
        Box::pin(async move {
            self.findings(client, messages).await.unwrap_or_else(|failure| {
                let text = format!(
                    "The store cannot be reached: {failure}. No lock can be acquired, and held locks are lost \
                     when their leases end. Check the network, the servers and the URL."
                );
                vec![Finding::new(Level::Danger, Topic::Server, text)]
            })
        })
    }

    fn overview<'a>(&'a self, client: &'a ClientProfile) -> BoxFuture<'a, Result<Overview, Failure>> {
        Box::pin(overview::read(self, client))
    }

    fn ping(&self, limit: Duration) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(overview::ping(self, limit))
    }
}

impl Redis {
    /// Examines every master. Fails if the address of one is not known.
    async fn findings(
        &self,
        client: &ClientProfile,
        messages: &dyn ReleaseMessages,
    ) -> Result<Vec<Finding>, Failure> {
        let servers = self.servers(REPLY_LIMIT).await?;
        if servers.is_empty() {
            let text = "No server of this store is known at the moment.";
            return Ok(vec![Finding::new(Level::Fine, Topic::Server, text)]);
        }
        let facts = join_all(servers.iter().map(ServerFacts::read)).await;
        let mut findings: Vec<_> = facts.iter().flat_map(|facts| check_server(facts, client)).collect();
        findings.extend(clocks::compare(&facts));
        let outcomes = Probe::new(self, &servers, client, messages).run().await;
        let is_cluster = matches!(self.topology, Topology::Cluster(_));
        findings.extend(rights::check(&outcomes, client, is_cluster));
        Ok(findings)
    }

    /// Returns every master. Fails if the address of one is not known.
    async fn servers(&self, reply_limit: Duration) -> Result<Vec<ServerProbe>, Failure> {
        let masters = self.topology.masters().into_iter();
        try_join_all(masters.map(|node| ServerProbe::new(node, reply_limit))).await
    }
}

/// Makes all checks that need the facts of one server only.
fn check_server(facts: &ServerFacts, client: &ClientProfile) -> Vec<Finding> {
    let mut findings = facts.unread();
    findings.extend(data_loss::persistence(facts));
    findings.extend(replication::check(facts, client));
    findings.extend(data_loss::eviction(facts));
    findings.extend(clocks::check(facts));
    findings.extend(connections::latency(facts, client));
    findings.extend(connections::version(facts));
    findings.extend(connections::idle_timeout(facts));
    findings.into_iter().map(|finding| finding.at(&facts.address)).collect()
}

/// A client with the default settings.
#[cfg(test)]
fn profile() -> ClientProfile {
    let response_timeout = Duration::from_secs(1);
    ClientProfile {
        key_prefix: String::new(),
        name_prefix: None,
        lease: turnlock_core::Lease::WATCHDOG,
        response_timeout,
        limit: response_timeout,
        replicas: 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::server_facts::ClockSample;
    use super::*;
    use crate::tests::any_reply::{any_text, config};

    /// Names of facts with any values.
    fn any_facts() -> impl Strategy<Value = Vec<(&'static str, String)>> {
        const NAMES: &[&str] = &[
            "role",
            "connected_slaves",
            "min_slaves_good_slaves",
            "aof_enabled",
            "maxmemory",
            "maxmemory_policy",
            "redis_version",
            "valkey_version",
            "save",
            "appendfsync",
            "min-replicas-to-write",
            "min-replicas-max-lag",
            "timeout",
        ];
        vec((select(NAMES), any_text()), 0..8)
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_facts_of_a_server_are_checked(
            info in any_facts(), settings in any_facts(), clock in any::<(i64, i64)>(), replicas in any::<u32>(),
            round_trips in vec(any::<u64>().prop_map(Duration::from_nanos), 0..4),
        ) {
            let info: Vec<_> = info.into_iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
            let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let (ahead_micros, doubt_micros) = clock;
            let facts = ServerFacts {
                clock: Ok(ClockSample { ahead_micros, doubt_micros }),
                round_trips: Ok(round_trips),
                ..ServerFacts::with(&info.concat(), &settings)
            };
            let findings = check_server(&facts, &ClientProfile { replicas, ..profile() });
            prop_assert!(findings.iter().all(|finding| !finding.text.is_empty()));
            let _ = clocks::compare(&[facts, ServerFacts::with("", &[])]);
        }
    }
}
