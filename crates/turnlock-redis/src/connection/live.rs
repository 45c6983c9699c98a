use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, RedisResult, Value};
use tokio::task::JoinSet;
use turnlock_core::Moment;

use crate::common::Common;
use crate::endpoint::ResolvedEndpoint;
use crate::failure;
use crate::lua;
use turnlock_store::clock;
use turnlock_store::{Failure, Sent};

/// One established connection.
pub(crate) struct LiveConnection {
    pub(super) connection: MultiplexedConnection,
    /// The task that drives the connection. It ends when the last user drops the connection.
    _driver: JoinSet<()>,
    pub(super) number: u64,
    /// The epoch in which the endpoint was resolved.
    pub(super) epoch: u64,
    /// The time of the last reply, in microseconds of the local clock.
    last_reply: AtomicU64,
    /// Something happened that may have broken the connection.
    pub(super) suspect: AtomicBool,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Locks. The server must be a master; its scripts are loaded.
    Scripts,
    /// Locks that replicas acknowledge. Another connection has loaded the scripts.
    ReplicatedScripts,
    /// Queries about the deployment, which any server can reply to.
    Discovery,
}

/// The idle time after which a connection is checked with `PING` before it is used.
///
/// Servers, firewalls and the like close idle connections.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// The number of requests that can wait to be written.
///
/// More than any sender sends at once: behind a full queue, requests of one sender can overtake each other.
const QUEUE_SIZE: usize = 1024;

impl LiveConnection {
    /// Connects, logs in, checks the role of the server, and loads the scripts, as far as `purpose` requires it.
    pub(super) async fn open(
        common: &Common,
        resolved: ResolvedEndpoint,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let connect_failed = |error| failure::connect_failed(&resolved.address, error);
        let stream =
            common.access.connect(&resolved.address).await.map_err(|error| connect_failed(error.into()))?;
        // Time limits are set here, on each step and on connecting as a whole.
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(QUEUE_SIZE);
        let info = common.access.connection_info();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&info, stream, config).await.map_err(connect_failed)?;
        let mut driving = JoinSet::new();
        driving.spawn_on(driver, &common.runtime);
        let live = Self {
            connection,
            _driver: driving,
            number: common.next_connection_number(),
            epoch: resolved.epoch,
            last_reply: AtomicU64::new(clock::now().as_micros()),
            suspect: AtomicBool::new(false),
        };
        if purpose != Purpose::Discovery
            && let Some(role) = live.set_up(&[redis::cmd("ROLE")]).await.map_err(connect_failed)?.first()
        {
            failure::check_master(&resolved.address, role)?;
        }
        live.set_up(&setup_commands(common, purpose)).await.map_err(connect_failed)?;
        Ok(live)
    }

    /// Sends setup commands on a new connection.
    ///
    /// Error replies are left out, unless one breaks the connection or requires a login. A user without permission to
    /// load scripts can still run them by their text, and one without permission for `ROLE` gets an error from a replica
    /// later.
    async fn set_up(&self, cmds: &[Cmd]) -> RedisResult<Vec<Value>> {
        let replies = cmds.iter().map(|cmd| {
            let mut connection = self.connection.clone();
            async move { connection.send_packed_command(cmd).await.and_then(Value::extract_error) }
        });
        let is_tolerated =
            |error: &RedisError| !failure::breaks_connection(error) && !failure::is_unauthenticated(error);
        let replies = join_all(replies).await.into_iter();
        replies.filter(|reply| !matches!(reply, Err(error) if is_tolerated(error))).collect()
    }

    /// Returns the record of a request that is sent now.
    pub(crate) fn sent_now(&self) -> Sent {
        Sent { connection: self.number, at: clock::now() }
    }

    pub(super) fn is_suspect(&self) -> bool {
        let last_reply = Moment::from_micros(self.last_reply.load(Ordering::Relaxed));
        self.suspect.load(Ordering::Relaxed) || clock::now().since(last_reply) > IDLE_LIMIT
    }

    pub(super) fn record_reply(&self) {
        self.last_reply.store(clock::now().as_micros(), Ordering::Relaxed);
    }

    /// Returns `true` if any request got a reply since this one was sent.
    pub(super) fn has_replied_since(&self, sent: Sent) -> bool {
        self.last_reply.load(Ordering::Relaxed) >= sent.at.as_micros()
    }
}

/// The commands that set up a new connection, once the role of the server is checked.
fn setup_commands(common: &Common, purpose: Purpose) -> Vec<Cmd> {
    let mut cmds: Vec<_> = common.access.client_name.iter().map(Cmd::client_setname).collect();
    if purpose == Purpose::Scripts {
        let texts = lua::all().map(|script| &script.text_for(common.server_mode).text);
        cmds.extend(texts.map(|text| redis::cmd("SCRIPT").arg("LOAD").arg(text).take()));
    }
    cmds
}
