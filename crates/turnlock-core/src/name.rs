//! Lock names, and the keys, channels and slots that follow from them by Redisson's brace rule.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::{ClientId, Kind, OwnerId, slot};

/// The name of a lock, or of another thing of the family, checked once: what exists is neither empty nor too long.
///
/// The key on Redis is the name itself, behind the client's key prefix if it has one. Two names are equal when they have
/// one key and those who wait for them wait for the same messages: a lock, a spin lock and a fenced lock of one name are,
/// and so are the two sides of a read-write lock.
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
    kind: Kind,
    key: Box<str>,
    channel: Box<str>,
    /// How much of the channel is common to all who wait for this name.
    common_len: usize,
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

    /// Checks the name of a reentrant lock.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        Self::of(Kind::Lock, "", name)
    }

    /// Checks the name of a thing of this kind that gets `prefix` in front of it on the server.
    pub fn of(kind: Kind, prefix: &str, name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let len = prefix.len() + name.len();
        if len > Self::MAX_LEN {
            return Err(NameError::TooLong(len));
        }
        let key = format!("{prefix}{name}").into_boxed_str();
        let channel = match kind {
            Kind::Lock | Kind::Spin | Kind::Fenced | Kind::Fair => prefixed("redisson_lock__channel", &key),
            Kind::Read | Kind::Write => prefixed("redisson_rwlock", &key),
            Kind::Semaphore | Kind::Permits => prefixed("redisson_sc", &key),
            // Always with braces, whatever the name has.
            Kind::Latch => format!("redisson_countdownlatch__channel__{{{key}}}"),
            // Nobody tells anything there: only to tell this name from others.
            Kind::Plain => prefixed("turnlock_plain", &key),
        };
        let common_len = channel.len();
        let channel = channel.into_boxed_str();
        Ok(Self(Arc::new(Text { kind, key, channel, common_len, prefix_len: prefix.len() })))
    }

    /// What the keys match in which clients say who they are.
    pub const CLIENTS: &str = "turnlock_client:*";

    /// The key in which a client says who it is, as the name of a plain value.
    pub fn of_client(client: ClientId) -> Self {
        let (key, prefix_len) = (format!("turnlock_client:{client}").into_boxed_str(), 0);
        Self(Arc::new(Text {
            kind: Kind::Plain,
            channel: key.clone(),
            common_len: key.len(),
            key,
            prefix_len,
        }))
    }

    /// The same name for one waiter of a fair lock, who has a channel of its own.
    #[must_use]
    pub fn for_waiter(&self, waiter: &OwnerId) -> Self {
        let channel = [self.common_channel(), ":", waiter.as_str()].concat().into_boxed_str();
        let Text { kind, ref key, common_len, prefix_len, .. } = *self.0;
        Self(Arc::new(Text { kind, key: key.clone(), channel, common_len, prefix_len }))
    }

    /// The same name as that of a thing of another kind.
    #[must_use]
    pub fn of_other_kind(&self, kind: Kind) -> Self {
        let (prefix, name) = self.0.key.split_at(self.0.prefix_len);
        Self::of(kind, prefix, name).unwrap_or_else(|_| self.clone())
    }

    /// What the name stands for.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The name as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.0.key[self.0.prefix_len..]
    }

    /// The key of the lock's hash.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The channel on which a release is told to those who use this name.
    pub fn channel(&self) -> &str {
        &self.0.channel
    }

    /// The channel without what [`for_waiter`](LockName::for_waiter) added.
    pub fn common_channel(&self) -> &str {
        &self.0.channel[..self.0.common_len]
    }

    /// Whether the channel is one waiter's own.
    pub fn is_for_one_waiter(&self) -> bool {
        self.0.common_len < self.0.channel.len()
    }

    /// A key beside this one, by Redisson's rule for prefixes: `P:{N}`, or `P:N` when the name has braces.
    pub fn beside(&self, prefix: &str) -> String {
        prefixed(prefix, self.key())
    }

    /// A key under this one, by Redisson's rule for suffixes: `{N}:S`, or `N:S` when the name has braces.
    pub fn below(&self, suffix: &str) -> String {
        let key = self.key();
        if key.contains('{') { format!("{key}:{suffix}") } else { format!("{{{key}}}:{suffix}") }
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

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        // By the brace rule `n` and `{n}` have one channel, and are two locks.
        Arc::ptr_eq(&self.0, &other.0) || (self.channel() == other.channel() && self.key() == other.key())
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.channel().hash(state);
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
        let name = LockName::of(Kind::Lock, "app:", "orders").expect("a good name");
        assert_eq!((name.as_str(), name.key()), ("orders", "app:orders"));
        assert_eq!(name.channel(), "redisson_lock__channel:{app:orders}");
    }

    #[test]
    fn each_kind_has_the_channel_that_redisson_uses() {
        let channel = |kind, text| LockName::of(kind, "", text).expect("a good name").channel().to_owned();
        assert_eq!(channel(Kind::Read, "n"), "redisson_rwlock:{n}");
        assert_eq!(channel(Kind::Write, "a:{n}"), "redisson_rwlock:a:{n}");
        assert_eq!(channel(Kind::Semaphore, "n"), "redisson_sc:{n}");
        assert_eq!(channel(Kind::Latch, "a:{n}"), "redisson_countdownlatch__channel__{a:{n}}");
        let fair = LockName::of(Kind::Fair, "", "n").expect("a good name");
        let mine = fair.for_waiter(&OwnerId::from_wire("c:7"));
        assert_eq!(mine.channel(), "redisson_lock__channel:{n}:c:7");
        assert_eq!((mine.common_channel(), mine.key()), (fair.channel(), "n"));
        assert!(mine.is_for_one_waiter() && !fair.is_for_one_waiter());
    }

    #[test]
    fn two_keys_with_one_channel_are_two_names() {
        let (plain, braced) = (name("n"), name("{n}"));
        assert_eq!(plain.channel(), braced.channel());
        assert_ne!(plain, braced);
    }

    #[test]
    fn keys_beside_and_below_stay_in_the_slot() {
        assert_eq!(name("n").beside("redisson_lock_queue"), "redisson_lock_queue:{n}");
        assert_eq!(name("n").below("timeout"), "{n}:timeout");
        assert_eq!(name("a:{n}").below("timeout"), "a:{n}:timeout");
    }

    #[test]
    fn bad_names_are_refused() {
        assert_eq!(LockName::parse("").unwrap_err(), NameError::Empty);
        assert_eq!(LockName::of(Kind::Lock, "p:", "").unwrap_err(), NameError::Empty);
        assert!(LockName::parse(&"x".repeat(LockName::MAX_LEN)).is_ok());
        assert_eq!(LockName::of(Kind::Lock, "p", &"x".repeat(4096)).unwrap_err(), NameError::TooLong(4097));
    }
}
