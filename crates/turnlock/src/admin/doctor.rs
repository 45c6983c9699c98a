//! Checks of a store for what endangers its locks: the report of [`Client::doctor`](crate::Client::doctor).
//!
//! A [`Report`] has one [`Finding`] for each check, with what was seen, why it matters and what to do. The store makes
//! the checks, so they differ: a Redis server has persistence, replication and a clock of its own; a file and the memory
//! of this process have no server to check.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join};
use turnlock_core::LockName;
use turnlock_store::{ClientProfile, ReleaseMessages};
pub use turnlock_store::{Finding, Level, Overview, ServerOverview, ServerRole, Topic};

use crate::Error;
use crate::activity::Deadlock;
use crate::engine::{Engine, Join, Wakeup};
use crate::error::IntoError;

/// The findings of [`Client::doctor`](crate::Client::doctor).
///
/// `Display` prints one paragraph per finding, the worst first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

impl Report {
    fn new(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        Self { findings }
    }

    /// Returns the level of the worst finding.
    pub fn worst(&self) -> Level {
        self.findings.first().map_or(Level::Fine, |finding| finding.level)
    }

    /// Iterates over the findings that need action: warnings and dangers.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.level >= Level::Warning)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paragraphs: Vec<_> = self.findings.iter().map(ToString::to_string).collect();
        f.write_str(&paragraphs.join("\n\n"))
    }
}

/// Lets the store examine itself. Probes have names that begin with `name_prefix`.
pub(crate) async fn examine(engine: &Engine, name_prefix: Option<&str>) -> Report {
    let client = profile(engine, name_prefix);
    let (mut findings, search) =
        join(engine.store.examination().examine(&client, engine), engine.search_deadlocks()).await;
    match search {
        Ok((deadlocks, is_complete)) => {
            findings.extend(deadlocks.iter().filter(|deadlock| deadlock.is_certain).map(deadlock_finding));
            if !is_complete {
                let text =
                    "There are more announced waits than one request reads: not all deadlocks are found.";
                findings.push(Finding::new(Level::Unknown, Topic::Waits, text));
            }
        }
        Err(error) => {
            let text = format!("The announced waits cannot be read, so deadlocks are not found: {error}.");
            findings.push(Finding::new(Level::Unknown, Topic::Waits, text));
        }
    }
    Report::new(findings)
}

fn deadlock_finding(deadlock: &Deadlock) -> Finding {
    let text = format!(
        "Tasks wait for each other, and none of them goes on: {deadlock}. End one of them, and let all acquire locks in \
         one order, or together by a MultiLock."
    );
    Finding::new(Level::Danger, Topic::Waits, text)
}

/// Lets the store describe its servers.
pub(crate) async fn overview(engine: &Engine) -> Result<Overview, Error> {
    let client = profile(engine, None);
    let overview = engine.store.examination().overview(&client).await;
    let mut overview = overview.map_err(|failure| failure.into_error(|| "an overview".to_owned()))?;
    overview.findings = Report::new(overview.findings).findings;
    Ok(overview)
}

/// Makes one round trip.
pub(crate) async fn ping(engine: &Engine) -> Result<(), Error> {
    let ping = engine.store.examination().ping(engine.settings.usual_limit()).await;
    ping.map_err(|failure| failure.into_error(|| "a ping".to_owned()))
}

fn profile(engine: &Engine, name_prefix: Option<&str>) -> ClientProfile {
    let settings = &engine.settings;
    let limit = settings.usual_limit();
    ClientProfile {
        key_prefix: settings.key_prefix.clone(),
        name_prefix: name_prefix.map(str::to_owned),
        lease: settings.watchdog_timeout,
        response_timeout: settings.response_limit(settings.watchdog_timeout).unwrap_or(limit),
        limit,
        replicas: settings.replicas,
    }
}

impl ReleaseMessages for Engine {
    #[expect(clippy::async_yields_async, reason = "the subscription comes first, then the message")]
    fn subscribe<'a>(&'a self, name: &'a LockName, limit: Duration) -> BoxFuture<'a, BoxFuture<'static, ()>> {
        Box::pin(async move {
            let (waiter, _) = self.wait_queues.enter(name, Join::AtEnd, Wakeup::default());
            waiter.set_subscribed();
            let _ = tokio::time::timeout(limit, self.store.subscribe(name)).await;
            // Discards a wake-up from before the subscription.
            let _ = waiter.wakeup.notified().now_or_never();
            Box::pin(async move { waiter.wakeup.notified().await }) as BoxFuture<'static, ()>
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_as_paragraphs_worst_first() {
        let fine = Finding::new(Level::Fine, Topic::Clock, "It is correct.");
        let bad = Finding::new(Level::Danger, Topic::Eviction, "It is wrong.").at("server:1");
        let report = Report::new(vec![fine, bad]);
        assert_eq!(
            report.to_string(),
            "DANGER: eviction of server:1. It is wrong.\n\nfine: clock. It is correct."
        );
        assert_eq!((report.worst(), report.problems().count()), (Level::Danger, 1));
    }
}
