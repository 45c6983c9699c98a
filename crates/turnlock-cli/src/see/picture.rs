use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use turnlock::{Client, Error, Holder, Identity, Inspection, Kind, OwnerId, Role};

/// What is shown of one lock: the object of `--json`, and what tables are made of.
///
/// `docs/program-json.md` says what each field means; a field that is here must be there.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Picture {
    pub(super) name: String,
    /// `None` when nothing stands under the name.
    pub(super) kind: Option<&'static str>,
    pub(super) locked: bool,
    pub(super) holders: Vec<HolderPicture>,
    #[serde(rename = "ttl_ms", serialize_with = "millis")]
    pub(super) ttl: Option<Duration>,
    pub(super) queue: Vec<WaiterPicture>,
    pub(super) token: Option<u64>,
    pub(super) available: Option<i64>,
}

/// Someone who holds it, or a permit that is out.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HolderPicture {
    pub(super) owner: String,
    pub(super) count: u64,
    pub(super) mode: &'static str,
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) label: Option<String>,
    /// When the holder's client was made.
    #[serde(serialize_with = "moment")]
    pub(super) started: Option<SystemTime>,
    #[serde(serialize_with = "moment")]
    pub(super) since: Option<SystemTime>,
    #[serde(rename = "ttl_ms", serialize_with = "millis")]
    pub(super) ttl: Option<Duration>,
}

/// Someone who waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct WaiterPicture {
    pub(super) owner: String,
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) label: Option<String>,
}

impl Picture {
    /// The pictures of these, with what is known of the people in them.
    pub(super) async fn of_all(client: &Client, things: Vec<Inspection>) -> Result<Vec<Self>, Error> {
        let owners: Vec<OwnerId> = things
            .iter()
            .flat_map(|thing| thing.holders.iter().map(|holder| &holder.owner).chain(&thing.queue))
            .cloned()
            .collect();
        let identities = if owners.is_empty() { Vec::new() } else { client.identities(&owners).await? };
        // One for each owner, in the order in which they were asked for.
        let mut identities = identities.into_iter();
        Ok(things.into_iter().map(|thing| Self::new(thing, || identities.next().flatten())).collect())
    }

    fn new(thing: Inspection, mut next_identity: impl FnMut() -> Option<Identity>) -> Self {
        let locked = thing.is_locked();
        Self {
            kind: Some(kind_word(thing.kind)),
            locked,
            holders: thing
                .holders
                .into_iter()
                .map(|holder| HolderPicture::new(&holder, next_identity()))
                .collect(),
            ttl: thing.ttl,
            queue: thing.queue.into_iter().map(|owner| WaiterPicture::new(&owner, next_identity())).collect(),
            token: thing.token,
            available: thing.available,
            name: thing.name,
        }
    }

    /// Nothing, under this name.
    pub(super) fn nothing(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: None,
            locked: false,
            holders: Vec::new(),
            ttl: None,
            queue: Vec::new(),
            token: None,
            available: None,
        }
    }

    /// The same after its end.
    pub(super) fn gone(self) -> Self {
        Self { kind: self.kind, token: self.token, ..Self::nothing(&self.name) }
    }

    /// Whether the two differ in more than the time that has passed.
    pub(super) fn differs_from(&self, other: &Self) -> bool {
        let holders = |picture: &Self| -> Vec<_> {
            let holder = |holder: &HolderPicture| {
                (holder.owner.clone(), holder.count, holder.mode, holder.host.clone(), holder.label.clone())
            };
            picture.holders.iter().map(holder).collect()
        };
        (self.kind, &self.queue, self.token, self.available)
            != (other.kind, &other.queue, other.token, other.available)
            || holders(self) != holders(other)
    }
}

impl HolderPicture {
    fn new(holder: &Holder, identity: Option<Identity>) -> Self {
        let started = identity.as_ref().map(|identity| identity.started);
        let announced = identity.as_ref().and_then(|identity| identity.since_of(&holder.owner));
        let WaiterPicture { owner, host, pid, label } = WaiterPicture::new(&holder.owner, identity);
        Self {
            owner,
            count: holder.count,
            mode: mode_word(holder.role),
            host,
            pid,
            label,
            started,
            // What the store knows by itself is nobody's word.
            since: holder.since.or(announced),
            ttl: holder.ttl,
        }
    }
}

impl WaiterPicture {
    fn new(owner: &OwnerId, identity: Option<Identity>) -> Self {
        let owner = owner.to_string();
        match identity {
            None => Self { owner, host: None, pid: None, label: None },
            Some(Identity { host, pid, label, .. }) => {
                Self { owner, host: Some(host), pid: Some(pid), label: Some(label) }
            }
        }
    }
}

/// What a kind is called, as one word. Both sides of a read-write lock are one thing on the store.
fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Spin => "spin-lock",
        Kind::Fenced => "fenced-lock",
        Kind::Fair => "fair-lock",
        Kind::Read | Kind::Write => "read-write-lock",
        Kind::Plain => "plain-lock",
        Kind::Semaphore => "semaphore",
        Kind::Permits => "permit-semaphore",
        Kind::Latch => "latch",
    }
}

fn mode_word(role: Role) -> &'static str {
    match role {
        Role::Holder => "exclusive",
        Role::Reader => "read",
        Role::Writer => "write",
        Role::Permit => "permit",
    }
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let millis = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    millis.serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn moment<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(rfc_3339).serialize(serializer)
}

/// A moment as `2026-11-16T06:13:46.250Z`.
pub(super) fn rfc_3339(time: SystemTime) -> String {
    // Others wrote this moment down, and years behind 9999 have no such form.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.clamp(SystemTime::UNIX_EPOCH, last)).to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A lock that somebody holds of whom everything is known.
    pub(crate) fn held(name: &str) -> Picture {
        Picture {
            kind: Some("lock"),
            locked: true,
            holders: vec![HolderPicture {
                owner: "07070707-1707-4707-8707-070707070707:12".to_owned(),
                count: 1,
                mode: "exclusive",
                host: Some("web-1".to_owned()),
                pid: Some(42),
                label: Some("deploy.sh".to_owned()),
                started: Some(SystemTime::UNIX_EPOCH),
                since: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_500)),
                ttl: None,
            }],
            ttl: Some(Duration::from_millis(28_400)),
            ..Picture::nothing(name)
        }
    }

    #[test]
    fn the_object_is_the_documented_one() {
        let expected = serde_json::json!({
            "name": "orders", "kind": "lock", "locked": true,
            "holders": [{
                "owner": "07070707-1707-4707-8707-070707070707:12", "count": 1, "mode": "exclusive",
                "host": "web-1", "pid": 42, "label": "deploy.sh",
                "started": "1970-01-01T00:00:00.000Z", "since": "1970-01-01T00:00:01.500Z", "ttl_ms": null,
            }],
            "ttl_ms": 28_400, "queue": [], "token": null, "available": null,
        });
        assert_eq!(serde_json::to_value(held("orders")).unwrap(), expected);
    }

    #[test]
    fn time_alone_is_no_change() {
        let (before, mut after) = (held("orders"), held("orders"));
        after.ttl = None;
        assert!(!after.differs_from(&before));
        after.holders[0].count = 2;
        assert!(after.differs_from(&before));
        assert!(held("orders").gone().differs_from(&before));
    }

    #[test]
    fn a_moment_that_cannot_be_written_is_the_nearest_that_can() {
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(u32::MAX) * 100);
        assert!(rfc_3339(far).starts_with("9999-12-31"));
        assert_eq!(rfc_3339(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00.000Z");
    }
}
