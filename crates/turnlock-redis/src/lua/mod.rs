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
    /// The name of this step in `batch.lua`; `None` if it cannot be batched.
    pub(crate) batch_step: Option<&'static str>,
}

impl Script {
    fn new(action: Action, batch_step: Option<&'static str>, source: &str) -> Self {
        let (standalone, sharded) = (ScriptText::new("publish", source), ScriptText::new("spublish", source));
        Self { standalone, sharded, action, batch_step }
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

/// Defines each script: what it does, its name in a batch if it has one, and the files that it is made of.
macro_rules! scripts {
    ($($name:ident: $action:ident $(as $step:literal)? = $($file:literal)+;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| {
                let source = concat!($(include_str!(concat!($file, ".lua"))),+);
                Script::new(Action::$action, None$(.or(Some($step)))?, source)
            });)*

        /// Returns all scripts, which are loaded when a connection is made.
        pub(crate) fn all() -> impl Iterator<Item = &'static Script> {
            [$(&*$name),*].into_iter()
        }
    };
}

// The files are put one after the other. The last one has the header of the script, for KEYS, ARGV and the reply.
scripts! {
    LOCK_ACQUIRE: Acquire as "a" = "lock_shape" "lock_acquire_step" "lock_acquire";
    LOCK_RELEASE: Release as "r" = "lock_release_step" "lock_release";
    BATCH: Other =
        "lock_shape" "lock_acquire_step" "lock_release_step" "plain_acquire_step" "plain_release_step" "batch";
    LOCK_RENEW: Renew = "lock_hold" "lines" "renew";
    LOCK_UNLOCK_AFTER: SetLease = "lock_hold" "lock_waiters" "unlock_after";
    LOCK_FORCE_UNLOCK: ForceUnlock = "lock_waiters" "force_unlock";
    LOCK_INSPECT: Inspect = "lock_inspect";
    FENCED_ACQUIRE: Acquire = "lock_shape" "lock_acquire_step" "fenced_acquire";
    FAIR_ACQUIRE: Acquire = "common" "lock_shape" "lock_acquire_step" "fair_queue" "fair_grant" "fair_acquire";
    FAIR_RELEASE: Release = "common" "lock_shape" "lock_acquire_step" "lock_release_step" "fair_queue" "fair_grant" "fair_release";
    FAIR_UNLOCK_AFTER: SetLease = "common" "fair_queue" "lock_hold" "fair_waiters" "unlock_after";
    FAIR_HEARTBEAT: Heartbeat = "common" "lines" "fair_queue" "fair_heartbeat";
    FAIR_FORCE_UNLOCK: ForceUnlock = "common" "fair_queue" "fair_waiters" "force_unlock";
    PLAIN_ACQUIRE: Acquire as "pa" = "plain_acquire_step" "plain_acquire";
    PLAIN_RELEASE: Release as "pr" = "plain_release_step" "plain_release";
    PLAIN_RENEW: Renew = "plain_hold" "lines" "renew";
    PLAIN_UNLOCK_AFTER: SetLease = "plain_hold" "lock_waiters" "unlock_after";
    PLAIN_FORCE_UNLOCK: ForceUnlock = "plain_force_unlock";
    PLAIN_INSPECT: Inspect = "plain_inspect";
    SEMAPHORE_ACQUIRE: Acquire = "common" "requests" "semaphore_acquire";
    SEMAPHORE_RELEASE: Release = "common" "requests" "semaphore_release";
    SEMAPHORE_PERFORM: Perform = "common" "requests" "semaphore_perform";
    SEMAPHORE_INSPECT: Inspect = "semaphore_inspect";
    PERMITS_ACQUIRE: Acquire = "common" "requests" "permits" "permits_acquire";
    PERMITS_RELEASE: Release = "common" "requests" "permits" "permits_release";
    PERMITS_RENEW: Renew = "common" "lines" "requests" "permits" "permits_renew";
    PERMITS_UNLOCK_AFTER: SetLease = "common" "requests" "permits" "permits_unlock_after";
    PERMITS_PERFORM: Perform = "common" "requests" "permits" "permits_perform";
    PERMITS_INSPECT: Inspect = "common" "requests" "permits" "permits_inspect";
    LATCH_PERFORM: Perform = "common" "requests" "latch_perform";
    REQUEST_FORGET: Forget = "request_forget";
    KEY_PROBE: Other = "key_probe";
    CLIENT_RECORD_WRITE: Other = "client_record_write";
    CLIENT_RECORD_READ: Other = "client_record_read";
    ACTIVITY_WRITE: Other = "activity_write";
    ACTIVITY_READ: Other = "activity_read";
    READ_ACQUIRE: Acquire = "common" "lock_shape" "read_write_holds" "read_acquire";
    READ_RELEASE: Release = "common" "read_write_holds" "read_release";
    WRITE_ACQUIRE: Acquire = "common" "lock_shape" "read_write_holds" "write_acquire";
    WRITE_RELEASE: Release = "common" "read_write_holds" "write_release";
    READ_WRITE_RENEW: Renew = "common" "lines" "read_write_holds" "read_write_renew";
    READ_WRITE_UNLOCK_AFTER: SetLease = "common" "read_write_holds" "read_write_unlock_after";
    READ_WRITE_FORCE_UNLOCK: ForceUnlock = "common" "read_write_holds" "read_write_force_unlock";
    READ_WRITE_INSPECT: Inspect = "common" "read_write_holds" "read_write_inspect";
}
