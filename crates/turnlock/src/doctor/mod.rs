//! Checks of a store for what endangers its locks: the report of [`Client::doctor`](crate::Client::doctor).
//!
//! A [`Report`] has one [`Finding`] for each check, with what was seen, why it matters and what to do.

mod client_profile;
mod clocks;
mod connections;
mod eviction;
mod fields;
mod finding;
mod latency;
mod persistence;
mod probe;
mod probe_run;
mod replication;
mod report;
mod rights;
mod server_facts;
mod server_probe;

use std::sync::Arc;

use futures_util::future::join_all;

pub use finding::{Finding, Level, Topic};
pub use report::Report;
pub(crate) use server_probe::{ProbeError, ServerProbe};

use crate::engine::Shared;
use client_profile::ClientProfile;
use probe::Probe;
use server_facts::ServerFacts;

/// Examines every master of the store. Test locks have names that begin with `name_prefix`.
///
/// Facts are read first, with plain commands; each check is a pure function of them.
pub(crate) async fn examine(shared: &Arc<Shared>, name_prefix: Option<&str>) -> Report {
    let server_probes = match shared.backend.server_probes().await {
        Ok(server_probes) => server_probes,
        Err(failure) => {
            let text = format!(
                "The store cannot be reached: {failure}. No lock can be acquired, and held locks are lost \
                 when their leases end. Check the network, the servers and the URL."
            );
            return Report::new(vec![Finding::new(Level::Danger, Topic::Server, text)]);
        }
    };
    if server_probes.is_empty() {
        let text = shared.backend.about();
        return Report::new(vec![Finding::new(Level::Fine, Topic::Server, text)]);
    }
    let servers = join_all(server_probes.iter().cloned().map(ServerFacts::read)).await;
    let client_profile = ClientProfile::of(&shared.settings);
    let mut findings: Vec<_> =
        servers.iter().flat_map(|facts| check_server(facts, &client_profile)).collect();
    findings.extend(clocks::compare(&servers));
    let probe = Arc::new(Probe::new(shared, &server_probes, name_prefix));
    let rule_template = probe.rule_template(&servers);
    findings.extend(rights::check(&probe.run().await, &rule_template));
    Report::new(findings)
}

/// Makes all checks that need the facts of one server only.
fn check_server(facts: &ServerFacts, client_profile: &ClientProfile) -> Vec<Finding> {
    let mut findings = facts.unread();
    findings.extend(persistence::check(facts));
    findings.extend(replication::check(facts, client_profile));
    findings.extend(eviction::check(facts));
    findings.extend(clocks::check(facts));
    findings.extend(latency::check(facts, client_profile));
    findings.extend(connections::check(facts));
    findings.into_iter().map(|finding| finding.at(&facts.address)).collect()
}
