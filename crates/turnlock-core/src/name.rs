//! Lock names, and the keys, channels and slots that follow from them by Redisson's brace rule.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::slot;

/// The name of a lock, checked once: what exists is neither empty nor too long.
///
/// The key on Redis is the name itself, behind the client's key prefix if it has one.
///
/// ```
/// use turnlock_core::LockName;
///
/// let name = LockName::parse("orders:42")?;
/// assert_eq!(name.key(), "orders:42");
/// assert_eq!(name.channel(), "redisson_lock__channel:{orders:42}");
/// # Ok::<(), turnlock_core::NameError>(())
/// ```
#[derive(Clone)]
pub struct LockName(Arc<Text>);

struct Text {
    key: Box<str>,
    channel: Box<str>,
    prefix_len: usize,
}

/// Why a text cannot be the name of a lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a lock needs a name: the given one is empty")]
    Empty,
    /// The name, with the key prefix, has too many bytes.
    #[error("the name of a lock, with its key prefix, may have {max} bytes and this one has {0}: use a shorter one, or a digest of it", max = LockName::MAX_LEN)]
    TooLong(usize),
}

impl LockName {
    /// The most bytes that a name may have, key prefix included.
    pub const MAX_LEN: usize = 4096;

    /// Checks a name.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        Self::with_prefix("", name)
    }

    /// Checks a name that gets `prefix` in front of it on the server.
    pub fn with_prefix(prefix: &str, name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let len = prefix.len() + name.len();
        if len > Self::MAX_LEN {
            return Err(NameError::TooLong(len));
        }
        let key = format!("{prefix}{name}").into_boxed_str();
        let channel = prefixed("redisson_lock__channel", &key).into_boxed_str();
        Ok(Self(Arc::new(Text { key, channel, prefix_len: prefix.len() })))
    }

    /// The name as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.0.key[self.0.prefix_len..]
    }

    /// The key of the lock's hash.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The channel on which a release is told.
    pub fn channel(&self) -> &str {
        &self.0.channel
    }

    /// The cluster slot of the key.
    pub fn slot(&self) -> u16 {
        slot(self.key())
    }

    /// Whether key and channel fall into different cluster slots.
    ///
    /// Only `{` is looked for by the brace rule, so names such as `a}b` or `a{` come out this way. They work on a single
    /// server; on a cluster, a release would be refused, so such a name must be refused before it is taken.
    pub fn splits_slots(&self) -> bool {
        slot(self.channel()) != self.slot()
    }
}

// Two names are the same lock when their keys are the same, whatever part of the key is prefix.
impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName({:?})", self.key())
    }
}

/// Redisson's rule for names made from a prefix: `P:{N}`, and `P:N` when N has a `{` anywhere.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::parse(text).expect("a good name")
    }

    #[test]
    fn the_brace_rule_looks_only_for_the_opening_brace() {
        assert_eq!(name("n").channel(), "redisson_lock__channel:{n}");
        assert_eq!(name("a:{n}").channel(), "redisson_lock__channel:a:{n}");
        assert_eq!(name("x}y").channel(), "redisson_lock__channel:{x}y}");
    }

    #[test]
    fn names_that_a_cluster_must_refuse_are_known() {
        for good in ["orders", "a:{n}", "{n}", "with space", "ö"] {
            assert!(!name(good).splits_slots(), "{good}");
        }
        for bad in ["a}b", "a{", "a{}b", "}{"] {
            assert!(name(bad).splits_slots(), "{bad}");
        }
    }

    #[test]
    fn a_prefix_is_part_of_the_key_and_not_of_the_name() {
        let name = LockName::with_prefix("app:", "orders").expect("a good name");
        assert_eq!((name.as_str(), name.key()), ("orders", "app:orders"));
        assert_eq!(name.channel(), "redisson_lock__channel:{app:orders}");
    }

    #[test]
    fn bad_names_are_refused() {
        assert_eq!(LockName::parse("").unwrap_err(), NameError::Empty);
        assert_eq!(LockName::with_prefix("p:", "").unwrap_err(), NameError::Empty);
        assert!(LockName::parse(&"x".repeat(LockName::MAX_LEN)).is_ok());
        assert_eq!(LockName::with_prefix("p", &"x".repeat(4096)).unwrap_err(), NameError::TooLong(4097));
    }
}
