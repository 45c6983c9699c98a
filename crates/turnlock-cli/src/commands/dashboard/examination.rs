use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::{Value, json};
use turnlock::Client;
use turnlock::doctor::Finding;
use turnlock_core::error_chain;

use super::history::epoch_millis;
use crate::commands::doctor::FindingObject;
use crate::commands::server_view::ServerView;
use crate::escape::escape_message;

/// The last examination of the store: its servers and the findings of the doctor.
#[derive(Debug, Default)]
pub(super) struct Examination {
    report: Mutex<Value>,
    /// Held while the store is examined, so that many viewers cost one examination.
    running: tokio::sync::Mutex<()>,
}

impl Examination {
    /// Makes the checks that only read, or all checks, which take a second or two and lock names of their own. Returns the report.
    pub(super) async fn examine(&self, client: &Client, all: bool) -> Value {
        let before = self.last();
        let _running = self.running.lock().await;
        let last = self.last();
        // Another viewer has asked meanwhile: its report is as good.
        if last != before && last["all"] == all {
            return last;
        }
        let found = if all { all_checks(client).await } else { overview(client).await };
        let report = or_keep(last, found);
        self.set(report.clone());
        report
    }

    /// Returns the last report, or the first one when its checks are done.
    pub(super) async fn last_or_first(&self) -> Value {
        if self.last().is_null() {
            drop(self.running.lock().await);
        }
        self.last()
    }

    /// Returns the last report; `null` before the first one.
    fn last(&self) -> Value {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, report: Value) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

async fn overview(client: &Client) -> Value {
    match client.overview().await {
        Ok(overview) => {
            let servers: Vec<_> = overview.servers.into_iter().map(ServerView::new).collect();
            let mut findings = overview.findings;
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
            json!({ "at": now(), "all": false, "servers": servers, "findings": objects(&findings) })
        }
        Err(error) => {
            json!({ "all": false, "failed_at": now(), "error": escape_message(&error_chain(&error)) })
        }
    }
}

async fn all_checks(client: &Client) -> Value {
    // Roles and latencies may have changed since the last time. A store that does not tell them has failed.
    let mut report = overview(client).await;
    if report["error"].is_null() {
        report["findings"] = json!(objects(&client.doctor().await.findings));
        report["all"] = json!(true);
    }
    report
}

/// Returns the new report. If its checks failed, that is why the one before is still the last.
fn or_keep(last: Value, mut new: Value) -> Value {
    match last {
        Value::Object(mut kept) if new["findings"].is_null() => {
            kept.extend(["failed_at", "error"].map(|key| (key.to_owned(), new[key].take())));
            Value::Object(kept)
        }
        _ => new,
    }
}

fn objects(findings: &[Finding]) -> Vec<Value> {
    findings.iter().map(|finding| json!(FindingObject::new(finding))).collect()
}

fn now() -> u64 {
    epoch_millis(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_findings_stay_when_the_checks_fail() {
        let found = json!({ "at": 1, "all": true, "servers": [], "findings": [{ "level": "danger" }] });
        let failed = json!({ "all": false, "failed_at": 2, "error": "no reply" });
        assert_eq!(or_keep(Value::Null, failed.clone()), failed);
        let kept = or_keep(found.clone(), failed);
        assert_eq!(
            (&kept["findings"], &kept["at"], &kept["all"]),
            (&found["findings"], &json!(1), &json!(true))
        );
        assert_eq!((&kept["failed_at"], &kept["error"]), (&json!(2), &json!("no reply")));
        assert_eq!(or_keep(kept, found.clone()), found);
    }
}
