/// A command in an [`AclRule`](super::AclRule), with its subcommand if it has one: `script|load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AclCommand {
    /// The name as in `ACL SETUSER`, without the plus sign.
    pub name: &'static str,
    /// The effect of leaving out an optional command; `None` if the command is required.
    pub if_missing: Option<&'static str>,
}

impl AclCommand {
    pub(super) const fn required(name: &'static str) -> Self {
        Self { name, if_missing: None }
    }

    pub(super) const fn optional(name: &'static str, if_missing: &'static str) -> Self {
        Self { name, if_missing: Some(if_missing) }
    }
}

/// The commands of every client.
pub(super) const ALWAYS: &[AclCommand] = &[
    AclCommand::required("evalsha"),
    // The server loses its scripts in a restart, and by SCRIPT FLUSH.
    AclCommand::required("eval"),
    AclCommand::optional("script|load", "the first call of each script sends its whole text"),
    AclCommand::optional("ping", "the connection for messages reconnects every few seconds"),
    AclCommand::optional(
        "role",
        "a connection to a replica is detected at the first write, and not on connecting",
    ),
    AclCommand::optional("type", "an error about a key that is not a lock does not name the type of the key"),
];

/// For primitives whose holders can be identified: the client's record.
pub(super) const CLIENT_RECORD: &[AclCommand] = &[AclCommand::optional(
    "psetex",
    "other clients that inspect a lock cannot identify this client as its holder",
)];

/// For primitives that publish their releases.
pub(super) const MESSAGES: &[AclCommand] = &[
    AclCommand::required("publish"),
    AclCommand::required("subscribe"),
    AclCommand::optional(
        "unsubscribe",
        "the connection for messages reconnects each time the last waiter for a name is gone",
    ),
];

/// For the same primitives in a cluster: sharded channels.
pub(super) const CLUSTER_MESSAGES: &[AclCommand] = &[
    AclCommand::required("spublish"),
    AclCommand::required("ssubscribe"),
    AclCommand::optional(
        "sunsubscribe",
        "the connection for messages reconnects each time the last waiter for a name is gone",
    ),
    // To find out whether the servers support the three above.
    AclCommand::required("pubsub|shardnumsub"),
];

pub(super) const CLUSTER: &[AclCommand] =
    &[AclCommand::required("cluster|nodes"), AclCommand::required("asking")];

pub(super) const REPLICAS: &[AclCommand] = &[AclCommand::required("wait")];

pub(super) const DATABASE: &[AclCommand] = &[AclCommand::required("select")];

pub(super) const CLIENT_NAME: &[AclCommand] =
    &[AclCommand::optional("client|setname", "`CLIENT LIST` does not show the name")];

/// To find the keys of locks, and what each of them is.
pub(super) const FIND: &[AclCommand] = &[
    AclCommand::required("scan"),
    AclCommand::required("type"),
    AclCommand::required("hlen"),
    AclCommand::required("hstrlen"),
    AclCommand::required("hget"),
    AclCommand::required("hrandfield"),
    AclCommand::required("getrange"),
    AclCommand::required("pttl"),
    AclCommand::required("exists"),
    AclCommand::required("zcard"),
];

/// For the doctor's facts about a server.
pub(super) const DOCTOR: &[AclCommand] = &[
    AclCommand::optional("info", "version, persistence, replication and eviction are unknown"),
    AclCommand::optional(
        "config|get",
        "some settings of persistence, replication and connections are unknown",
    ),
    AclCommand::optional("time", "the server's clock is unknown"),
];
