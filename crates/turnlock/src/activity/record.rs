use serde::{Deserialize, Serialize};
use turnlock_core::{ClientId, Kind, OwnerId};
use turnlock_store::MAX_ACTIVITY_LEN;

use crate::identity::sanitized;

/// How many waits a record contains: those that hold something first, then the oldest.
pub(crate) const MAX_WAITS: usize = 32;

/// How many holds a record contains: the oldest.
pub(crate) const MAX_HOLDS: usize = 64;

/// How many holds of a waiting task a record contains.
pub(crate) const MAX_HELD: usize = 16;

/// The bytes of a record that are not for its holds.
const WAITS_LEN: usize = MAX_ACTIVITY_LEN / 4 * 3;

/// The activity record of a client, as JSON on the store.
///
/// All times are durations up to the moment of writing: the store stamps that, so the clocks of clients do not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) label: String,
    /// A waiter of this client may fail to end a deadlock.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) fails: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) waits: Vec<WaitRecord>,
    /// The number of waits that are not listed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) more_waits: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) holds: Vec<HoldRecord>,
    /// The number of holds that are not listed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) more_holds: u64,
}

/// A wait of at least a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitRecord {
    pub(crate) key: String,
    pub(crate) kind: String,
    /// The owner that it would hold as.
    pub(crate) owner: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) task: Option<String>,
    pub(crate) waited_ms: u64,
    /// The rest of its wait limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) left_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) at: Option<String>,
    /// It is a member of a group, which tries again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) group: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) holds: Vec<HeldRecord>,
    /// The stamps of the first and of the last acknowledged write that contained it with these holds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) proven: Option<(u64, u64)>,
}

/// What a waiting task holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldRecord {
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) owner: String,
    /// The waiting task itself holds it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) exact: bool,
    /// It has a fixed lease.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) fixed: bool,
}

/// A hold of at least a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HoldRecord {
    pub(crate) key: String,
    pub(crate) kind: String,
    pub(crate) owner: String,
    pub(crate) held_ms: u64,
    /// Its holder seems to make no progress.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) stuck: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) task: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) at: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The name of a kind in a record.
pub(crate) fn label_of(kind: Kind) -> String {
    kind.label().to_owned()
}

/// Returns the kind of this name, if this version knows it.
pub(crate) fn kind_of(label: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.label() == label)
}

impl Record {
    /// Serializes the record, and moves what does not fit to the numbers of what is not listed.
    pub(crate) fn to_text(&self) -> String {
        let mut record = Self { waits: Vec::new(), holds: Vec::new(), ..self.clone() };
        let mut len = text_of(&record).len() + 100;
        for wait in &self.waits {
            if record.waits.len() < MAX_WAITS && fits(wait, &mut len, WAITS_LEN) {
                record.waits.push(wait.clone());
            } else {
                record.more_waits += 1;
            }
        }
        for hold in &self.holds {
            if record.holds.len() < MAX_HOLDS && fits(hold, &mut len, MAX_ACTIVITY_LEN) {
                record.holds.push(hold.clone());
            } else {
                record.more_holds += 1;
            }
        }
        text_of(&record)
    }

    /// Parses a record of `client`. `None` if it is not one. Leaves out entries that the client cannot have written.
    pub(super) fn parse(client: ClientId, text: &str) -> Option<Self> {
        if text.len() > MAX_ACTIVITY_LEN {
            return None;
        }
        let mut record: Self = serde_json::from_str(text).ok()?;
        (record.host, record.label) = (sanitized(&record.host), sanitized(&record.label));
        let clean = |text: &mut Option<String>| *text = text.as_deref().map(sanitized);
        let is_possible = |key: &str, kind: &str, owner: &str| {
            let (kind, holder) = (kind_of(kind), OwnerId::from_wire(owner).client());
            // The id of a permit does not contain its client.
            let is_own = match holder {
                Some(holder) => holder == client,
                None => kind.is_some_and(|kind| !kind.identifies_clients()),
            };
            kind.is_some() && is_own && !key.is_empty() && !owner.contains(char::is_control)
        };
        record.waits.retain(|wait| is_possible(&wait.key, &wait.kind, &wait.owner));
        record.waits.truncate(MAX_WAITS);
        for wait in &mut record.waits {
            clean(&mut wait.task);
            clean(&mut wait.at);
            wait.holds.retain(|held| is_possible(&held.key, &held.kind, &held.owner));
            wait.holds.truncate(MAX_HELD);
            wait.proven = wait.proven.filter(|(first, last)| first <= last);
        }
        record.holds.retain(|hold| is_possible(&hold.key, &hold.kind, &hold.owner));
        record.holds.truncate(MAX_HOLDS);
        for hold in &mut record.holds {
            clean(&mut hold.task);
            clean(&mut hold.at);
        }
        Some(record)
    }
}

/// Returns `true` if an entry fits in a record of `len` bytes that may have `most`. Adds it to `len`.
fn fits(entry: &impl Serialize, len: &mut usize, most: usize) -> bool {
    let longer = *len + text_of(entry).len() + 1;
    let fits = longer <= most;
    if fits {
        *len = longer;
    }
    fits
}

fn text_of(value: &impl Serialize) -> String {
    // Texts and numbers always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use serde_json::{Value, json};

    use super::*;

    fn client() -> ClientId {
        ClientId::from_random([7; 16])
    }

    fn wait(number: u64, key: &str) -> WaitRecord {
        let (owner, other) = (client().owner(number).to_string(), client().owner(number + 1_000).to_string());
        let held = HeldRecord {
            key: key.to_owned(),
            kind: "lock".to_owned(),
            owner: other,
            exact: true,
            fixed: true,
        };
        WaitRecord {
            key: key.to_owned(),
            kind: "write lock".to_owned(),
            owner,
            task: Some("task 7".to_owned()),
            waited_ms: 1_001,
            left_ms: Some(7),
            at: Some("src/main.rs:7".to_owned()),
            group: true,
            holds: vec![held],
            proven: Some((5, 6)),
        }
    }

    fn hold(number: u64, key: &str) -> HoldRecord {
        HoldRecord {
            key: key.to_owned(),
            kind: "lock".to_owned(),
            owner: client().owner(number).to_string(),
            held_ms: 2_000,
            stuck: true,
            task: Some("task 1".to_owned()),
            at: Some("src/main.rs:8".to_owned()),
        }
    }

    fn record(waits: Vec<WaitRecord>, holds: Vec<HoldRecord>) -> Record {
        Record {
            host: "h".to_owned(),
            pid: 7,
            label: "l".to_owned(),
            fails: true,
            waits,
            holds,
            ..Record::default()
        }
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let written = record(vec![wait(1, "a"), wait(2, "😀 \"b\"")], vec![hold(3, "c")]);
        assert_eq!(Record::parse(client(), &written.to_text()), Some(written));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let waits = (0..100).map(|number| wait(number, "orders")).collect();
        let holds = (0..100).map(|number| hold(number, "orders")).collect();
        let text = record(waits, holds).to_text();
        let read = Record::parse(client(), &text).expect("short enough");
        assert!(text.len() <= MAX_ACTIVITY_LEN);
        assert!(!read.waits.is_empty() && !read.holds.is_empty());
        assert_eq!(read.waits.len() as u64 + read.more_waits, 100);
        assert_eq!(read.holds.len() as u64 + read.more_holds, 100);
        // A name that is too long is left out, and those after it are not.
        let long = "x".repeat(4_096);
        let read = Record::parse(client(), &record(vec![wait(1, &long), wait(2, "a")], vec![]).to_text());
        let read = read.expect("short enough");
        assert_eq!((read.waits.len(), read.more_waits, &*read.waits[0].key), (1, 1, "a"));
    }

    #[test]
    fn what_its_client_cannot_have_written_is_left_out() {
        let other = ClientId::from_random([8; 16]);
        let text = record(vec![wait(1, "a")], vec![hold(3, "c")]).to_text();
        let read = Record::parse(other, &text).expect("a record");
        assert_eq!((read.waits, read.holds), (vec![], vec![]));
        let mut changed = record(vec![wait(1, "a"), wait(2, "a"), wait(3, "a")], vec![]);
        changed.waits[0].kind = "new kind".to_owned();
        changed.waits[1].proven = Some((6, 5));
        changed.waits[1].at = Some("\u{1b}[31m".to_owned() + &"x".repeat(200));
        changed.waits[2].holds[0].owner = other.owner(1).to_string();
        let read = Record::parse(client(), &changed.to_text()).expect("a record").waits;
        assert_eq!((read.len(), read[0].proven, read[1].holds.len()), (2, None, 0));
        let at = read[0].at.as_deref().expect("a text");
        assert!(at.starts_with("\u{fffd}[31m") && at.chars().count() == 100, "{at}");
    }

    #[test]
    fn a_client_speaks_only_for_itself_of_permits_too() {
        let other = ClientId::from_random([8; 16]);
        let permit = "000102030405060708090a0b0c0d0eff";
        let own = client().owner(1).to_string();
        for (kind, owner, is_read) in [
            ("permit semaphore", permit, true),
            ("semaphore", &own, true),
            ("latch", &own, true),
            ("permit semaphore", &*other.owner(0).to_string(), false),
            ("semaphore", &*other.owner(1).to_string(), false),
            ("latch", &*other.owner(1).to_string(), false),
            ("permit semaphore", "\u{1b}[31m", false),
            ("lock", permit, false),
        ] {
            let mut changed = record(vec![wait(1, "a")], vec![hold(2, "a")]);
            (changed.waits[0].kind, changed.waits[0].owner) = (kind.to_owned(), owner.to_owned());
            (changed.holds[0].kind, changed.holds[0].owner) = (kind.to_owned(), owner.to_owned());
            let read = Record::parse(client(), &changed.to_text()).expect("a record");
            assert_eq!((read.waits.len() == 1, read.holds.len() == 1), (is_read, is_read), "{kind} {owner}");
        }
    }

    /// Replaces each field of a value in turn, also those inside, and calls `check` with the whole.
    fn replace_each(whole: &Value, path: &str, other: &Value, check: &mut impl FnMut(&str, &Value)) {
        let here = whole.pointer(path).expect("a path of it");
        let parts: Vec<_> = match here {
            Value::Object(fields) => fields.keys().cloned().collect(),
            Value::Array(entries) => (0..entries.len()).map(|at| at.to_string()).collect(),
            _ => Vec::new(),
        };
        for part in parts {
            let path = format!("{path}/{part}");
            let mut changed = whole.clone();
            *changed.pointer_mut(&path).expect("a path of it") = other.clone();
            check(&path, &changed);
            replace_each(whole, &path, other, check);
        }
    }

    /// What a record must have, whatever was read.
    fn assert_sound(read: &Record, why: &str) {
        assert_eq!(Record::parse(client(), &read.to_text()).as_ref(), Some(read), "{why}");
        let shown = read.waits.iter().flat_map(|wait| [&wait.task, &wait.at]);
        let shown = shown.chain(read.holds.iter().flat_map(|hold| [&hold.task, &hold.at])).flatten();
        let is_clean = |text: &String| text.chars().count() <= 100 && !text.contains(char::is_control);
        assert!(shown.chain([&read.host, &read.label]).all(is_clean), "{why}: {read:?}");
        assert!(read.waits.iter().all(|wait| wait.proven.is_none_or(|(first, last)| first <= last)), "{why}");
    }

    #[test]
    fn any_field_may_be_damaged() {
        let whole = serde_json::to_value(record(vec![wait(1, "a")], vec![hold(2, "b")])).expect("JSON");
        let others = [
            json!(null),
            json!(true),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!([]),
            json!([u64::MAX, 0]),
            json!({}),
            json!(""),
            json!("\u{1b}[31m"),
            json!("x".repeat(1_000)),
        ];
        let mut number = 0;
        for other in &others {
            replace_each(&whole, "", other, &mut |path, changed| {
                number += 1;
                if let Some(read) = Record::parse(client(), &changed.to_string()) {
                    assert_sound(&read, &format!("{other} at {path}"));
                }
            });
        }
        assert!(number > 30 * others.len(), "only {number} changes");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_record_or_none(
            changes in vec((any::<Index>(), vec(any::<u8>(), 0..3)), 0..4),
            cut in any::<Option<Index>>(),
            other in any::<String>(),
        ) {
            let mut bytes = record(vec![wait(1, "a")], vec![hold(2, "b")]).to_text().into_bytes();
            for (at, other) in changes {
                let at = at.index(bytes.len());
                bytes.splice(at..=at, other);
            }
            bytes.truncate(cut.map_or(bytes.len(), |at| at.index(bytes.len())));
            for text in [&*String::from_utf8_lossy(&bytes), &other] {
                if let Some(read) = Record::parse(client(), text) {
                    assert_sound(&read, text);
                }
            }
        }
    }
}
