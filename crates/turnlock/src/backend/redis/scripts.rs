//! The scripts, hashed once.
//!
//! A script is known to the server by the hash of its text. What it writes is Redisson's format (a plain lock's: that of
//! redis-py and its kin), and beside it, under a prefix of our own, what is needed to do better: the signs of life of fair
//! waiters, the word of a waiting writer, and the memory of requests. Whoever does not know those keys still respects
//! every hold. So clients of two versions of turnlock, with different scripts, share one server and the same locks.

use std::sync::LazyLock;

use redis::Script as Source;

/// How scripts speak, which depends on where they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    /// To a server that has all keys.
    #[default]
    Alone,
    /// To a node of a cluster, which tells its releases to all nodes.
    Cluster,
    /// To a node of a cluster, which tells its releases where the slot is.
    ShardedCluster,
}

impl Dialect {
    pub(super) fn is_in_cluster(self) -> bool {
        self != Self::Alone
    }

    pub(super) fn is_sharded(self) -> bool {
        self == Self::ShardedCluster
    }
}

/// A script by its text and the hash that the server knows it by.
pub(super) struct Spoken {
    pub(super) text: String,
    pub(super) hash: String,
}

impl Spoken {
    fn new(publish: &str, source: &str) -> Self {
        let text = format!("local PUBLISH = '{publish}'\n{source}");
        let hash = Source::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// A script as it is said to a server that has all keys, and where messages are sharded.
pub(super) struct Script {
    pub(super) alone: Spoken,
    sharded: Spoken,
    /// Whether it ends a hold and tells those who wait.
    pub(super) ends_holds: bool,
    /// What a convoy calls this step, if it takes it along.
    pub(super) in_convoy: Option<&'static str>,
}

impl Script {
    fn new(file: &str, source: &str) -> Self {
        let ends_holds = file.ends_with("_release") || file.ends_with("_force_unlock");
        let (_, in_convoy) = IN_CONVOY.iter().find(|(step, _)| file.ends_with(step)).copied().unzip();
        let (alone, sharded) = (Spoken::new("publish", source), Spoken::new("spublish", source));
        Self { alone, sharded, ends_holds, in_convoy }
    }

    pub(super) fn spoken(&self, dialect: Dialect) -> &Spoken {
        if dialect.is_sharded() { &self.sharded } else { &self.alone }
    }
}

/// The steps that a convoy takes along, by their files, and what it calls them.
const IN_CONVOY: [(&str, &str); 4] =
    [("lock_acquire", "a"), ("lock_release", "r"), ("plain_acquire", "pa"), ("plain_release", "pr")];

/// Names a script by its file.
macro_rules! scripts {
    ($($name:ident = $($file:literal)+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($($file),+), concat!($(include_str!(concat!("lua/", $file, ".lua"))),+)));)*

        /// All of them, to be loaded when a connection is made.
        pub(super) fn all() -> impl Iterator<Item = &'static Script> {
            [$(&*$name),*].into_iter()
        }
    };
}

// Where several files are named, all but the last have what several scripts have in common.
scripts! {
    LOCK_ACQUIRE = "lock_shape" "lock_acquire_step" "lock_acquire";
    LOCK_RELEASE = "lock_release_step" "lock_release";
    CONVOY = "lock_shape" "lock_acquire_step" "lock_release_step" "plain_acquire_step" "plain_release_step" "convoy";
    LOCK_RENEW = "lines" "lock_renew";
    LOCK_KEEP = "lock_keep";
    LOCK_FORCE_UNLOCK = "lock_force_unlock";
    LOCK_INSPECT = "lock_inspect";
    FENCED_ACQUIRE = "lock_shape" "fenced_acquire";
    FAIR_ACQUIRE = "lock_shape" "lock_acquire_step" "fair_queue" "fair_acquire";
    FAIR_RELEASE = "lock_release_step" "fair_queue" "fair_release";
    FAIR_KEEP = "fair_queue" "fair_keep";
    FAIR_ATTEND = "lines" "fair_queue" "fair_attend";
    FAIR_FORCE_UNLOCK = "fair_queue" "fair_force_unlock";
    FAIR_INSPECT = "fair_inspect";
    PLAIN_ACQUIRE = "plain_acquire_step" "plain_acquire";
    PLAIN_RELEASE = "plain_release_step" "plain_release";
    PLAIN_RENEW = "lines" "plain_renew";
    PLAIN_KEEP = "plain_keep";
    PLAIN_FORCE_UNLOCK = "plain_force_unlock";
    PLAIN_INSPECT = "plain_inspect";
    SEMAPHORE_ACQUIRE = "requests" "semaphore_acquire";
    SEMAPHORE_RELEASE = "requests" "semaphore_release";
    SEMAPHORE_PERFORM = "requests" "semaphore_perform";
    SEMAPHORE_INSPECT = "semaphore_inspect";
    PERMITS_ACQUIRE = "requests" "permits" "permits_acquire";
    PERMITS_RELEASE = "requests" "permits" "permits_release";
    PERMITS_RENEW = "lines" "requests" "permits" "permits_renew";
    PERMITS_KEEP = "requests" "permits" "permits_keep";
    PERMITS_PERFORM = "requests" "permits" "permits_perform";
    PERMITS_INSPECT = "requests" "permits" "permits_inspect";
    LATCH_PERFORM = "requests" "latch_perform";
    REQUEST_FORGET = "request_forget";
    KEY_LOOK = "key_look";
    CLIENT_INTRODUCE = "client_introduce";
    CLIENT_READ = "client_read";
    READ_ACQUIRE = "lock_shape" "read_write_holds" "read_acquire";
    READ_RELEASE = "read_write_holds" "read_release";
    WRITE_ACQUIRE = "lock_shape" "read_write_holds" "write_acquire";
    WRITE_RELEASE = "read_write_holds" "write_release";
    READ_WRITE_RENEW = "lines" "read_write_holds" "read_write_renew";
    READ_WRITE_KEEP = "read_write_holds" "read_write_keep";
    READ_WRITE_FORCE_UNLOCK = "read_write_holds" "read_write_force_unlock";
    READ_WRITE_INSPECT = "read_write_holds" "read_write_inspect";
}
