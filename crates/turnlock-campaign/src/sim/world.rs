//! The simulated network and servers.

mod delays;
mod directory;
mod faults;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use turnlock_core::model::{Reply, Step};
use turnlock_core::{ClientId, Kind, LockName};
use turnlock_store::simulation::Process;
use turnlock_store::{Failure, FailureKind, Sent, Signals, StepOptions, clock};

pub(super) use faults::Denial;

use super::plan::Plan;
use super::server::Server;
use crate::history::What;
use crate::recorder::Recorder;

/// The network, the servers, and the connections of all clients.
pub(crate) struct World(Mutex<State>);

struct State {
    rng: Rng,
    recorder: Arc<Recorder>,
    /// The longest usual delay of a message, in milliseconds.
    delay_ms: u64,
    /// The master, and a former master that some clients still reach.
    master: Server,
    old_master: Option<Server>,
    /// The number of entries that the replica has, if it receives nothing.
    frozen_replica: Option<usize>,
    links: Vec<Link>,
    next_connection: u64,
    next_call: u64,
    calls: BTreeMap<u64, Call>,
    /// When the last request arrives that was sent.
    last_arrival: Instant,
    is_slow: bool,
    is_duplicating: bool,
    is_losing_messages: bool,
    /// Nothing arrives before this.
    black_hole: Option<Instant>,
}

/// The way of one client to the servers.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct Link {
    client: ClientId,
    process: Process,
    signals: Option<Weak<dyn Signals>>,
    /// The number of the connection. `None` while it is not connected.
    connection: Option<u64>,
    was_connected: bool,
    reaches_old_master: bool,
    /// Requests arrive in order: not before the last one.
    last_arrival: Instant,
    /// Keys, with the number of subscriptions. `is_listening`: they reach the server.
    subscriptions: BTreeMap<String, u32>,
    is_listening: bool,
    /// The requests that the server denies.
    denial: Denial,
    is_dead: bool,
}

/// A request without a reply.
struct Call {
    link: usize,
    connection: u64,
    reply: oneshot::Sender<Delivered>,
}

/// What arrives for a call.
enum Delivered {
    Reply {
        replies: Vec<Result<Reply, Failure>>,
        notified: u32,
        replicas: u32,
    },
    /// The server refused all of it.
    Refused(Failure),
    /// The connection broke.
    Broken,
}

/// The replies to the steps of a request.
pub(super) struct Replies {
    pub(super) values: Vec<Result<Reply, Failure>>,
    pub(super) sent: Sent,
    pub(super) notified: u32,
    pub(super) replicas: u32,
}

/// The time between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl World {
    /// The world of deployment `number` of a plan.
    pub(super) fn new(plan: &Plan, number: u32, recorder: &Arc<Recorder>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            rng: Rng::with_seed(plan.seed ^ 0x0077_6f72_6c64 ^ (u64::from(number) << 40)),
            recorder: Arc::clone(recorder),
            delay_ms: plan.delay_ms,
            master: Server::new(plan.drift, plan.needs_log()),
            old_master: None,
            frozen_replica: None,
            links: Vec::new(),
            next_connection: 1,
            next_call: 1,
            calls: BTreeMap::new(),
            last_arrival: Instant::now(),
            is_slow: false,
            is_duplicating: false,
            is_losing_messages: false,
            black_hole: None,
        })))
    }

    /// Adds the link of a new client, which runs in `process`. Returns its number.
    pub(super) fn add_link(&self, client: ClientId, process: Process) -> usize {
        let links = &mut self.0.lock().links;
        links.push(Link {
            client,
            process,
            signals: None,
            connection: None,
            was_connected: false,
            reaches_old_master: false,
            last_arrival: Instant::now(),
            subscriptions: BTreeMap::new(),
            is_listening: true,
            denial: Denial::None,
            is_dead: false,
        });
        links.len() - 1
    }

    pub(super) fn attach(&self, link: usize, signals: Weak<dyn Signals>) {
        self.0.lock().links[link].signals = Some(signals);
    }

    /// Sends steps, and waits for the replies.
    pub(super) async fn request(
        self: Arc<Self>,
        link: usize,
        steps: Vec<Step>,
        options: StepOptions,
    ) -> Result<Replies, Failure> {
        self.connect(link, options.limit).await?;
        if options.caller.is_gone() {
            return Err(Failure::unavailable("not sent: its caller is gone"));
        }
        let (at, deadline) = (clock::now(), Instant::now() + options.limit);
        let (sender, mut receiver) = oneshot::channel();
        let Some((id, connection)) = self.send(link, steps, &options, deadline, sender) else {
            return Err(Failure::unavailable("the connection was lost"));
        };
        let sent = Sent { connection, at };
        // A process that was stopped finds its reply, if there is one.
        let delivered = tokio::select! {
            biased;
            delivered = &mut receiver => delivered.unwrap_or(Delivered::Broken),
            () = sleep_until(deadline) => {
                self.give_up(id, link, connection);
                return Err(in_doubt("no reply in time", sent));
            }
        };
        match delivered {
            Delivered::Reply { replies, notified, replicas } => {
                Ok(Replies { values: replies, sent, notified, replicas })
            }
            Delivered::Refused(failure) => Err(failure),
            Delivered::Broken => Err(in_doubt("the connection broke", sent)),
        }
    }

    /// Waits until the link is connected.
    async fn connect(self: &Arc<Self>, link: usize, limit: Duration) -> Result<(), Failure> {
        let end = Instant::now() + limit;
        loop {
            let delay = {
                let mut state = self.0.lock();
                if state.links[link].connection.is_some() {
                    return Ok(());
                }
                state.delay() * 2
            };
            sleep(delay).await;
            let changed = {
                let mut state = self.0.lock();
                let number = state.next_connection;
                let is_up = !state.master.is_down && state.black_hole.is_none_or(|end| end <= Instant::now());
                let link = &mut state.links[link];
                if link.connection.is_none() && is_up && !link.is_dead {
                    link.connection = Some(number);
                    link.last_arrival = Instant::now();
                    link.reaches_old_master = false;
                    let was_connected = std::mem::replace(&mut link.was_connected, true);
                    let signals = link.signals.clone().filter(|_| was_connected);
                    state.next_connection += 1;
                    Some(signals)
                } else {
                    None
                }
            };
            match changed {
                Some(signals) => {
                    if let Some(signals) = signals.and_then(|signals| signals.upgrade()) {
                        signals.server_changed();
                    }
                    return Ok(());
                }
                None if Instant::now() >= end => {
                    return Err(Failure::unavailable("cannot connect"));
                }
                None => sleep(CONNECT_PAUSE.min(end - Instant::now())).await,
            }
        }
    }

    /// Sends steps on the connection of the link, if it has one. Returns the numbers of the call and the connection.
    fn send(
        self: &Arc<Self>,
        link: usize,
        steps: Vec<Step>,
        options: &StepOptions,
        deadline: Instant,
        reply: oneshot::Sender<Delivered>,
    ) -> Option<(u64, u64)> {
        let mut state = self.0.lock();
        let connection = state.links[link].connection?;
        let id = state.next_call;
        state.next_call += 1;
        state.calls.insert(id, Call { link, connection, reply });
        let arrival = state.arrival(link);
        // No copy of a request about permits without owners may be under way when it is forgotten.
        let can_copy = steps.iter().all(|step| !matches!(step.kind(), Kind::Semaphore | Kind::Latch));
        let copy = state.copy_of(arrival, can_copy);
        drop(state);
        if let Some(copied) = copy {
            let (world, steps) = (Arc::clone(self), steps.clone());
            tokio::spawn(async move {
                sleep_until(copied).await;
                world.0.lock().execute(&world, link, steps);
            });
        }
        let (world, replicas) = (Arc::clone(self), options.replicas);
        tokio::spawn(async move {
            sleep_until(arrival).await;
            world.deliver(id, link, connection, steps, replicas, deadline).await;
        });
        Some((id, connection))
    }

    /// Executes a request that has arrived, and sends the reply.
    async fn deliver(
        self: Arc<Self>,
        id: u64,
        link: usize,
        connection: u64,
        steps: Vec<Step>,
        replicas: u32,
        deadline: Instant,
    ) {
        let (outcome, index, delay) = {
            let mut state = self.0.lock();
            // The bytes of a connection that has broken may have arrived, or not.
            if state.links[link].connection != Some(connection) && state.rng.bool() {
                return;
            }
            let outcome = state.execute(&self, link, steps);
            (outcome, state.server(link).executed(), state.delay())
        };
        let Some(outcome) = outcome else { return };
        let mut reached = 0;
        if replicas > 0 && outcome.is_ok() {
            // As WAIT, which ends before the caller gives up.
            let end = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
            while reached == 0 && Instant::now() < end {
                sleep(ms(1)).await;
                reached = u32::from(self.0.lock().is_replicated(link, index));
            }
        }
        sleep(delay).await;
        let call = self.0.lock().calls.remove(&id);
        let delivered = match outcome {
            Ok((replies, notified)) => Delivered::Reply { replies, notified, replicas: reached },
            Err(failure) => {
                // A client leaves a replica.
                if call.is_some() && failure.kind.to_string().starts_with("READONLY") {
                    self.reset(link);
                }
                Delivered::Refused(failure)
            }
        };
        if let Some(call) = call {
            // Its caller may be gone.
            let _ = call.reply.send(delivered);
        }
    }

    /// Forgets a call that got no reply in time. If nothing else arrives either, the connection is given up.
    fn give_up(self: &Arc<Self>, id: u64, link: usize, connection: u64) {
        let is_current = {
            let mut state = self.0.lock();
            state.calls.remove(&id);
            state.links[link].connection == Some(connection)
        };
        if is_current {
            self.reset(link);
        }
    }

    pub(super) async fn subscribe(self: Arc<Self>, link: usize, name: LockName) {
        let delay = self.0.lock().delay() * 2;
        sleep(delay).await;
        *self.0.lock().links[link].subscriptions.entry(name.key().to_owned()).or_default() += 1;
    }

    pub(super) fn unsubscribe(&self, link: usize, name: &LockName) {
        let subscriptions = &mut self.0.lock().links[link].subscriptions;
        if let Some(count) = subscriptions.get_mut(name.key()) {
            *count = count.saturating_sub(1);
        }
        subscriptions.retain(|_, count| *count > 0);
    }
}

impl State {
    /// The server that a link reaches.
    fn server(&mut self, link: usize) -> &mut Server {
        match &mut self.old_master {
            Some(old) if self.links[link].reaches_old_master => old,
            _ => &mut self.master,
        }
    }

    /// The number of entries of the master that the replica has.
    fn replicated(&self) -> usize {
        self.frozen_replica.unwrap_or_else(|| self.master.executed_until(ms(2)))
    }

    /// Returns `true` if the replica has the first `index` entries of the server of this link.
    fn is_replicated(&self, link: usize, index: usize) -> bool {
        // The replica of an old master is the new master, and follows it no longer.
        !self.links[link].reaches_old_master && self.replicated() >= index
    }

    /// Executes steps, and sends the messages. `None` if the server is down: it replies nothing.
    #[expect(clippy::type_complexity, reason = "the replies, and how many clients were notified")]
    fn execute(
        &mut self,
        world: &Arc<World>,
        link: usize,
        steps: Vec<Step>,
    ) -> Option<Result<(Vec<Result<Reply, Failure>>, u32), Failure>> {
        let Link { client, denial, .. } = self.links[link];
        let server = self.server(link);
        if server.is_down {
            return None;
        }
        if denial.covers(&steps) {
            return Some(Err(denied()));
        }
        let (executed, purged) = match server.execute(steps, client) {
            Ok(executed) => executed,
            Err(failure) => return Some(Err(failure)),
        };
        for owner in purged {
            let is_live = |link: &Link| {
                owner.client() == Some(link.client) && !link.is_dead && !link.process.is_stopped()
            };
            if self.links.iter().any(is_live) {
                self.recorder.record(0, What::Purged { owner: owner.to_string() });
            }
        }
        let mut notified = 0;
        for name in executed.freed {
            notified += self.publish(world, link, &name);
        }
        Some(Ok((executed.replies, notified)))
    }

    /// Sends a message to all subscribers on the same server. Returns their number.
    fn publish(&mut self, world: &Arc<World>, from: usize, name: &LockName) -> u32 {
        let is_old = self.links[from].reaches_old_master;
        let mut receivers = 0;
        for index in 0..self.links.len() {
            let link = &self.links[index];
            let is_subscribed = link.is_listening && link.subscriptions.contains_key(name.key());
            if !is_subscribed || link.reaches_old_master != is_old || link.is_dead {
                continue;
            }
            receivers += 1;
            let (process, signals) = (link.process.clone(), link.signals.clone());
            let delay = self.delay();
            if self.is_losing_messages && self.rng.bool() {
                continue;
            }
            let (world, name) = (Arc::clone(world), name.clone());
            tokio::spawn(process.run(async move {
                sleep(delay).await;
                let is_listening = world.0.lock().links[index].is_listening;
                if let Some(signals) = signals.and_then(|signals| signals.upgrade()).filter(|_| is_listening)
                {
                    signals.freed(&name);
                }
            }));
        }
        receivers
    }
}

/// The failure of a request that may have been executed.
fn in_doubt(text: &str, sent: Sent) -> Failure {
    Failure { in_doubt: Some(sent), ..Failure::unavailable(text) }
}

/// The failure of a request that the server denies.
fn denied() -> Failure {
    let cause = io::Error::new(io::ErrorKind::PermissionDenied, "NOPERM no permission");
    Failure::refused(FailureKind::Denied(Arc::new(cause)))
}
