//! Lock names, and the keys, channels and cluster slots derived from them.
//!
//! Keys and channels are those of Redisson, so that both libraries use the same locks.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crc::{CRC_16_XMODEM, Crc};

use crate::{ClientId, Kind, OwnerId};

/// The name of a lock or of another primitive, with its [`Kind`].
///
/// Checked on construction: a name is neither empty nor too long. The key on Redis is the client's key prefix
/// followed by the name.
///
/// Two names are equal if they have the same key and the same channel, whatever their kinds: a lock, a spin
/// lock and a fenced lock of one name are equal, and so are the two sides of a read-write lock.
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
pub struct LockName(Arc<Inner>);

/// The lengths of a checked name fit in 16 bits.
struct Inner {
    /// The channel, which contains the key.
    channel: Box<str>,
    /// The hash of the channel.
    hash: u64,
    /// Where the key is in the channel, and where the name without its prefix begins.
    key: Range<u16>,
    name_start: u16,
    /// The length of the part of the channel that all waiters for this name have in common.
    common_len: u16,
    kind: Kind,
}

/// A map by name. A name has its hash, by keys that differ in each process, so it is not hashed again.
pub type NameMap<T> = HashMap<LockName, T, BuildHasherDefault<NameHasher>>;

/// Returns the hash that a [`LockName`] has.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The keys of all hashes, which differ in each process. `None`: fixed keys.
static HASH_KEYS: OnceLock<Option<RandomState>> = OnceLock::new();

/// Hashes names with fixed keys in this process. For simulations: maps have the same order in each run.
///
/// # Panics
///
/// If a name was made before with other keys.
pub fn fix_hash_keys() {
    assert!(HASH_KEYS.get_or_init(|| None).is_none(), "a name was made before");
}

fn hash(text: &str) -> u64 {
    match HASH_KEYS.get_or_init(|| Some(RandomState::new())) {
        Some(keys) => keys.hash_one(text),
        None => BuildHasherDefault::<DefaultHasher>::default().hash_one(text),
    }
}

/// Why a text cannot be a lock name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a lock needs a name, and this one is empty")]
    Empty,
    /// The name, with the key prefix, has too many bytes.
    #[error(
        "a lock name of {0} bytes, key prefix included, is too long: use at most {max}, for example a hash of the name",
        max = LockName::MAX_LEN
    )]
    TooLong(usize),
    /// The key belongs to the records of clients.
    #[error("the key {0:?} is used by turnlock for its own records: use another name, or a key prefix")]
    Reserved(String),
}

impl LockName {
    /// The maximum length of a name in bytes, key prefix included.
    pub const MAX_LEN: usize = 4096;

    /// Creates the name of a reentrant lock, without a key prefix.
    ///
    /// # Errors
    ///
    /// [`NameError`] if the name is empty, too long or reserved.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        Self::of(Kind::Lock, "", name)
    }

    /// Creates the name of a primitive whose key is `prefix` followed by `name`.
    ///
    /// # Errors
    ///
    /// [`NameError`] if the name is empty, or, with its prefix, too long or reserved.
    pub fn of(kind: Kind, prefix: &str, name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let len = prefix.len() + name.len();
        if len > Self::MAX_LEN {
            return Err(NameError::TooLong(len));
        }
        let made = Self::of_key(kind, &[prefix, name], prefix.len());
        // A record would be taken for a lock, and a lock for a record that has expired.
        if made.key() == Self::ACTIVITY || made.key().starts_with(Self::CLIENT_PREFIX) {
            return Err(NameError::Reserved(made.key().to_owned()));
        }
        Ok(made)
    }

    /// Creates the name of a primitive whose key has these parts. The prefix has `prefix_len` bytes.
    fn of_key(kind: Kind, key: &[&str], prefix_len: usize) -> Self {
        let channel = match kind {
            Kind::Lock | Kind::Spin | Kind::Fenced | Kind::Fair => "redisson_lock__channel:",
            Kind::Read | Kind::Write => "redisson_rwlock:",
            Kind::Semaphore | Kind::Permits => "redisson_sc:",
            Kind::Latch => "redisson_countdownlatch__channel__",
            // Nothing is published there. It only makes the name differ from those of other kinds.
            Kind::Plain => "turnlock_plain:",
        };
        let key_len = key.iter().map(|part| part.len()).sum::<usize>();
        // Redisson adds braces to the channel of a latch even if the name has some.
        let has_braces = kind == Kind::Latch || !key.iter().any(|part| part.contains('{'));
        let mut text = String::with_capacity(channel.len() + key_len + 2);
        text.push_str(channel);
        text.push_str(if has_braces { "{" } else { "" });
        let start = text.len();
        text.extend(key.iter().copied());
        text.push_str(if has_braces { "}" } else { "" });
        let common_len = text.len();
        Self::of_channel(kind, text, start..start + key_len, prefix_len, common_len)
    }

    fn of_channel(
        kind: Kind,
        channel: String,
        key: Range<usize>,
        prefix_len: usize,
        common_len: usize,
    ) -> Self {
        let len = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        Self(Arc::new(Inner {
            hash: hash(&channel),
            channel: channel.into_boxed_str(),
            name_start: len(key.start + prefix_len),
            key: len(key.start)..len(key.end),
            common_len: len(common_len),
            kind,
        }))
    }

    /// The Redis pattern of the keys that hold client records.
    pub const CLIENTS: &str = "turnlock_client:*";

    const CLIENT_PREFIX: &str = "turnlock_client:";

    /// Returns the name of a client's record.
    pub fn of_client(client: ClientId) -> Self {
        Self::of_key(Kind::Plain, &[Self::CLIENT_PREFIX, &client.to_string()], 0)
    }

    /// The Redis key of the activity records of all clients.
    pub const ACTIVITY: &str = "turnlock_waits";

    /// Returns the name of the activity records.
    pub fn of_activity() -> Self {
        Self::of_key(Kind::Plain, &[Self::ACTIVITY], 0)
    }

    /// Returns this name with the channel of one waiter of a fair lock.
    #[must_use]
    pub fn for_waiter(&self, waiter: &OwnerId) -> Self {
        let channel = [self.common_channel(), ":", waiter.as_str()].concat();
        Self::of_channel(
            self.kind(),
            channel,
            self.key_range(),
            self.prefix_len(),
            self.common_channel().len(),
        )
    }

    /// Returns this name with the channel that the fair waiters of one client share.
    #[must_use]
    pub fn for_client_of(&self, waiter: &OwnerId) -> Self {
        let client = waiter.as_str().rsplit_once(':').map_or(waiter.as_str(), |(client, _)| client);
        self.for_waiter(&OwnerId::from_wire(client))
    }

    /// Returns the waiter, or the client of waiters, whose channel this name has.
    pub fn waiter(&self) -> Option<OwnerId> {
        self.0.channel[usize::from(self.0.common_len)..].strip_prefix(':').map(OwnerId::from_wire)
    }

    /// Returns this name as the name of another kind of primitive.
    #[must_use]
    pub fn with_kind(&self, kind: Kind) -> Self {
        Self::of_key(kind, &[self.key()], self.prefix_len())
    }

    /// Returns the kind of primitive that the name stands for.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the name without the key prefix.
    pub fn as_str(&self) -> &str {
        &self.0.channel[usize::from(self.0.name_start)..usize::from(self.0.key.end)]
    }

    /// Returns the main key of the primitive.
    pub fn key(&self) -> &str {
        &self.0.channel[self.key_range()]
    }

    fn key_range(&self) -> Range<usize> {
        usize::from(self.0.key.start)..usize::from(self.0.key.end)
    }

    fn prefix_len(&self) -> usize {
        usize::from(self.0.name_start - self.0.key.start)
    }

    /// Returns the channel on which releases are published.
    pub fn channel(&self) -> &str {
        &self.0.channel
    }

    /// Returns the channel that all waiters share, without what [`for_waiter`](LockName::for_waiter) added.
    pub fn common_channel(&self) -> &str {
        &self.0.channel[..usize::from(self.0.common_len)]
    }

    /// Returns `true` if the channel is that of one waiter.
    pub fn is_for_one_waiter(&self) -> bool {
        usize::from(self.0.common_len) < self.0.channel.len()
    }

    /// Returns a related key by Redisson's rule for prefixes: `P:{N}`, or `P:N` if the name has a `{`.
    pub fn beside(&self, prefix: &str) -> String {
        prefixed(prefix, self.key())
    }

    /// Returns a related key by Redisson's rule for suffixes: `{N}:S`, or `N:S` if the name has a `{`.
    pub fn below(&self, suffix: &str) -> String {
        let key = self.key();
        if key.contains('{') { format!("{key}:{suffix}") } else { format!("{{{key}}}:{suffix}") }
    }

    /// Returns the cluster slot of the key.
    pub fn slot(&self) -> u16 {
        slot(self.key())
    }

    /// Returns `true` if key and channel are in different cluster slots.
    ///
    /// The brace rule looks for `{` only, so this is true of names such as `a}b` or `a{`. They work on a
    /// single server. A cluster rejects the release, so the acquire of such a name must be rejected first.
    pub fn splits_slots(&self) -> bool {
        slot(self.channel()) != self.slot()
    }
}

impl PartialEq for LockName {
    fn eq(&self, other: &Self) -> bool {
        // By the brace rule `n` and `{n}` share a channel, but they are two locks.
        Arc::ptr_eq(&self.0, &other.0) || (self.channel() == other.channel() && self.key() == other.key())
    }
}

impl Eq for LockName {}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
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

/// Applies Redisson's rule for prefixes: `P:{N}`, or `P:N` if N has a `{` anywhere.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

const SLOTS: u16 = 16_384;
const CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns the Redis Cluster slot of a key or of a sharded channel.
///
/// If the text has a non-empty hash tag (`{tag}`), only the tag is hashed.
pub fn slot(text: &str) -> u16 {
    CHECKSUM.checksum(hash_tag(text).as_bytes()) % SLOTS
}

fn hash_tag(text: &str) -> &str {
    let tag = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    match tag {
        Some(tag) if !tag.is_empty() => tag,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::parse(text).expect("a valid name")
    }

    #[test]
    fn the_brace_rule_depends_on_the_opening_brace_only() {
        assert_eq!(name("n").channel(), "redisson_lock__channel:{n}");
        assert_eq!(name("a:{n}").channel(), "redisson_lock__channel:a:{n}");
        assert_eq!(name("x}y").channel(), "redisson_lock__channel:{x}y}");
    }

    #[test]
    fn names_whose_key_and_channel_differ_in_slot_are_detected() {
        for good in ["orders", "a:{n}", "{n}", "with space", "ö"] {
            assert!(!name(good).splits_slots(), "{good}");
        }
        for bad in ["a}b", "a{", "a{}b", "}{"] {
            assert!(name(bad).splits_slots(), "{bad}");
        }
    }

    #[test]
    fn a_prefix_is_part_of_the_key_and_not_of_the_name() {
        let name = LockName::of(Kind::Lock, "app:", "orders").expect("a valid name");
        assert_eq!((name.as_str(), name.key()), ("orders", "app:orders"));
        assert_eq!(name.channel(), "redisson_lock__channel:{app:orders}");
    }

    #[test]
    fn each_kind_has_the_channel_that_redisson_uses() {
        let channel = |kind, text| LockName::of(kind, "", text).expect("a valid name").channel().to_owned();
        assert_eq!(channel(Kind::Read, "n"), "redisson_rwlock:{n}");
        assert_eq!(channel(Kind::Write, "a:{n}"), "redisson_rwlock:a:{n}");
        assert_eq!(channel(Kind::Semaphore, "n"), "redisson_sc:{n}");
        assert_eq!(channel(Kind::Latch, "a:{n}"), "redisson_countdownlatch__channel__{a:{n}}");
        let fair = LockName::of(Kind::Fair, "", "n").expect("a valid name");
        let waiter = fair.for_waiter(&OwnerId::from_wire("c:7"));
        assert_eq!(waiter.channel(), "redisson_lock__channel:{n}:c:7");
        assert_eq!((waiter.common_channel(), waiter.key()), (fair.channel(), "n"));
        assert!(waiter.is_for_one_waiter() && !fair.is_for_one_waiter());
        assert_eq!((waiter.waiter(), fair.waiter()), (Some(OwnerId::from_wire("c:7")), None));
        let client = fair.for_client_of(&OwnerId::from_wire("c:7"));
        assert_eq!(client.channel(), "redisson_lock__channel:{n}:c");
        assert_eq!(client.for_waiter(&OwnerId::from_wire("c:7")), waiter);
    }

    #[test]
    fn two_keys_with_one_channel_are_two_names() {
        let (plain, braced) = (name("n"), name("{n}"));
        assert_eq!(plain.channel(), braced.channel());
        assert_ne!(plain, braced);
    }

    #[test]
    fn related_keys_are_in_the_slot_of_the_name() {
        assert_eq!(name("n").beside("redisson_lock_queue"), "redisson_lock_queue:{n}");
        assert_eq!(name("n").below("timeout"), "{n}:timeout");
        assert_eq!(name("a:{n}").below("timeout"), "a:{n}:timeout");
    }

    #[test]
    fn an_empty_or_long_name_is_an_error() {
        assert_eq!(LockName::parse("").unwrap_err(), NameError::Empty);
        assert_eq!(LockName::of(Kind::Lock, "p:", "").unwrap_err(), NameError::Empty);
        assert!(LockName::parse(&"x".repeat(LockName::MAX_LEN)).is_ok());
        assert_eq!(LockName::of(Kind::Lock, "p", &"x".repeat(4096)).unwrap_err(), NameError::TooLong(4097));
    }

    #[test]
    fn the_keys_of_records_are_no_names() {
        for (prefix, text) in [("", "turnlock_waits"), ("turn", "lock_waits"), ("turnlock_", "client:x")] {
            let reserved = NameError::Reserved([prefix, text].concat());
            assert_eq!(LockName::of(Kind::Fair, prefix, text).unwrap_err(), reserved);
        }
        assert!(LockName::of(Kind::Lock, "p:", "turnlock_waits").is_ok());
        assert!(LockName::parse("turnlock_waits:").is_ok() && LockName::parse("turnlock_client").is_ok());
    }

    #[test]
    fn slots_equal_those_of_redis() {
        // Replies to `CLUSTER KEYSLOT` on Redis 7.0.
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("user:{foo}:name"), slot("foo"));
        assert_eq!(slot("{}foo"), slot("{}foo"));
        assert_ne!(slot("{}foo"), slot("foo"));
        assert_eq!(slot("a{foo}{bar}"), slot("foo"));
        assert_eq!(slot("{foo"), CHECKSUM.checksum(b"{foo") % SLOTS);
    }
}
