use redis::Value;
use turnlock_core::{Kind, LockName, OwnerId};

use super::script_call::ScriptCall;
use super::{decode, scripts};

/// A first look at a key of which nobody knows what it is.
#[derive(Clone, Debug)]
pub(super) struct KeyLook {
    what: What,
    is_queued_for: bool,
    has_token: bool,
    has_permits_out: bool,
}

#[derive(Clone, Debug)]
enum What {
    Nothing,
    Hash { size: i64, mode: String, fields: Vec<String> },
    Text { beginning: String, ends: bool },
    Other,
}

/// The longest text that is taken for the value of somebody's plain lock.
const LONGEST_VALUE: usize = 64;

/// What the keys begin with that stand beside others.
const BESIDE: [&str; 9] = [
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

/// Whether a key belongs to another one, and stands for nothing by itself.
pub(super) fn is_of_another(key: &str) -> bool {
    BESIDE.iter().any(|prefix| key.starts_with(prefix)) || key.contains(":rwlock_timeout:")
}

pub(super) fn look(name: &LockName) -> ScriptCall {
    ScriptCall::on(&scripts::KEY_LOOK, name)
        .arg(name.beside("redisson_lock_queue"))
        .arg(name.beside("redisson_lock_token"))
        .arg(name.below("timeout"))
}

impl KeyLook {
    pub(super) fn decode(value: Value) -> Result<Self, Value> {
        let Value::Array(items) = &value else { return Err(value) };
        let [kind, Value::Int(size), text, Value::Int(ttl), queue, token, permits, Value::Array(fields)] =
            &items[..]
        else {
            return Err(value);
        };
        let is_there = |value: &Value| *value == Value::Int(1);
        let what = match decode::text(kind).as_str() {
            "none" => What::Nothing,
            "hash" => What::Hash {
                size: *size,
                mode: decode::text(text),
                fields: fields.iter().map(decode::text).collect(),
            },
            "string" => What::Text { beginning: decode::text(text), ends: *ttl >= 0 },
            _ => What::Other,
        };
        Ok(Self {
            what,
            is_queued_for: is_there(queue),
            has_token: is_there(token),
            has_permits_out: is_there(permits),
        })
    }

    /// What is held there, if it cannot well be anything but a lock, or permits.
    pub(super) fn held(&self) -> Option<Kind> {
        match &self.what {
            What::Hash { size, mode, fields } => self.lock(*size, mode, fields),
            What::Text { beginning, .. } if self.has_permits_out && is_number(beginning) => {
                Some(Kind::Permits)
            }
            What::Text { beginning, ends: true } if is_owner(beginning) => Some(Kind::Plain),
            What::Text { .. } | What::Nothing | What::Other => None,
        }
    }

    /// What it may be, when somebody says that it is something.
    pub(super) fn may_be(&self) -> Option<Kind> {
        match &self.what {
            What::Nothing if self.is_queued_for => Some(Kind::Fair),
            What::Nothing if self.has_token => Some(Kind::Fenced),
            What::Nothing if self.has_permits_out => Some(Kind::Permits),
            What::Text { beginning, .. } if is_number(beginning) => {
                Some(if self.has_permits_out { Kind::Permits } else { Kind::Semaphore })
            }
            What::Text { beginning, ends: true } if is_random(beginning) => Some(Kind::Plain),
            _ => self.held(),
        }
    }

    fn lock(&self, size: i64, mode: &str, fields: &[String]) -> Option<Kind> {
        let are_owners = |is_owner: fn(&str) -> bool| {
            fields.iter().all(|field| field == "mode" || is_owner(field)) && !fields.is_empty()
        };
        match mode {
            "read" if size > 1 && are_owners(is_holder) => Some(Kind::Read),
            "write" if size > 1 && are_owners(is_holder) => Some(Kind::Write),
            // One owner at a time.
            "" if size == 1 && are_owners(is_owner) => Some(match self {
                Self { is_queued_for: true, .. } => Kind::Fair,
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

/// Whether this is an owner as it stands in a read-write lock.
fn is_holder(field: &str) -> bool {
    is_owner(field.strip_suffix(":write").unwrap_or(field))
}

fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

/// Whether a library may have set this text as the value of a plain lock, to know it again.
fn is_random(text: &str) -> bool {
    (1..=LONGEST_VALUE).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "07070707-0707-4707-8707-070707070707:12";

    fn seen(what: What) -> KeyLook {
        KeyLook { what, is_queued_for: false, has_token: false, has_permits_out: false }
    }

    fn hash(size: i64, mode: &str, fields: &[&str]) -> KeyLook {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        seen(What::Hash { size, mode: mode.to_owned(), fields })
    }

    fn text(text: &str, ends: bool) -> KeyLook {
        seen(What::Text { beginning: text.to_owned(), ends })
    }

    #[test]
    fn a_hash_is_a_lock_only_if_all_that_was_seen_of_it_is_of_one() {
        let writer = format!("{OWNER}:write");
        assert_eq!(hash(1, "", &[OWNER]).held(), Some(Kind::Lock));
        assert_eq!(hash(3, "read", &["mode", OWNER, OWNER]).held(), Some(Kind::Read));
        assert_eq!(hash(2, "write", &["mode", &writer]).held(), Some(Kind::Write));
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
            assert_eq!((foreign.held(), foreign.may_be()), (None, None), "{foreign:?}");
        }
    }

    #[test]
    fn what_stands_beside_a_lock_says_which_one_it_is() {
        let lock = hash(1, "", &[OWNER]);
        assert_eq!(KeyLook { is_queued_for: true, has_token: true, ..lock.clone() }.held(), Some(Kind::Fair));
        assert_eq!(KeyLook { has_token: true, ..lock }.held(), Some(Kind::Fenced));
        let free = seen(What::Nothing);
        assert_eq!(free.may_be(), None);
        let queued = KeyLook { is_queued_for: true, ..free };
        assert_eq!((queued.held(), queued.may_be()), (None, Some(Kind::Fair)));
    }

    #[test]
    fn a_text_is_shown_only_if_it_is_an_owner_or_was_asked_for() {
        assert_eq!(text(OWNER, true).held(), Some(Kind::Plain));
        assert_eq!(text(OWNER, false).held(), None);
        let others = text("d2f6c0aa1b3e4a6f9a7c", true);
        assert_eq!((others.held(), others.may_be()), (None, Some(Kind::Plain)));
        let number = text("3", false);
        assert_eq!((number.held(), number.may_be()), (None, Some(Kind::Semaphore)));
        let permits = KeyLook { has_permits_out: true, ..number };
        assert_eq!((permits.held(), permits.may_be()), (Some(Kind::Permits), Some(Kind::Permits)));
        for foreign in [text("<html> </html>", true), text("", true), text(&"x".repeat(65), true)] {
            assert_eq!((foreign.held(), foreign.may_be()), (None, None), "{foreign:?}");
        }
        assert_eq!(seen(What::Other).may_be(), None);
    }

    #[test]
    fn keys_beside_others_are_known() {
        let name = LockName::parse("n").expect("a good name");
        for prefix in BESIDE {
            assert!(is_of_another(&name.beside(prefix.trim_end_matches(':'))), "{prefix}");
        }
        assert!(is_of_another(&name.below(&format!("{OWNER}:rwlock_timeout:1"))));
        assert!(!is_of_another("redisson_lock") && !is_of_another("turnlock_waiters"));
    }
}
