use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use tokio::time::{Instant, timeout_at};
use turnlock::doctor::{Finding, Level, Overview};
use turnlock::{Client, Error, Inspection};
use turnlock_core::error_chain;

use super::state::State;
use crate::arguments::StoreArguments;
use crate::commands::doctor::FindingObject;
use crate::commands::lock_view::{HolderView, LockView};
use crate::commands::server_view::{self, ServerView};
use crate::commands::{owner_name, reject_memory};
use crate::duration::format_short;
use crate::escape::{escape, escape_message};
use crate::status_arguments::StatusArguments;
use crate::{exit_code, store};

/// The most locks that are counted, as in `ls`.
const MAX_LOCKS: usize = 1_000;

/// What is known of a store, and the state that follows from it.
///
/// Serializes to the object of `--json`. Every field must be documented in `docs/program-json.md`.
#[derive(Debug, Serialize)]
pub(super) struct StoreStatus {
    pub(super) store: String,
    pub(super) state: State,
    /// Why the state is not OK, the worst first.
    problems: Vec<String>,
    servers: Vec<ServerView>,
    /// The number of locks that were found.
    pub(super) locks: Option<usize>,
    /// `false` if there may be more locks.
    locks_complete: Option<bool>,
    pub(super) oldest: Option<OldestHold>,
    #[serde(serialize_with = "finding_objects")]
    findings: Vec<Finding>,
    /// The parts of the line, each with its state, the worst first.
    #[serde(skip)]
    pub(super) items: Vec<(State, String)>,
}

/// The oldest hold of those whose age is known. A lock that is kept by `--at-least` does not count.
#[derive(Debug, Serialize)]
pub(super) struct OldestHold {
    name: String,
    #[serde(rename = "held_ms", serialize_with = "millis")]
    pub(super) held: Duration,
    holder: HolderView,
}

impl StoreStatus {
    /// Checks a store. Takes at most the time-out.
    pub(super) async fn check(store: &StoreArguments, arguments: &StatusArguments) -> Self {
        let mut status = Self {
            store: store::printable_url(store),
            state: State::Ok,
            problems: Vec::new(),
            servers: Vec::new(),
            locks: None,
            locks_complete: None,
            oldest: None,
            findings: Vec::new(),
            items: Vec::new(),
        };
        let deadline = Instant::now() + arguments.timeout;
        match timeout_at(deadline, connect(store)).await {
            Err(_) => status.add_time_out(arguments.timeout),
            Ok(Err(error)) => status.add_error(&error),
            Ok(Ok(client)) => {
                let overview = timeout_at(deadline, client.overview());
                let locks = timeout_at(deadline, find_locks(&client));
                let (overview, locks) = tokio::join!(overview, locks);
                match overview {
                    Err(_) => status.add_time_out(arguments.timeout),
                    Ok(Err(error)) => status.add_error(&error.into()),
                    Ok(Ok(overview)) => status.add_overview(overview, arguments),
                }
                match locks {
                    Err(_) => {
                        let reason = format!("not within {}", format_short(arguments.timeout));
                        status.add_uncounted_locks(&reason, arguments);
                    }
                    Ok(Err(error)) if status_of(&error) == State::Critical && !is_denied(&error) => {
                        status.add_error(&error);
                    }
                    Ok(Err(error)) => status.add_uncounted_locks(&error_chain(error.as_ref()), arguments),
                    Ok(Ok((locks, is_complete))) => status.add_locks(locks, is_complete, arguments),
                }
                status.add_findings();
            }
        }
        status.items.sort_by_key(|(state, _)| Reverse(*state));
        status.state = status.items.first().map_or(State::Unknown, |(state, _)| *state);
        let problems = status.items.iter().filter(|(state, _)| *state != State::Ok);
        status.problems = problems.map(|(_, text)| text.clone()).collect();
        status
    }

    /// The latency of the slowest server.
    pub(super) fn latency(&self) -> Option<Duration> {
        self.servers.iter().filter_map(|server| server.latency).max()
    }

    fn add(&mut self, state: State, text: impl Into<String>) {
        let item = (state, text.into());
        // A failure of two requests is one problem.
        if !self.items.contains(&item) {
            self.items.push(item);
        }
    }

    fn add_time_out(&mut self, timeout: Duration) {
        self.add(State::Critical, format!("no reply within {}", format_short(timeout)));
    }

    fn add_error(&mut self, error: &anyhow::Error) {
        self.add(status_of(error), escape_message(&error_chain(error.as_ref())));
    }

    fn add_overview(&mut self, overview: Overview, arguments: &StatusArguments) {
        let Overview { servers, mut findings, .. } = overview;
        findings.retain(|finding| !arguments.ignore.contains(&finding.topic));
        self.findings = findings;
        self.servers = servers.into_iter().map(ServerView::new).collect();
        let failures: Vec<_> = self.servers.iter().filter_map(ServerView::failure).collect();
        for failure in failures {
            self.add(State::Critical, failure);
        }
        for fact in server_view::describe(&self.servers, &self.store) {
            self.add(State::Ok, fact);
        }
        if let Some(latency) = self.latency() {
            self.add(State::Ok, format!("{:.2} ms", latency.as_secs_f64() * 1e3));
        }
    }

    fn add_locks(&mut self, locks: Vec<LockView>, is_complete: bool, arguments: &StatusArguments) {
        (self.locks, self.locks_complete) = (Some(locks.len()), Some(is_complete));
        let at_least = if is_complete { "" } else { "at least " };
        let noun = if locks.len() == 1 { "lock" } else { "locks" };
        self.add(State::Ok, format!("{at_least}{} {noun} held", locks.len()));
        self.oldest = OldestHold::of(locks, SystemTime::now());
        let Some(oldest) = &self.oldest else { return };
        let is_older = |limit: Option<Duration>| limit.is_some_and(|limit| oldest.held > limit);
        let state = if is_older(arguments.crit_older_than) {
            State::Critical
        } else if is_older(arguments.warn_older_than) {
            State::Warning
        } else {
            State::Ok
        };
        let text = oldest.to_string();
        self.add(state, text);
    }

    /// Without its locks, a store is fine unless their age was to be checked.
    fn add_uncounted_locks(&mut self, reason: &str, arguments: &StatusArguments) {
        let is_needed = arguments.warn_older_than.or(arguments.crit_older_than).is_some();
        let state = if is_needed { State::Unknown } else { State::Ok };
        self.add(state, format!("locks not counted: {}", escape_message(reason)));
    }

    /// Adds the worst finding. They are sorted, the worst first.
    fn add_findings(&mut self) {
        let Some(worst) = self.findings.first() else { return };
        let state = match worst.level {
            Level::Fine => return self.add(State::Ok, "doctor: fine"),
            Level::Warning => State::Warning,
            Level::Danger => State::Critical,
            _ => return self.add(State::Ok, "doctor: not all could be checked"),
        };
        let server = worst.server.as_deref().filter(|server| !self.store.contains(server));
        let server = server.map(|server| format!(" of {}", escape(server))).unwrap_or_default();
        let others = self.findings.iter().filter(|finding| finding.level >= Level::Warning).count() - 1;
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        let level = worst.level.to_string().to_lowercase();
        let text = format!("doctor: {level} ({}{server}){others}", worst.topic);
        self.add(state, text);
    }
}

impl OldestHold {
    fn of(locks: Vec<LockView>, now: SystemTime) -> Option<Self> {
        let holds = locks.into_iter().flat_map(|LockView { name, holders, .. }| {
            holders.into_iter().map(move |holder| (name.clone(), holder))
        });
        let (since, name, holder) = holds
            .filter(|(_, holder)| holder.kept_until.is_none())
            .filter_map(|(name, holder)| Some((holder.since?, name, holder)))
            .min_by_key(|hold| hold.0)?;
        Some(Self { name, held: now.duration_since(since).unwrap_or_default(), holder })
    }
}

impl std::fmt::Display for OldestHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HolderView { owner, host, pid, label, .. } = &self.holder;
        let identity = owner_name::identity(host.as_deref(), *pid, label.as_deref());
        let holder = owner_name::short(identity.as_deref(), owner);
        write!(f, "oldest {} held for {} by {holder}", escape(&self.name), format_short(self.held))
    }
}

async fn connect(store: &StoreArguments) -> anyhow::Result<Client> {
    reject_memory(store)?;
    // Nothing is created: the path may be wrong.
    if let Some(path) = store::missing_file(store) {
        let path = escape(&path);
        anyhow::bail!("the store {path} does not exist: check the path. The first lock creates it");
    }
    store::connect_one(store, Client::builder()).await
}

/// Finds the held locks. Returns also whether these are all.
async fn find_locks(client: &Client) -> anyhow::Result<(Vec<LockView>, bool)> {
    let mut found = client.find("*", MAX_LOCKS).await?;
    found.items.retain(Inspection::is_locked);
    Ok((LockView::load(client, found.items).await?, found.is_complete))
}

/// The state of a store that fails with this error. A wrong setting tells nothing about the store.
fn status_of(error: &anyhow::Error) -> State {
    match exit_code::code_of(error) {
        exit_code::UNAVAILABLE | exit_code::DENIED => State::Critical,
        _ => State::Unknown,
    }
}

fn is_denied(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Denied { .. }))
}

fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
}

fn finding_objects<S: Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(findings.iter().map(FindingObject::new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lock_view::tests::{held, kept};

    #[test]
    fn the_oldest_hold_is_named_and_escaped() {
        let (mut young, old) = (held("young"), held("old\n"));
        young.holders[0].since = None;
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(134_500);
        let oldest = OldestHold::of(vec![young.clone(), old], now).expect("an age is known");
        assert_eq!(oldest.to_string(), "oldest old\\n held for 2m 13s by web-1:42 (deploy.sh) 07070707…:12");
        assert!(OldestHold::of(vec![young, kept("report")], now).is_none());
    }
}
