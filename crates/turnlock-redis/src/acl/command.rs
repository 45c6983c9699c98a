/// A command in an [`AclRule`](super::AclRule), with its subcommand if it has one: `script|load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AclCommand {
    /// The name as in `ACL SETUSER`, without the plus sign.
    pub name: &'static str,
    /// The effect of leaving out an optional command; `None` if the command is required.
    pub if_missing: Option<&'static str>,
}

/// The commands of one feature.
pub(super) struct Commands {
    /// The names of the required commands, separated by spaces.
    pub(super) required: &'static str,
    /// The optional commands, each with the effect of leaving it out.
    pub(super) optional: &'static [(&'static str, &'static str)],
}

impl Commands {
    pub(super) const fn required(required: &'static str) -> Self {
        Self { required, optional: &[] }
    }

    const fn optional(optional: &'static [(&'static str, &'static str)]) -> Self {
        Self { required: "", optional }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = AclCommand> {
        let required = self.required.split_whitespace().map(|name| AclCommand { name, if_missing: None });
        let optional =
            self.optional.iter().map(|&(name, effect)| AclCommand { name, if_missing: Some(effect) });
        required.chain(optional)
    }
}

/// The commands of every client.
pub(super) const ALWAYS: Commands = Commands {
    // EVAL: the server loses its scripts in a restart, and by SCRIPT FLUSH.
    required: "evalsha eval",
    optional: &[
        ("script|load", "the first call of each script sends its whole text"),
        ("ping", "the connection for messages reconnects every few seconds"),
        ("role", "a connection to a replica is detected at the first write, and not on connecting"),
        ("type", "an error about a key that is not a lock does not name the type of the key"),
    ],
};

/// For primitives whose holders can be identified: the client's record.
pub(super) const CLIENT_RECORD: Commands = Commands::optional(&[(
    "psetex",
    "other clients that inspect a lock cannot identify this client as its holder",
)]);

const NOT_ANNOUNCED: &str = "this client does not announce its waits and holds, and finds no deadlocks";

/// For the announcement of waits and holds.
pub(super) const ACTIVITY: Commands = Commands::optional(&[
    ("time", NOT_ANNOUNCED),
    ("hset", NOT_ANNOUNCED),
    ("hdel", NOT_ANNOUNCED),
    ("hlen", NOT_ANNOUNCED),
    ("hrandfield", NOT_ANNOUNCED),
    ("pexpire", NOT_ANNOUNCED),
]);

const RECONNECTS: &str =
    "the connection for messages reconnects each time the last waiter for a name is gone";

/// For primitives that publish their releases.
pub(super) const MESSAGES: Commands =
    Commands { required: "publish subscribe", optional: &[("unsubscribe", RECONNECTS)] };

/// For the same primitives in a cluster: sharded channels.
pub(super) const CLUSTER_MESSAGES: Commands = Commands {
    // The last one is to find out whether the servers support the others.
    required: "spublish ssubscribe pubsub|shardnumsub",
    optional: &[("sunsubscribe", RECONNECTS)],
};

pub(super) const CLUSTER: Commands = Commands::required("cluster|nodes asking");

pub(super) const REPLICAS: Commands = Commands::required("wait");

pub(super) const DATABASE: Commands = Commands::required("select");

pub(super) const CLIENT_NAME: Commands =
    Commands::optional(&[("client|setname", "`CLIENT LIST` does not show the name")]);

/// To find the keys of locks, and what each of them is.
pub(super) const FIND: Commands =
    Commands::required("scan type hlen hstrlen hget hrandfield getrange pttl exists zcard");

/// For the doctor's facts about a server.
pub(super) const DOCTOR: Commands = Commands::optional(&[
    ("info", "version, persistence, replication and eviction are unknown"),
    ("config|get", "some settings of persistence, replication and connections are unknown"),
    ("time", "the server's clock is unknown"),
]);
