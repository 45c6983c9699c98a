use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Cmd;
use tokio::task::JoinSet;
use turnlock_core::Moment;

use super::driver;
use super::in_flight::Commands;
use super::multiplexer::Multiplexer;
use crate::access::Access;
use crate::common::Common;
use crate::endpoint::{Endpoint, ResolvedEndpoint};
use crate::failure;
use crate::lua;
use crate::reply_slot::Outcome;
use turnlock_store::clock;
use turnlock_store::{Failure, Sent};

/// One established connection.
pub(crate) struct LiveConnection {
    pub(super) multiplexer: Arc<Multiplexer>,
    /// The task that drives the connection. It ends when the last user drops the connection.
    _driver: JoinSet<()>,
    pub(super) number: u64,
    /// The epoch in which the endpoint was resolved.
    pub(super) epoch: u64,
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

impl LiveConnection {
    /// Connects, logs in, checks the role of the server, and loads the scripts, as far as `purpose` requires it.
    ///
    /// All commands are sent at once: after the stream is open, this takes one round trip.
    pub(super) async fn open(
        common: &Arc<Common>,
        endpoint: &Endpoint,
        ResolvedEndpoint { address, epoch }: ResolvedEndpoint,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let connect_failed = |error| failure::connect_failed(&address, error);
        let stream = common.access.connect(&address).await.map_err(|error| connect_failed(error.into()))?;
        let (reader, writer) = tokio::io::split(stream);
        let number = common.next_connection_number();
        let multiplexer = Arc::new(Multiplexer::new(number, common.server_mode, writer));
        let endpoint = endpoint.clone();
        let moved = async move { endpoint.wait_until_moved(epoch).await };
        let notified = Arc::clone(common);
        let on_batch = move |steps| notified.notify(|signals| signals.call_shared(steps));
        let mut driver = JoinSet::new();
        driver.spawn_on(driver::run(Arc::clone(&multiplexer), reader, moved, on_batch), &common.runtime);
        let live = Self { multiplexer, _driver: driver, number, epoch, suspect: AtomicBool::new(false) };
        let setup = setup_commands(common, purpose);
        // The time limit is that of connecting as a whole.
        let sent: Vec<_> = setup.iter().map(|(setup, cmd)| (setup, live.send_setup(cmd))).collect();
        // A server that refuses the connection replies with an error to the first command, or before it, and closes.
        let mut refusal = None;
        for (setup, command) in sent {
            let reply = match command.slot.outcome().await {
                Outcome::Replied(reply, _) => reply.extract_error(),
                outcome => {
                    let error = match outcome {
                        Outcome::Broken(error, _) => error,
                        _ => io::Error::from(io::ErrorKind::ConnectionReset).into(),
                    };
                    return Err(connect_failed(live.multiplexer.refusal().or(refusal).unwrap_or(error)));
                }
            };
            match (setup, reply) {
                (Setup::Role, Ok(role)) => failure::check_master(&address, &role)?,
                (_, Ok(_)) => {}
                (Setup::Login, Err(error)) if failure::is_about_login(&error) => {
                    return Err(failure::login_failed(error));
                }
                // A user without permission to load scripts can still run them by their text, and one without
                // permission for `ROLE` gets an error from a replica later.
                (Setup::Role | Setup::Optional, Err(error))
                    if !failure::breaks_connection(&error) && !failure::is_unauthenticated(&error) =>
                {
                    refusal = refusal.or(Some(error)).filter(|error| !failure::is_denial(error));
                }
                (_, Err(error)) => return Err(connect_failed(error)),
            }
        }
        Ok(live)
    }

    fn send_setup(&self, cmd: &Cmd) -> Arc<Commands> {
        let command = Commands::one(cmd);
        self.multiplexer.send(&command, clock::now(), Moment::NEVER);
        command
    }

    pub(super) fn is_suspect(&self, now: Moment) -> bool {
        self.suspect.load(Ordering::Relaxed)
            || now.since(self.multiplexer.last_reply()) > IDLE_LIMIT
            || self.multiplexer.is_retired()
    }

    /// Returns `true` if any request got a reply since this one was sent.
    pub(super) fn has_replied_since(&self, sent: Sent) -> bool {
        self.multiplexer.last_reply() >= sent.at
    }
}

/// What the reply to a setup command means.
#[derive(Clone, Copy)]
enum Setup {
    Login,
    /// Must succeed.
    Required,
    Role,
    /// May be denied.
    Optional,
}

/// The commands that set up a new connection.
fn setup_commands(common: &Common, purpose: Purpose) -> Vec<(Setup, Cmd)> {
    let Access { username, password, database, client_name, .. } = &common.access;
    let mut cmds = Vec::new();
    if let Some(password) = password {
        cmds.push((Setup::Login, redis::cmd("AUTH").arg(username).arg(password.reveal()).take()));
    }
    if *database != 0 {
        cmds.push((Setup::Required, redis::cmd("SELECT").arg(database).take()));
    }
    cmds.extend(client_name.iter().map(|name| (Setup::Optional, Cmd::client_setname(name))));
    if purpose != Purpose::Discovery {
        cmds.push((Setup::Role, redis::cmd("ROLE")));
    }
    if purpose == Purpose::Scripts {
        let texts = lua::all().map(|script| &script.text_for(common.server_mode).text);
        let load = |text| redis::cmd("SCRIPT").arg("LOAD").arg(text).take();
        cmds.extend(texts.map(|text| (Setup::Optional, load(text))));
    }
    cmds
}
