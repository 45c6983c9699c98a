//! What endangers locks on a server, in plain words. See [`Client::doctor`](crate::Client::doctor).
//!
//! Reading is thin; each judgement is a pure function of what was read.

mod clocks;
mod connections;
mod course;
mod eviction;
mod examinee;
mod finding;
mod habits;
mod info;
mod latency;
mod persistence;
mod probe;
mod reading;
mod replication;
mod report;
mod rights;

use std::sync::Arc;

use futures_util::future::join_all;

pub(crate) use examinee::{Examinee, Unanswered};
pub use finding::{Finding, Level, Topic};
pub use report::Report;

use crate::engine::Shared;
use habits::Habits;
use probe::Probe;
use reading::Reading;

/// Looks at every master of the store. The names of what is tried begin with `names`.
pub(crate) async fn examine(shared: &Arc<Shared>, names: Option<&str>) -> Report {
    let examinees = match shared.backend.examinees().await {
        Ok(examinees) => examinees,
        Err(failure) => {
            let text = format!(
                "The store cannot be reached: {failure}. Nothing can be locked, and what is held is lost when its lease \
                 ends. See to the network, the servers and the URL."
            );
            return Report::new(vec![Finding::new(Level::Danger, Topic::Server, text)]);
        }
    };
    if examinees.is_empty() {
        let text = shared.backend.about();
        return Report::new(vec![Finding::new(Level::Fine, Topic::Server, text)]);
    }
    let readings = join_all(examinees.iter().cloned().map(Reading::of)).await;
    let habits = Habits::of(&shared.settings);
    let mut findings: Vec<_> = readings.iter().flat_map(|reading| judge(reading, &habits)).collect();
    findings.extend(clocks::between(&readings));
    let probe = Arc::new(Probe::new(shared, &examinees, names));
    let needs = probe.needs(&readings);
    findings.extend(rights::judge(&probe.run().await, &needs));
    Report::new(findings)
}

/// All that can be said of one server by itself.
fn judge(reading: &Reading, habits: &Habits) -> Vec<Finding> {
    let mut findings = reading.gaps();
    findings.extend(persistence::judge(reading));
    findings.extend(replication::judge(reading, habits));
    findings.extend(eviction::judge(reading));
    findings.extend(clocks::judge(reading));
    findings.extend(latency::judge(reading, habits));
    findings.extend(connections::judge(reading));
    findings.into_iter().map(|finding| finding.at(&reading.address)).collect()
}
