use redis::Value;
use turnlock_core::{Kind, LockName, OwnerId};

use crate::script_call::ScriptCall;
use crate::{decode, lua, steps};
use turnlock_store::Failure;

/// The content of a key of unknown kind, as far as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyProbe {
    /// The type, as `TYPE` replies it.
    redis_type: String,
    /// The number of fields of a hash.
    size: i64,
    /// The start of a string; or the mode of a hash, empty if it has none.
    text: String,
    /// The remaining time to live in ms; negative if it does not expire.
    ttl: i64,
    /// Some fields of a hash.
    fields: Vec<String>,
    has_queue: bool,
    has_token: bool,
    has_taken_permits: bool,
}

/// The longest value that may be that of a plain lock.
const MAX_PLAIN_VALUE: usize = 64;

/// Prefixes of keys that belong to another key.
const AUXILIARY_PREFIXES: [&str; 9] = [
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_lock_token:",
    "redisson_unlock_latch:",
    "turnlock_client:",
    "turnlock_never:",
    "turnlock_request:",
    "turnlock_waiters:",
    "turnlock_writer_waits:",
];

/// Returns `true` if a key belongs to another key, and is nothing by itself.
pub(crate) fn is_auxiliary_key(key: &str) -> bool {
    AUXILIARY_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
        || key.contains(":rwlock_timeout:")
        || key == LockName::ACTIVITY
}

pub(crate) fn call(name: &LockName) -> ScriptCall {
    let others = (name.beside(steps::QUEUE), name.beside(steps::TOKEN), steps::taken_key(name));
    ScriptCall::on(&lua::KEY_PROBE, name, &[]).arg(others)
}

/// What `lua/key_probe.lua` replies.
type Reply = (String, i64, Vec<u8>, i64, bool, bool, bool, Vec<Vec<u8>>);

impl KeyProbe {
    pub(crate) fn decode(value: &Value) -> Result<Self, Failure> {
        let (redis_type, size, start, ttl, has_queue, has_token, has_taken_permits, fields): Reply =
            decode::script_reply(value)?;
        let text = |bytes: &Vec<u8>| decode::text(bytes).into_owned();
        Ok(Self {
            redis_type,
            size,
            text: text(&start),
            ttl,
            fields: fields.iter().map(text).collect(),
            has_queue,
            has_token,
            has_taken_permits,
        })
    }

    /// Returns the kind if the key can hardly be anything but a held lock, or taken permits.
    pub(crate) fn certain_kind(&self) -> Option<Kind> {
        match &*self.redis_type {
            "hash" => self.lock_kind(),
            "string" if self.has_taken_permits && is_number(&self.text) => Some(Kind::Permits),
            "string" if self.ttl >= 0 && is_owner(&self.text) => Some(Kind::Plain),
            _ => None,
        }
    }

    /// Returns the kind that the key may have, for a caller that names the key.
    pub(crate) fn possible_kind(&self) -> Option<Kind> {
        match &*self.redis_type {
            "none" if self.has_queue => Some(Kind::Fair),
            "none" if self.has_token => Some(Kind::Fenced),
            "none" if self.has_taken_permits => Some(Kind::Permits),
            "string" if is_number(&self.text) => {
                Some(if self.has_taken_permits { Kind::Permits } else { Kind::Semaphore })
            }
            "string" if self.ttl >= 0 && is_plain_value(&self.text) => Some(Kind::Plain),
            _ => self.certain_kind(),
        }
    }

    fn lock_kind(&self) -> Option<Kind> {
        let are_all = |is_owner: fn(&str) -> bool| {
            self.fields.iter().all(|field| field == "mode" || is_owner(field)) && !self.fields.is_empty()
        };
        match &*self.text {
            "read" if self.size > 1 && are_all(is_read_write_holder) => Some(Kind::Read),
            "write" if self.size > 1 && are_all(is_read_write_holder) => Some(Kind::Write),
            // One owner at a time.
            "" if self.size == 1 && are_all(is_owner) => Some(match self {
                Self { has_queue: true, .. } => Kind::Fair,
                Self { has_token: true, .. } => Kind::Fenced,
                _ => Kind::Lock,
            }),
            _ => None,
        }
    }
}

fn is_owner(text: &str) -> bool {
    OwnerId::from_wire(text).parts().is_some()
}

/// Returns `true` for the field of an owner in a read-write lock.
fn is_read_write_holder(field: &str) -> bool {
    is_owner(field.strip_suffix(":write").unwrap_or(field))
}

fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

/// Returns `true` if a lock library may have written this value for a plain lock.
fn is_plain_value(text: &str) -> bool {
    (1..=MAX_PLAIN_VALUE).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "07070707-0707-4707-8707-070707070707:12";

    fn probe(redis_type: &str) -> KeyProbe {
        KeyProbe { redis_type: redis_type.to_owned(), ..KeyProbe::default() }
    }

    fn hash(size: i64, mode: &str, fields: &[&str]) -> KeyProbe {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        KeyProbe { size, text: mode.to_owned(), fields, ..probe("hash") }
    }

    fn text(text: &str, expires: bool) -> KeyProbe {
        KeyProbe { text: text.to_owned(), ttl: if expires { 1 } else { -1 }, ..probe("string") }
    }

    #[test]
    fn a_hash_is_a_lock_only_if_every_field_read_is_a_holder() {
        let writer = format!("{OWNER}:write");
        assert_eq!(hash(1, "", &[OWNER]).certain_kind(), Some(Kind::Lock));
        assert_eq!(hash(3, "read", &["mode", OWNER, OWNER]).certain_kind(), Some(Kind::Read));
        assert_eq!(hash(2, "write", &["mode", &writer]).certain_kind(), Some(Kind::Write));
        for foreign in [
            hash(1, "", &["name"]),
            hash(1, "", &[""]),
            hash(1, "", &[]),
            hash(1, "", &[&writer]),
            hash(2, "", &[OWNER, OWNER]),
            hash(1, "read", &["mode"]),
            hash(3, "read", &["mode", "name"]),
            hash(2, "dark", &["mode", OWNER]),
            hash(1_000_000, "", &[OWNER, OWNER, OWNER, OWNER]),
        ] {
            assert_eq!((foreign.certain_kind(), foreign.possible_kind()), (None, None), "{foreign:?}");
        }
    }

    #[test]
    fn auxiliary_keys_decide_the_kind_of_a_lock() {
        let lock = hash(1, "", &[OWNER]);
        assert_eq!(
            KeyProbe { has_queue: true, has_token: true, ..lock.clone() }.certain_kind(),
            Some(Kind::Fair)
        );
        assert_eq!(KeyProbe { has_token: true, ..lock }.certain_kind(), Some(Kind::Fenced));
        let free = probe("none");
        assert_eq!(free.possible_kind(), None);
        let queued = KeyProbe { has_queue: true, ..free };
        assert_eq!((queued.certain_kind(), queued.possible_kind()), (None, Some(Kind::Fair)));
    }

    #[test]
    fn the_kind_of_a_string_depends_on_its_value_and_expiry() {
        assert_eq!(text(OWNER, true).certain_kind(), Some(Kind::Plain));
        assert_eq!(text(OWNER, false).certain_kind(), None);
        let others = text("d2f6c0aa1b3e4a6f9a7c", true);
        assert_eq!((others.certain_kind(), others.possible_kind()), (None, Some(Kind::Plain)));
        let number = text("3", false);
        assert_eq!((number.certain_kind(), number.possible_kind()), (None, Some(Kind::Semaphore)));
        let permits = KeyProbe { has_taken_permits: true, ..number };
        assert_eq!(
            (permits.certain_kind(), permits.possible_kind()),
            (Some(Kind::Permits), Some(Kind::Permits))
        );
        for foreign in [text("<html> </html>", true), text("", true), text(&"x".repeat(65), true)] {
            assert_eq!((foreign.certain_kind(), foreign.possible_kind()), (None, None), "{foreign:?}");
        }
        assert_eq!(probe("list").possible_kind(), None);
    }

    #[test]
    fn auxiliary_keys_are_recognised() {
        let name = LockName::parse("n").expect("a good name");
        for prefix in AUXILIARY_PREFIXES {
            assert!(is_auxiliary_key(&name.beside(prefix.trim_end_matches(':'))), "{prefix}");
        }
        assert!(is_auxiliary_key(&name.below(&format!("{OWNER}:rwlock_timeout:1"))));
        assert!(is_auxiliary_key(LockName::ACTIVITY) && !is_auxiliary_key("turnlock_waits:"));
        assert!(!is_auxiliary_key("redisson_lock") && !is_auxiliary_key("turnlock_waiters"));
    }
}
