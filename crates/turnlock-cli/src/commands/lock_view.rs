use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use turnlock::{Client, Error, Holder, Identity, Inspection, OwnerId, Role};

use super::fields::{kind_name, millis, timestamp};
use super::owner_name;
use super::wait_view::WaitView;
use crate::escape::escape;
use crate::timestamp::kept_until;

/// The state of one lock, as printed by `ls`, `show` and `watch`.
///
/// Serializes to the object of `--json`. Every field must be documented in `docs/program-json.md`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LockView {
    pub(super) name: String,
    /// `None` if there is no lock of this name.
    pub(super) kind: Option<&'static str>,
    pub(super) locked: bool,
    pub(super) holders: Vec<HolderView>,
    #[serde(rename = "ttl_ms", serialize_with = "millis")]
    pub(super) ttl: Option<Duration>,
    pub(super) queue: Vec<WaiterView>,
    /// The waiters that have announced themselves, those that wait longest first.
    pub(super) waiters: Vec<WaitView>,
    pub(super) token: Option<u64>,
    pub(super) available: Option<i64>,
}

/// A holder of a lock, or a permit that is held.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HolderView {
    pub(super) owner: String,
    pub(super) count: u64,
    pub(super) mode: &'static str,
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) label: Option<String>,
    /// When the client of the holder was created.
    #[serde(serialize_with = "timestamp")]
    pub(super) started: Option<SystemTime>,
    /// When the holder acquired the lock, if that is known.
    #[serde(serialize_with = "timestamp")]
    pub(super) since: Option<SystemTime>,
    /// When a hold with a delayed unlock ends. Its process may have exited.
    #[serde(serialize_with = "timestamp")]
    pub(super) kept_until: Option<SystemTime>,
    #[serde(rename = "ttl_ms", serialize_with = "millis")]
    pub(super) ttl: Option<Duration>,
    /// It seems to make no progress.
    pub(super) stuck: bool,
    /// The task or thread that acquired it.
    pub(super) task: Option<String>,
    pub(super) call_site: Option<String>,
}

/// A waiter in the queue of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct WaiterView {
    pub(super) owner: String,
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) label: Option<String>,
}

impl LockView {
    /// Queries the identities of all owners in `inspections` and builds the views.
    pub(super) async fn load(client: &Client, inspections: Vec<Inspection>) -> Result<Vec<Self>, Error> {
        let owners: Vec<OwnerId> = inspections
            .iter()
            .flat_map(|lock| lock.holders.iter().map(|holder| &holder.owner).chain(&lock.queue))
            .cloned()
            .collect();
        let identities = if owners.is_empty() { Vec::new() } else { client.identities(&owners).await? };
        // One entry per owner, in the order of `owners`.
        let mut identities = identities.into_iter();
        Ok(inspections.into_iter().map(|lock| Self::new(lock, || identities.next().flatten())).collect())
    }

    /// Queries one name. If it is not in use, there may be waiters all the same, as for a semaphore that was never set.
    pub(super) async fn query(client: &Client, name: &str) -> Result<Self, Error> {
        let inspection = client.inspect(name).await?;
        if let Some(lock) = Self::load(client, inspection.into_iter().collect()).await?.pop() {
            return Ok(lock);
        }
        // Who may not read the announced waits sees none of them, as for a lock that is held.
        let waits = client.waits().await.map_or_else(|_| Vec::new(), |waits| waits.waiters);
        let waiters = waits.iter().filter(|waiter| waiter.name == name).map(WaitView::new).collect();
        Ok(Self { waiters, ..Self::absent(name) })
    }

    fn new(inspection: Inspection, mut next_identity: impl FnMut() -> Option<Identity>) -> Self {
        let locked = inspection.is_locked();
        Self {
            kind: Some(kind_name(inspection.kind)),
            locked,
            holders: inspection
                .holders
                .into_iter()
                .map(|holder| HolderView::new(&holder, next_identity()))
                .collect(),
            ttl: inspection.ttl,
            queue: inspection
                .queue
                .into_iter()
                .map(|owner| WaiterView::new(&owner, next_identity()))
                .collect(),
            waiters: inspection.waiters.iter().map(WaitView::new).collect(),
            token: inspection.token,
            available: inspection.available,
            name: inspection.name,
        }
    }

    /// The view of a name that is not in use.
    pub(super) fn absent(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: None,
            locked: false,
            holders: Vec::new(),
            ttl: None,
            queue: Vec::new(),
            waiters: Vec::new(),
            token: None,
            available: None,
        }
    }

    /// The view of this lock after it is released.
    pub(super) fn released(self) -> Self {
        Self { kind: self.kind, token: self.token, ..Self::absent(&self.name) }
    }

    /// Returns `true` if the two differ in more than their times.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        let holders = |lock: &Self| -> Vec<_> {
            let holder = |holder: &HolderView| {
                let identity = (holder.host.clone(), holder.label.clone());
                (holder.owner.clone(), holder.count, holder.mode, identity, holder.kept_until, holder.stuck)
            };
            lock.holders.iter().map(holder).collect()
        };
        let waiters = |lock: &Self| lock.waiters.iter().map(|wait| wait.owner.clone()).collect::<Vec<_>>();
        (self.kind, &self.queue, self.token, self.available)
            != (other.kind, &other.queue, other.token, other.available)
            || holders(self) != holders(other)
            || waiters(self) != waiters(other)
    }

    /// The number of waiters: those in the queue, and others that have announced themselves.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.unqueued().count()
    }

    /// The waiters in the queue of a fair lock, the next one first, each with what it has announced.
    pub(super) fn queued(&self) -> impl Iterator<Item = (&WaiterView, Option<&WaitView>)> {
        let announced: HashMap<_, _> = self.waiters.iter().map(|wait| (&*wait.owner, wait)).collect();
        self.queue.iter().map(move |waiter| (waiter, announced.get(&*waiter.owner).copied()))
    }

    /// The announced waiters that are not in the queue of a fair lock.
    pub(super) fn unqueued(&self) -> impl Iterator<Item = &WaitView> {
        let queued: HashSet<_> = self.queue.iter().map(|waiter| &*waiter.owner).collect();
        self.waiters.iter().filter(move |wait| !queued.contains(&*wait.owner))
    }
}

impl HolderView {
    fn new(holder: &Holder, identity: Option<Identity>) -> Self {
        let started = identity.as_ref().map(|identity| identity.started);
        let announced = identity.as_ref().and_then(|identity| identity.since_of(&holder.owner));
        let kept_until = identity.as_ref().and_then(|identity| identity.kept_until_of(&holder.owner));
        let WaiterView { owner, host, pid, label } = WaiterView::new(&holder.owner, identity);
        Self {
            owner,
            count: holder.count,
            mode: mode_name(holder.role),
            host,
            pid,
            label,
            started,
            // Exact, while what other clients announce regularly is measured again each time.
            since: announced.or(holder.since),
            kept_until,
            ttl: holder.ttl,
            stuck: holder.is_stuck,
            task: holder.task.clone(),
            call_site: holder.call_site.clone(),
        }
    }

    /// Formats the holder in one line: its identity and a short id, or until when the lock is kept.
    pub(super) fn line(&self, now: SystemTime) -> String {
        let label = self.label.as_deref().filter(|label| !label.is_empty());
        match (self.kept_until, label) {
            (Some(end), None) => kept_until(end, now),
            (Some(end), Some(label)) => format!("{} ({})", kept_until(end, now), escape(label)),
            (None, _) => {
                let identity = owner_name::identity(self.host.as_deref(), self.pid, self.label.as_deref());
                let short = owner_name::short(identity.as_deref(), &self.owner);
                if self.stuck { format!("{short} (stuck)") } else { short }
            }
        }
    }
}

impl WaiterView {
    fn new(owner: &OwnerId, identity: Option<Identity>) -> Self {
        let owner = owner.to_string();
        match identity {
            None => Self { owner, host: None, pid: None, label: None },
            Some(Identity { host, pid, label, .. }) => {
                Self { owner, host: Some(host), pid: Some(pid), label: Some(label) }
            }
        }
    }

    /// Formats the waiter in one line: its identity and a short id.
    pub(super) fn line(&self) -> String {
        let identity = owner_name::identity(self.host.as_deref(), self.pid, self.label.as_deref());
        owner_name::short(identity.as_deref(), &self.owner)
    }
}

pub(super) fn mode_name(role: Role) -> &'static str {
    match role {
        Role::Holder => "exclusive",
        Role::Reader => "read",
        Role::Writer => "write",
        Role::Permit => "permit",
        _ => "unknown",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use turnlock::Kind;

    use super::*;

    /// A held lock whose holder has an identity.
    pub(crate) fn held(name: &str) -> LockView {
        LockView {
            kind: Some("lock"),
            locked: true,
            holders: vec![HolderView {
                owner: "07070707-1707-4707-8707-070707070707:12".to_owned(),
                count: 1,
                mode: "exclusive",
                host: Some("web-1".to_owned()),
                pid: Some(42),
                label: Some("deploy.sh".to_owned()),
                started: Some(SystemTime::UNIX_EPOCH),
                since: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500)),
                kept_until: None,
                ttl: None,
                stuck: false,
                task: None,
                call_site: None,
            }],
            ttl: Some(Duration::from_millis(28_400)),
            ..LockView::absent(name)
        }
    }

    /// The same after its process has exited, kept until 00:03:20.
    pub(crate) fn kept(name: &str) -> LockView {
        let mut lock = held(name);
        lock.holders[0].kept_until = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(200));
        lock
    }

    #[test]
    fn the_json_object_has_the_documented_form() {
        let expected = serde_json::json!({
            "name": "orders", "kind": "lock", "locked": true,
            "holders": [{
                "owner": "07070707-1707-4707-8707-070707070707:12", "count": 1, "mode": "exclusive",
                "host": "web-1", "pid": 42, "label": "deploy.sh",
                "started": "1970-01-01T00:00:00.000Z", "since": "1970-01-01T00:00:01.500Z",
                "kept_until": null, "ttl_ms": null, "stuck": false, "task": null, "call_site": null,
            }],
            "ttl_ms": 28_400, "queue": [], "waiters": [], "token": null, "available": null,
        });
        assert_eq!(serde_json::to_value(held("orders")).unwrap(), expected);
    }

    #[test]
    fn a_list_can_be_filtered_by_every_kind_that_it_has() {
        let kinds = [
            Kind::Lock,
            Kind::Fair,
            Kind::Fenced,
            Kind::Spin,
            Kind::Plain,
            Kind::Read,
            Kind::Permits,
            Kind::Semaphore,
            Kind::Latch,
        ];
        assert_eq!(kinds.map(kind_name), crate::list_arguments::KIND_NAMES);
    }

    #[test]
    fn a_different_ttl_is_not_a_change() {
        let (before, mut after) = (held("orders"), held("orders"));
        after.ttl = None;
        assert!(!after.differs_from(&before));
        after.holders[0].count = 2;
        assert!(after.differs_from(&before));
        assert!(kept("orders").differs_from(&before));
        assert!(held("orders").released().differs_from(&before));
    }
}
