/// A command that a user must be allowed, with its subcommand where it has one: `script|load`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AclCommand {
    /// As `ACL SETUSER` takes it behind a plus sign.
    pub name: &'static str,
    /// What is lost without this command, where all else goes on; `None` when something then fails.
    pub without: Option<&'static str>,
}

impl AclCommand {
    pub(super) const fn needed(name: &'static str) -> Self {
        Self { name, without: None }
    }

    pub(super) const fn helpful(name: &'static str, without: &'static str) -> Self {
        Self { name, without: Some(without) }
    }
}

/// What every client does, whatever it locks.
pub(super) const ALWAYS: &[AclCommand] = &[
    AclCommand::needed("evalsha"),
    // The server forgets its scripts by a restart or SCRIPT FLUSH.
    AclCommand::needed("eval"),
    AclCommand::helpful("script|load", "the first call of each script carries its whole text"),
    AclCommand::helpful("ping", "the connection for messages is made anew every few seconds"),
    AclCommand::helpful(
        "role",
        "that an address is a replica's is found out at the first write, and not on connecting",
    ),
    AclCommand::helpful("type", "an error about a key that is no lock does not say what it is instead"),
];

/// What those need of which can be seen who holds them.
pub(super) const CLIENTS: &[AclCommand] =
    &[AclCommand::helpful("psetex", "others who ask who holds a lock do not learn who this client is")];

/// What those need whose ends are told.
pub(super) const MESSAGES: &[AclCommand] = &[
    AclCommand::needed("publish"),
    AclCommand::needed("subscribe"),
    AclCommand::helpful(
        "unsubscribe",
        "the connection for messages is made anew each time that nobody waits for a name any more",
    ),
];

/// The same in a cluster.
pub(super) const CLUSTER_MESSAGES: &[AclCommand] = &[
    AclCommand::needed("spublish"),
    AclCommand::needed("ssubscribe"),
    AclCommand::helpful(
        "sunsubscribe",
        "the connection for messages is made anew each time that nobody waits for a name any more",
    ),
    // Whether the servers know the three above.
    AclCommand::needed("pubsub|shardnumsub"),
];

pub(super) const CLUSTER: &[AclCommand] =
    &[AclCommand::needed("cluster|nodes"), AclCommand::needed("asking")];

pub(super) const REPLICA_SAFETY: &[AclCommand] = &[AclCommand::needed("wait")];

pub(super) const DATABASE: &[AclCommand] = &[AclCommand::needed("select")];

pub(super) const CLIENT_NAME: &[AclCommand] =
    &[AclCommand::helpful("client|setname", "the server's list of clients does not show the name")];

/// What it takes to find out what stands at a key.
pub(super) const FINDING: &[AclCommand] = &[
    AclCommand::needed("scan"),
    AclCommand::needed("type"),
    AclCommand::needed("hlen"),
    AclCommand::needed("hstrlen"),
    AclCommand::needed("hget"),
    AclCommand::needed("hrandfield"),
    AclCommand::needed("getrange"),
    AclCommand::needed("pttl"),
    AclCommand::needed("exists"),
    AclCommand::needed("zcard"),
];

/// What is read beside the locks themselves when a server is examined.
pub(super) const DOCTOR: &[AclCommand] = &[
    AclCommand::helpful("info", "version, persistence, replication and eviction stay unknown"),
    AclCommand::helpful(
        "config|get",
        "some settings of persistence, replication and connections stay unknown",
    ),
    AclCommand::helpful("time", "whether its clock is right stays unknown"),
];
