use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use turnlock_core::{ClientId, OwnerId};

/// Who a client is, as it says of itself: for the person who asks who holds a lock.
///
/// A client of turnlock writes this down on the store when it has first asked for a lock (not for permits, or a latch), in the background, and again about
/// every 20 minutes while it is in use. It is forgotten an hour later. Others find it by the first part of its owners' ids.
/// Clients of other libraries write nothing down.
///
/// It is a courtesy and decides nothing: a store that refuses it grants locks all the same. Nobody checks that it is true. It is
/// text of others, with its control characters replaced and its length cut: still nothing to be run, or taken for markup.
///
/// On Redis it is the value of the key `turnlock_client:<client uuid>`, whatever the key prefix, since owners do not say which
/// prefix their client has. A user who may lock some names only is allowed this by [`AclRule`](crate::acl::AclRule).
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let client = turnlock::Client::builder().label("nightly report").connect("memory://").await?;
/// let guard = client.lock("orders").lock().await?;
/// guard.announce().await?; // also says since when
/// let owner = guard.owner_id().clone();
/// let who = client.identities(&[owner.clone()]).await?.remove(0).expect("written down");
/// assert_eq!((who.label.as_str(), who.pid), ("nightly report", std::process::id()));
/// assert!(who.since_of(&owner).is_some());
/// # Ok::<(), turnlock::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The name of its machine, or of its container.
    pub host: String,
    /// The number of its process there.
    pub pid: u32,
    /// What it calls itself: see [`Builder::label`](crate::Builder::label).
    pub label: String,
    /// When the client was made, by the clock of its machine.
    pub started: SystemTime,
    pub(crate) client: ClientId,
    /// Since when it has what it announced, by the number in the owner.
    pub(crate) since: BTreeMap<u64, SystemTime>,
}

/// The longest text that is written down, or believed, in characters.
const LONGEST_TEXT: usize = 100;

/// How many holds can be announced at a time; of more, the latest.
pub(crate) const MOST_ANNOUNCED: usize = 64;

/// What is written down.
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
    /// The longest record that is believed. None of ours is longer.
    pub(crate) const LONGEST_RECORD: usize = 4096;

    /// This process, as a client of it.
    pub(crate) fn of_this_process(client: ClientId, label: Option<&str>) -> Self {
        Self {
            host: legible(&host_name()),
            pid: std::process::id(),
            label: legible(&label.map_or_else(program_name, str::to_owned)),
            started: SystemTime::now(),
            client,
            since: BTreeMap::new(),
        }
    }

    /// When the hold of this owner began, if its client [announced](crate::Guard::announce) it.
    pub fn since_of(&self, owner: &OwnerId) -> Option<SystemTime> {
        let (client, number) = owner.parts()?;
        if client == self.client { self.since.get(&number).copied() } else { None }
    }

    /// As it is written down.
    pub(crate) fn to_record(&self) -> String {
        let latest = self.since.iter().rev().take(MOST_ANNOUNCED);
        let record = Record {
            host: self.host.clone(),
            pid: self.pid,
            label: self.label.clone(),
            started_ms: to_millis(self.started),
            since: latest.map(|(number, since)| (*number, to_millis(*since))).collect(),
        };
        // Text and numbers can always be written.
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// What somebody wrote down. `None` where that is something else.
    pub(crate) fn from_record(client: ClientId, record: &str) -> Option<Self> {
        if record.len() > Self::LONGEST_RECORD {
            return None;
        }
        let Record { host, pid, label, started_ms, since } = serde_json::from_str(record).ok()?;
        let since = since.into_iter().map(|(number, millis)| Some((number, from_millis(millis)?)));
        Some(Self {
            host: legible(&host),
            pid,
            label: legible(&label),
            started: from_millis(started_ms)?,
            client,
            since: since.collect::<Option<_>>()?,
        })
    }
}

/// Text that can be shown on one line, cut to a length.
fn legible(text: &str) -> String {
    let shown =
        |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    text.chars().take(LONGEST_TEXT).map(shown).collect()
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
    use super::*;

    fn client() -> ClientId {
        ClientId::from_random([7; 16])
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        let mut one = Identity::of_this_process(client(), Some("a \"label\" of 100 😀"));
        // Written down in milliseconds.
        one.started = from_millis(1_700_000_000_123).expect("a time");
        one.since.insert(7, from_millis(1_700_000_001_000).expect("a time"));
        assert!(!one.host.is_empty());
        let record = one.to_record();
        assert!(record.contains("\"started_ms\":1700000000123,\"since\":{\"7\":1700000001000}"), "{record}");
        let read = Identity::from_record(client(), &record).expect("as it was written");
        assert_eq!(read, one);
        assert_eq!(read.since_of(&client().owner(7)), one.since.get(&7).copied());
        assert_eq!(read.since_of(&client().owner(8)), None);
        assert_eq!(read.since_of(&ClientId::from_random([8; 16]).owner(7)), None);
        assert!(!Identity::of_this_process(client(), None).label.is_empty());
    }

    #[test]
    fn the_longest_record_is_believed() {
        let mut one = Identity::of_this_process(client(), Some(&"😀".repeat(500)));
        one.host = "😀".repeat(LONGEST_TEXT);
        one.since = (0..1_000).map(|number| (u64::MAX - number, one.started)).collect();
        let read = Identity::from_record(client(), &one.to_record()).expect("short enough");
        assert_eq!((read.label.chars().count(), read.since.len()), (LONGEST_TEXT, MOST_ANNOUNCED));
        assert!(read.since_of(&client().owner(u64::MAX)).is_some(), "the latest");
    }

    #[test]
    fn a_hostile_record_is_none_or_is_cut() {
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
        assert_eq!(read(&long(&"x".repeat(3_000))).expect("one").label.len(), LONGEST_TEXT);
        assert_eq!(
            read(&long("a\\n\\u001b[31m\\u0000")).expect("one").label,
            "a\u{fffd}\u{fffd}[31m\u{fffd}"
        );
        // A time that cannot be is no reason to fail, and fields of a later version are none either.
        let _ = read(r#"{"host":"h","pid":1,"label":"x","started_ms":18446744073709551615}"#);
        assert!(read(r#"{"host":"h","pid":1,"label":"x","started_ms":1,"new":[]}"#).is_some());
    }
}
