//! The Lua scripts, hashed once per process.
//!
//! The server identifies a script by the hash of its text. Scripts write Redisson's format (for plain locks,
//! that of redis-py and similar libraries). Keys with turnlock's own prefixes add what that format lacks:
//! heartbeats of fair waiters, the intent of a waiting writer, and request records. A client that does not
//! know those keys still respects every hold, so clients of different turnlock versions, with different
//! scripts, share the same locks on one server.

use std::sync::LazyLock;

use redis::{Script as RedisScript, Value};

/// How the server runs, which decides how scripts publish and which keys they name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServerMode {
    /// One server has all keys.
    #[default]
    Standalone,
    /// A node of a cluster. Releases are published to all nodes (`PUBLISH`).
    Cluster,
    /// A node of a cluster. Releases are published in the slot of the lock (`SPUBLISH`).
    ShardedCluster,
}

impl ServerMode {
    pub(crate) fn is_cluster(self) -> bool {
        self != Self::Standalone
    }

    pub(crate) fn has_sharded_pubsub(self) -> bool {
        self == Self::ShardedCluster
    }
}

/// The text of a script, and the hash that identifies it on the server.
pub(crate) struct ScriptText {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl ScriptText {
    fn new(publish: &str, source: &str) -> Self {
        let text = format!("local PUBLISH = '{publish}'\n{source}");
        let hash = RedisScript::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// A script, once for `PUBLISH` and once for `SPUBLISH`.
pub(crate) struct Script {
    pub(crate) standalone: ScriptText,
    sharded: ScriptText,
    pub(crate) action: Action,
    /// The name of this step in a batch; `None` if it cannot be batched.
    pub(crate) batch_step: Option<&'static str>,
}

impl Script {
    fn new(file: &str, source: &str) -> Self {
        let (_, action) = ACTIONS.iter().find(|(end, _)| file.ends_with(end)).copied().unzip();
        let (_, batch_step) = BATCH_STEPS.iter().find(|(step, _)| file.ends_with(step)).copied().unzip();
        let (standalone, sharded) = (ScriptText::new("publish", source), ScriptText::new("spublish", source));
        Self { standalone, sharded, action: action.unwrap_or(Action::Other), batch_step }
    }

    pub(crate) fn text_for(&self, mode: ServerMode) -> &ScriptText {
        if mode.has_sharded_pubsub() { &self.sharded } else { &self.standalone }
    }
}

/// What a script does, which decides what its reply means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire,
    Release,
    Renew,
    SetLease,
    ForceUnlock,
    Heartbeat,
    Perform,
    Forget,
    Inspect,
    /// Nothing to a lock.
    Other,
}

/// The ends of file names, and what such a script does.
const ACTIONS: [(&str, Action); 9] = [
    ("_acquire", Action::Acquire),
    ("_release", Action::Release),
    ("_renew", Action::Renew),
    ("_force_unlock", Action::ForceUnlock),
    ("_unlock_after", Action::SetLease),
    ("_heartbeat", Action::Heartbeat),
    ("_perform", Action::Perform),
    ("_forget", Action::Forget),
    ("_inspect", Action::Inspect),
];

impl Action {
    /// Returns `true` if it ends holds, so that waiters must be notified.
    pub(crate) fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::ForceUnlock)
    }

    /// Returns `true` if it extends the lease of a hold, so that it must not queue behind acquires.
    pub(crate) fn extends_lease(self) -> bool {
        matches!(self, Self::Renew | Self::SetLease)
    }

    /// Returns `true` if replicas can be required to acknowledge it.
    pub(crate) fn can_be_acknowledged(self) -> bool {
        self == Self::Acquire || self.extends_lease()
    }

    /// Returns `true` for a reply that reports a write which replicas must acknowledge.
    pub(crate) fn needs_ack(self, reply: &Value) -> bool {
        match (self, reply) {
            (Self::Acquire, reply) => matches!(reply, Value::Nil | Value::Array(_)),
            (Self::Renew, Value::Array(lines)) => lines.iter().any(|line| matches!(line, Value::Int(1 | 2))),
            (Self::SetLease, reply) => *reply == Value::Int(1),
            _ => false,
        }
    }
}

/// The steps that can be batched: the end of the file name, and the name of the step in `batch.lua`.
const BATCH_STEPS: [(&str, &str); 4] =
    [("lock_acquire", "a"), ("lock_release", "r"), ("plain_acquire", "pa"), ("plain_release", "pr")];

/// Defines each script by the files that it is made of.
macro_rules! scripts {
    ($($name:ident = $($file:literal)+;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let source = concat!($(include_str!(concat!($file, ".lua"))),+);
                Script::new(concat!($($file),+), source)
            });)*

        /// Returns all scripts, which are loaded when a connection is made.
        pub(crate) fn all() -> impl Iterator<Item = &'static Script> {
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
