use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use turnlock_core::{ClientId, OwnerId};
use turnlock_store::simulation;

/// The host, process and label of a client, for people who inspect locks.
///
/// A turnlock client writes this record to the store after its first request for a lock, in the background, and again
/// about every 20 minutes while it is in use. Requests for permits and latches do not write it. The record expires
/// after an hour. [`Client::identities`](crate::Client::identities) finds it by owner id. Clients of other libraries
/// write no record.
///
/// The record is for information only: a store that refuses it still grants locks. It is not verified. Its texts are
/// untrusted input: control characters are replaced and the length is limited, but escape it before rendering.
///
/// On Redis it is the value of the key `turnlock_client:<client uuid>`. It has no key prefix, because an owner id does
/// not contain the prefix of its client. [`AclRule`](crate::acl::AclRule) grants access to it.
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
    pub(crate) client: ClientId,
    /// The begin of each announced hold, by the number in its owner id.
    pub(crate) since: BTreeMap<u64, SystemTime>,
}

/// The limit of a text in characters, when written and when read.
const MAX_TEXT_CHARS: usize = 100;

/// How many announced holds a record contains: the latest ones.
pub(crate) const MAX_ANNOUNCED: usize = 64;

/// The record on the store, as JSON.
#[derive(Serialize, Deserialize)]
struct Record {
    host: String,
    pid: u32,
    label: String,
    started_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    since: BTreeMap<u64, u64>,
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
            started: SystemTime::now(),
            client,
            since: BTreeMap::new(),
        }
    }

    /// Returns when the hold of `owner` began, if its client [announced](crate::Guard::announce) it.
    pub fn since_of(&self, owner: &OwnerId) -> Option<SystemTime> {
        let (client, number) = owner.parts()?;
        if client == self.client { self.since.get(&number).copied() } else { None }
    }

    /// Serializes the record for the store.
    pub(crate) fn to_record(&self) -> String {
        let latest = self.since.iter().rev().take(MAX_ANNOUNCED);
        let record = Record {
            host: self.host.clone(),
            pid: self.pid,
            label: self.label.clone(),
            started_ms: to_millis(self.started),
            since: latest.map(|(number, since)| (*number, to_millis(*since))).collect(),
        };
        // Texts and numbers always serialize.
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// Parses a record from the store. `None` if it is not one.
    pub(crate) fn from_record(client: ClientId, record: &str) -> Option<Self> {
        if record.len() > Self::MAX_RECORD_LEN {
            return None;
        }
        let Record { host, pid, label, started_ms, since } = serde_json::from_str(record).ok()?;
        let since = since.into_iter().map(|(number, millis)| Some((number, from_millis(millis)?)));
        Some(Self {
            host: sanitized(&host),
            pid,
            label: sanitized(&label),
            started: from_millis(started_ms)?,
            client,
            since: since.collect::<Option<_>>()?,
        })
    }
}

/// Replaces control characters, and cuts the text to its limit.
fn sanitized(text: &str) -> String {
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
        assert!(!identity.host.is_empty());
        let record = identity.to_record();
        assert!(record.contains("\"started_ms\":1700000000123,\"since\":{\"7\":1700000001000}"), "{record}");
        let read = Identity::from_record(client(), &record).expect("a record");
        assert_eq!(read, identity);
        assert_eq!(read.since_of(&client().owner(7)), identity.since.get(&7).copied());
        assert_eq!(read.since_of(&client().owner(8)), None);
        assert_eq!(read.since_of(&ClientId::from_random([8; 16]).owner(7)), None);
        assert!(!Identity::of_this_process(client(), None).label.is_empty());
    }

    #[test]
    fn the_longest_record_is_accepted() {
        let mut identity = Identity::of_this_process(client(), Some(&"😀".repeat(500)));
        identity.host = "😀".repeat(MAX_TEXT_CHARS);
        identity.since = (0..1_000).map(|number| (u64::MAX - number, identity.started)).collect();
        let read = Identity::from_record(client(), &identity.to_record()).expect("short enough");
        assert_eq!((read.label.chars().count(), read.since.len()), (MAX_TEXT_CHARS, MAX_ANNOUNCED));
        assert!(read.since_of(&client().owner(u64::MAX)).is_some(), "the latest is in it");
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
        let record =
            r#"{"host":"h\u001b","pid":4294967295,"label":"😀","started_ms":1700000000123,"since":{"7":17}}"#;
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
