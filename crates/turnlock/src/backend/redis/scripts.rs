//! The Lua scripts, hashed once per process.
//!
//! The server identifies a script by the hash of its text. Scripts write Redisson's format (for plain locks,
//! that of redis-py and similar libraries). Keys with turnlock's own prefixes add what that format lacks:
//! heartbeats of fair waiters, the intent of a waiting writer, and request records. A client that does not
//! know those keys still respects every hold, so clients of different turnlock versions, with different
//! scripts, share the same locks on one server.

use std::sync::LazyLock;

use redis::Script as RedisScript;

/// How the server runs, which decides how scripts publish and which keys they name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ServerMode {
    /// One server has all keys.
    #[default]
    Standalone,
    /// A node of a cluster. Releases are published to all nodes (`PUBLISH`).
    Cluster,
    /// A node of a cluster. Releases are published in the slot of the lock (`SPUBLISH`).
    ShardedCluster,
}

impl ServerMode {
    pub(super) fn is_cluster(self) -> bool {
        self != Self::Standalone
    }

    pub(super) fn has_sharded_pubsub(self) -> bool {
        self == Self::ShardedCluster
    }
}

/// The text of a script, and the hash that identifies it on the server.
pub(super) struct ScriptText {
    pub(super) text: String,
    pub(super) hash: String,
}

impl ScriptText {
    fn new(publish: &str, source: &str) -> Self {
        let text = format!("local PUBLISH = '{publish}'\n{source}");
        let hash = RedisScript::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// A script, once for `PUBLISH` and once for `SPUBLISH`.
pub(super) struct Script {
    pub(super) standalone: ScriptText,
    sharded: ScriptText,
    /// `true` if it releases holds (release or forced unlock), so that waiters must be notified.
    pub(super) is_release: bool,
    /// The name of this step in a batch; `None` if it cannot be batched.
    pub(super) batch_step: Option<&'static str>,
}

impl Script {
    fn new(file: &str, source: &str) -> Self {
        let is_release = file.ends_with("_release") || file.ends_with("_force_unlock");
        let (_, batch_step) = BATCH_STEPS.iter().find(|(step, _)| file.ends_with(step)).copied().unzip();
        let (standalone, sharded) = (ScriptText::new("publish", source), ScriptText::new("spublish", source));
        Self { standalone, sharded, is_release, batch_step }
    }

    pub(super) fn text_for(&self, mode: ServerMode) -> &ScriptText {
        if mode.has_sharded_pubsub() { &self.sharded } else { &self.standalone }
    }
}

/// The steps that can be batched: the end of the file name, and the name of the step in `batch.lua`.
const BATCH_STEPS: [(&str, &str); 4] =
    [("lock_acquire", "a"), ("lock_release", "r"), ("plain_acquire", "pa"), ("plain_release", "pr")];

/// Defines each script by the files that it is made of.
macro_rules! scripts {
    ($($name:ident = $($file:literal)+;)*) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let source = concat!($(include_str!(concat!("lua/", $file, ".lua"))),+);
                Script::new(concat!($($file),+), source)
            });)*

        /// Returns all scripts, which are loaded when a connection is made.
        pub(super) fn all() -> impl Iterator<Item = &'static Script> {
            [$(&*$name),*].into_iter()
        }
    };
}

// All files but the last are shared by several scripts.
scripts! {
    LOCK_ACQUIRE = "lock_shape" "lock_acquire_step" "lock_acquire";
    LOCK_RELEASE = "lock_release_step" "lock_release";
    BATCH = "lock_shape" "lock_acquire_step" "lock_release_step" "plain_acquire_step" "plain_release_step" "batch";
    LOCK_RENEW = "lines" "lock_renew";
    LOCK_UNLOCK_AFTER = "lock_unlock_after";
    LOCK_FORCE_UNLOCK = "lock_force_unlock";
    LOCK_INSPECT = "lock_inspect";
    FENCED_ACQUIRE = "lock_shape" "fenced_acquire";
    FAIR_ACQUIRE = "lock_shape" "lock_acquire_step" "fair_queue" "fair_acquire";
    FAIR_RELEASE = "lock_release_step" "fair_queue" "fair_release";
    FAIR_UNLOCK_AFTER = "fair_queue" "fair_unlock_after";
    FAIR_HEARTBEAT = "lines" "fair_queue" "fair_heartbeat";
    FAIR_FORCE_UNLOCK = "fair_queue" "fair_force_unlock";
    FAIR_INSPECT = "fair_inspect";
    PLAIN_ACQUIRE = "plain_acquire_step" "plain_acquire";
    PLAIN_RELEASE = "plain_release_step" "plain_release";
    PLAIN_RENEW = "lines" "plain_renew";
    PLAIN_UNLOCK_AFTER = "plain_unlock_after";
    PLAIN_FORCE_UNLOCK = "plain_force_unlock";
    PLAIN_INSPECT = "plain_inspect";
    SEMAPHORE_ACQUIRE = "requests" "semaphore_acquire";
    SEMAPHORE_RELEASE = "requests" "semaphore_release";
    SEMAPHORE_PERFORM = "requests" "semaphore_perform";
    SEMAPHORE_INSPECT = "semaphore_inspect";
    PERMITS_ACQUIRE = "requests" "permits" "permits_acquire";
    PERMITS_RELEASE = "requests" "permits" "permits_release";
    PERMITS_RENEW = "lines" "requests" "permits" "permits_renew";
    PERMITS_UNLOCK_AFTER = "requests" "permits" "permits_unlock_after";
    PERMITS_PERFORM = "requests" "permits" "permits_perform";
    PERMITS_INSPECT = "requests" "permits" "permits_inspect";
    LATCH_PERFORM = "requests" "latch_perform";
    REQUEST_FORGET = "request_forget";
    KEY_PROBE = "key_probe";
    CLIENT_RECORD_WRITE = "client_record_write";
    CLIENT_RECORD_READ = "client_record_read";
    READ_ACQUIRE = "lock_shape" "read_write_holds" "read_acquire";
    READ_RELEASE = "read_write_holds" "read_release";
    WRITE_ACQUIRE = "lock_shape" "read_write_holds" "write_acquire";
    WRITE_RELEASE = "read_write_holds" "write_release";
    READ_WRITE_RENEW = "lines" "read_write_holds" "read_write_renew";
    READ_WRITE_UNLOCK_AFTER = "read_write_holds" "read_write_unlock_after";
    READ_WRITE_FORCE_UNLOCK = "read_write_holds" "read_write_force_unlock";
    READ_WRITE_INSPECT = "read_write_holds" "read_write_inspect";
}
