//! The scripts, hashed once.
//!
//! A script is known to the server by the hash of its text, and what it writes is Redisson's format and nothing else.
//! So clients of two versions of turnlock, with different scripts, share one server and the same locks.

use std::sync::LazyLock;

use redis::Script as Source;

pub(super) struct Script {
    pub(super) text: &'static str,
    pub(super) hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: Source::new(text).get_hash().to_owned() }
    }
}

pub(super) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("acquire.lua")));
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("renew.lua")));
pub(super) static FORCE_UNLOCK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("force_unlock.lua")));
pub(super) static INSPECT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("inspect.lua")));

/// All of them, to be loaded when a connection is made.
pub(super) fn all() -> [&'static Script; 5] {
    [&ACQUIRE, &RELEASE, &RENEW, &FORCE_UNLOCK, &INSPECT]
}
