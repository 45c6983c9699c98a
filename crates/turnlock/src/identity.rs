use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use turnlock_core::model::PermitId;
use turnlock_core::{ClientId, OwnerId};
use turnlock_store::simulation;

use crate::clock;

/// The host, process and label of a client, for people who inspect locks.
///
/// A turnlock client writes this record to the store after its first request for a lock, in the background, and again
/// about every 20 minutes while it is in use. Requests for permits and latches do not write it. The record expires
/// after an hour. [`Client::identities`](crate::Client::identities) finds it by owner id. Clients of other libraries
/// write no record.
///
/// The id of a permit does not contain its client. The holder of a permit is identified if it was
/// [announced](crate::Permits::announce): then the permit has a record of its own.
///
/// The record is for information only: a store that refuses it still grants locks. It is not verified. Its texts are
/// untrusted input: control characters are replaced and the length is limited, but escape it before rendering.
///
/// On Redis it is the value of the key `turnlock_client:<client uuid>`, or with the first 24 digits of the permit id in
/// place of the client. It has no key prefix, because an owner id does not contain the prefix of its client.
/// [`AclRule`](crate::acl::AclRule) grants access to it.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::builder().label("nightly report").connect("memory://").await?;
/// let guard = client.lock("orders").lock().await?;
/// guard.announce().await?; // also writes since when
/// let owner = guard.owner_id().clone();
/// let identity = client.identities(&[owner.clone()]).await?.remove(0).expect("a record");
/// assert_eq!((identity.label.as_str(), identity.pid), ("nightly report", std::process::id()));
/// assert!(identity.since_of(&owner).is_some());
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The name of the machine or the container.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// The label: see [`Builder::label`](crate::Builder::label).
    pub label: String,
    /// When the client was created, by the clock of its machine.
    pub started: SystemTime,
    /// The id of the record: that of the client, or one of a hold of permits.
    pub(crate) record: ClientId,
    /// The begin of each announced hold, by its number in the record.
    pub(crate) since: BTreeMap<u64, SystemTime>,
    /// The end of each hold with a delayed unlock, by its number in the record.
    pub(crate) kept_until: BTreeMap<u64, SystemTime>,
}

/// The limit of a text in characters, when written and when read.
const MAX_TEXT_CHARS: usize = 100;

/// How many announced holds a record contains: the latest ones.
pub(crate) const MAX_ANNOUNCED: usize = 64;

/// How many holds with a delayed unlock a record contains: the latest ones.
const MAX_KEPT: usize = 16;

/// The record on the store, as JSON.
#[derive(Serialize, Deserialize)]
struct Record {
    host: String,
    pid: u32,
    label: String,
    started_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    since: BTreeMap<u64, u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    kept_until: BTreeMap<u64, u64>,
}

impl Identity {
    /// The limit of a record in bytes. Longer ones are not read, and turnlock writes none.
    pub(crate) const MAX_RECORD_LEN: usize = 4096;

    /// Returns the identity of a client in this process.
    pub(crate) fn of_this_process(client: ClientId, label: Option<&str>) -> Self {
        Self {
            host: sanitized(&host_name()),
            pid: std::process::id(),
            label: sanitized(&label.map_or_else(program_name, str::to_owned)),
            started: clock::wall(),
            record: client,
            since: BTreeMap::new(),
            kept_until: BTreeMap::new(),
        }
    }

    /// Returns the id of the record that identifies `owner`, and the number of its hold in it.
    pub(crate) fn record_key(owner: &OwnerId) -> Option<(ClientId, u64)> {
        owner.parts().or_else(|| Some((PermitId::record_of(owner)?, 0)))
    }

    /// Returns when the hold of `owner` began, if its client [announced](crate::Guard::announce) it.
    pub fn since_of(&self, owner: &OwnerId) -> Option<SystemTime> {
        self.time_of(owner, &self.since)
    }

    /// Returns when the hold of `owner` ends, if it was left with a delayed unlock.
    ///
    /// See [`Guard::unlock_after`](crate::Guard::unlock_after). The process of the client may have exited. By the clock of
    /// its machine. `None` if the client has left more than 16 later holds so.
    pub fn kept_until_of(&self, owner: &OwnerId) -> Option<SystemTime> {
        self.time_of(owner, &self.kept_until)
    }

    fn time_of(&self, owner: &OwnerId, times: &BTreeMap<u64, SystemTime>) -> Option<SystemTime> {
        let (record, number) = Self::record_key(owner)?;
        if record == self.record { times.get(&number).copied() } else { None }
    }

    /// Serializes the record for the store.
    pub(crate) fn to_record(&self) -> String {
        let latest = |times: &BTreeMap<u64, SystemTime>, most| {
            times.iter().rev().take(most).map(|(number, time)| (*number, to_millis(*time))).collect()
        };
        let record = Record {
            host: self.host.clone(),
            pid: self.pid,
            label: self.label.clone(),
            started_ms: to_millis(self.started),
            since: latest(&self.since, MAX_ANNOUNCED),
            kept_until: latest(&self.kept_until, MAX_KEPT),
        };
        // Texts and numbers always serialize.
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// Parses a record from the store. `None` if it is not one.
    pub(crate) fn from_record(id: ClientId, record: &str) -> Option<Self> {
        if record.len() > Self::MAX_RECORD_LEN {
            return None;
        }
        let Record { host, pid, label, started_ms, since, kept_until } = serde_json::from_str(record).ok()?;
        let times = |times: BTreeMap<u64, u64>| {
            let times = times.into_iter().map(|(number, millis)| Some((number, from_millis(millis)?)));
            times.collect::<Option<_>>()
        };
        Some(Self {
            host: sanitized(&host),
            pid,
            label: sanitized(&label),
            started: from_millis(started_ms)?,
            record: id,
            since: times(since)?,
            kept_until: times(kept_until)?,
        })
    }
}

/// Replaces control characters, and cuts the text to its limit.
pub(crate) fn sanitized(text: &str) -> String {
    let shown =
        |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    text.chars().take(MAX_TEXT_CHARS).map(shown).collect()
}

/// Returns random bytes for an id: from the system or, in a simulation, from its seed.
pub(crate) fn random_bytes() -> [u8; 16] {
    if simulation::is_running() {
        fastrand::u128(..).to_le_bytes()
    } else {
        uuid::Uuid::new_v4().into_bytes()
    }
}

fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn from_millis(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    fn client() -> ClientId {
        ClientId::from_random([7; 16])
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let mut identity = Identity::of_this_process(client(), Some("a \"label\" of 100 😀"));
        // The record has milliseconds.
        identity.started = from_millis(1_700_000_000_123).expect("a time");
        identity.since.insert(7, from_millis(1_700_000_001_000).expect("a time"));
        identity.kept_until.insert(7, from_millis(1_700_000_009_000).expect("a time"));
        assert!(!identity.host.is_empty());
        let record = identity.to_record();
        let times =
            r#""started_ms":1700000000123,"since":{"7":1700000001000},"kept_until":{"7":1700000009000}}"#;
        assert!(record.ends_with(times), "{record}");
        let read = Identity::from_record(client(), &record).expect("a record");
        assert_eq!(read, identity);
        assert_eq!(read.since_of(&client().owner(7)), identity.since.get(&7).copied());
        assert_eq!(read.kept_until_of(&client().owner(7)), identity.kept_until.get(&7).copied());
        assert_eq!((read.since_of(&client().owner(8)), read.kept_until_of(&client().owner(8))), (None, None));
        assert_eq!(read.since_of(&ClientId::from_random([8; 16]).owner(7)), None);
        assert!(!Identity::of_this_process(client(), None).label.is_empty());
    }

    #[test]
    fn the_longest_record_is_accepted() {
        let mut identity = Identity::of_this_process(client(), Some(&"😀".repeat(500)));
        identity.host = "😀".repeat(MAX_TEXT_CHARS);
        identity.since = (0..1_000).map(|number| (u64::MAX - number, identity.started)).collect();
        identity.kept_until = identity.since.clone();
        let read = Identity::from_record(client(), &identity.to_record()).expect("short enough");
        assert_eq!((read.label.chars().count(), read.since.len()), (MAX_TEXT_CHARS, MAX_ANNOUNCED));
        assert!(read.since_of(&client().owner(u64::MAX)).is_some(), "the latest is in it");
        assert!(read.kept_until_of(&client().owner(u64::MAX)).is_some(), "the latest is in it");
    }

    #[test]
    fn all_permits_of_a_hold_have_one_record() {
        let head = "000102030405460788090a0b";
        let permit = |last: &str| OwnerId::from_wire(&format!("{head}{last}"));
        let (record, number) = Identity::record_key(&permit("ffffffff")).expect("an id of a permit");
        let mut identity = Identity::of_this_process(record, None);
        identity.since.insert(number, identity.started);
        for same in ["00000000", "ffffffff"] {
            assert_eq!(identity.since_of(&permit(same)), Some(identity.started));
        }
        for other in ["", "x", "000102030405460788090a0c00000000", "000102030405460788090a0bffffffff0"] {
            assert_eq!(identity.since_of(&OwnerId::from_wire(other)), None, "{other}");
        }
    }

    #[test]
    fn a_hostile_record_is_rejected_or_cut() {
        let read = |record: &str| Identity::from_record(client(), record);
        for record in [
            "",
            "{}",
            "null",
            "[1]",
            "not JSON",
            r#"{"host":1,"pid":1,"label":"x","started_ms":1}"#,
            r#"{"host":"h","pid":-1,"label":"x","started_ms":1}"#,
            r#"{"host":"h","pid":4294967296,"label":"x","started_ms":1}"#,
            r#"{"host":"h","pid":1,"label":null,"started_ms":1}"#,
            r#"{"host":"h","pid":1,"label":"x","started_ms":1.5}"#,
            r#"{"host":"h","pid":1,"label":"x","started_ms":1,"since":{"x":1}}"#,
            r#"{"host":"h","pid":1,"label":"x","started_ms":1,"since":[]}"#,
            r#"{"host":"h","pid":1,"label":"x","started_ms":1,"kept_until":{"1":-1}}"#,
        ] {
            assert_eq!(read(record), None, "{record}");
        }
        assert_eq!(read(&"[".repeat(4_000)), None);
        let long = |label: &str| format!(r#"{{"host":"h","pid":1,"label":"{label}","started_ms":1}}"#);
        assert_eq!(read(&long(&"x".repeat(5_000))), None);
        assert_eq!(read(&long(&"x".repeat(3_000))).expect("a record").label.len(), MAX_TEXT_CHARS);
        assert_eq!(
            read(&long("a\\n\\u001b[31m\\u0000")).expect("a record").label,
            "a\u{fffd}\u{fffd}[31m\u{fffd}"
        );
        // A time out of range must not panic. Unknown fields, of a later version, are ignored.
        let _ = read(r#"{"host":"h","pid":1,"label":"x","started_ms":18446744073709551615}"#);
        assert!(read(r#"{"host":"h","pid":1,"label":"x","started_ms":1,"new":[]}"#).is_some());
    }

    /// A record, with some of its bytes changed or cut.
    fn damaged_record() -> impl Strategy<Value = String> {
        let record = r#"{"host":"h\u001b","pid":4294967295,"label":"😀","started_ms":1700000000123,"since":{"7":17},"kept_until":{"7":18}}"#;
        let change =
            (any::<Index>(), prop_oneof![any::<u8>().prop_map(|byte| vec![byte]), Just(b"9".repeat(20))]);
        (vec(change, 0..4), any::<Option<Index>>()).prop_map(move |(changes, cut)| {
            let mut bytes = record.as_bytes().to_vec();
            for (at, other) in changes {
                let at = at.index(bytes.len());
                bytes.splice(at..=at, other);
            }
            bytes.truncate(cut.map_or(bytes.len(), |at| at.index(bytes.len())));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_record_that_can_be_shown_or_none(
            record in prop_oneof![4 => damaged_record(), 1 => any::<String>()],
        ) {
            let Some(identity) = Identity::from_record(client(), &record) else { return Ok(()) };
            for text in [&identity.host, &identity.label] {
                prop_assert!(text.chars().count() <= MAX_TEXT_CHARS && !text.contains(char::is_control));
            }
            let again = Identity::from_record(client(), &identity.to_record()).expect("a record");
            prop_assert_eq!(again, identity);
        }
    }
}
