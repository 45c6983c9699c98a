use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval_at, sleep, sleep_until, timeout};
use turnlock_core::{Backoff, Kind, LockName, OwnerId};
use turnlock_store::Signals;

use super::{Command, PubSubConnection, Push};
use crate::connection::Connection;
use crate::failure;

/// How long a channel stays subscribed after its last waiter left.
///
/// Otherwise contention would cause a stream of SUBSCRIBE and UNSUBSCRIBE.
const LINGER: Duration = Duration::from_secs(5);

/// A connection that lasted this long is reopened without a pause.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// How often the connection is maintained: retries, unsubscriptions, or a `PING`.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(3);

/// All subscriptions on one server, over one pub/sub connection that reconnects.
pub(crate) struct Subscriptions {
    /// The connection for commands to the same server.
    connection: Arc<Connection>,
    resubscribe: Option<ResubscribeQueue>,
    requests: mpsc::UnboundedReceiver<SubscriptionRequest>,
    channels: HashMap<String, Channel>,
    /// Commands sent on this connection without a reply yet, in order, with the time of sending.
    pending: VecDeque<(Command, Instant)>,
    /// Pauses between connections, including those that open and do not last.
    backoff: Backoff,
}

/// A request to the task of a [`Subscriber`](super::subscriber::Subscriber).
pub(crate) enum SubscriptionRequest {
    /// The sender is notified once the subscription is confirmed.
    Subscribe(LockName, oneshot::Sender<()>),
    Unsubscribe(LockName),
}

/// Receives names whose channels a server no longer serves, to be subscribed elsewhere.
///
/// An empty list means that the connection was lost, and the cluster should be refreshed.
pub(crate) type ResubscribeQueue = mpsc::UnboundedSender<Vec<LockName>>;

/// A channel that is subscribed, or will be.
#[derive(Default)]
struct Channel {
    /// The locks that use this channel. Rarely more than one: `n` and `{n}` share a channel.
    names: Vec<LockName>,
    confirmed: bool,
    /// It should have been subscribed before, so a message may have been missed.
    ///
    /// A waiter checks the lock before and after a fresh subscription. After a resumed one, waiters are notified.
    is_resumed: bool,
    /// Notified once the subscription is confirmed.
    waiting: Vec<oneshot::Sender<()>>,
    /// Since when the channel has no subscriber.
    idle_since: Option<Instant>,
}

impl Channel {
    fn notify(&self, signals: &dyn Signals) {
        for name in &self.names {
            signals.freed(name);
        }
    }

    /// Notifies the waiter that a message names, if this channel is shared by the fair waiters of a client; else all.
    fn notify_of(&self, message: &str, signals: &dyn Signals) {
        if self.names.iter().any(|name| name.kind() == Kind::Fair) && message.contains(':') {
            let waiter = OwnerId::from_wire(message);
            for name in &self.names {
                signals.freed(&name.for_waiter(&waiter));
            }
        } else {
            self.notify(signals);
        }
    }

    /// Returns `true` if it has had no subscriber for long enough to be dropped.
    fn is_idle(&self) -> bool {
        let is_for_one_waiter = self.names.iter().all(LockName::is_for_one_waiter);
        let linger = if is_for_one_waiter { Duration::ZERO } else { LINGER };
        self.confirmed && self.idle_since.is_some_and(|since| since.elapsed() >= linger)
    }
}

impl Subscriptions {
    pub(super) fn new(
        connection: Arc<Connection>,
        resubscribe: Option<ResubscribeQueue>,
        requests: mpsc::UnboundedReceiver<SubscriptionRequest>,
    ) -> Self {
        let (channels, pending, backoff) = (HashMap::new(), VecDeque::new(), Backoff::default());
        Self { connection, resubscribe, requests, channels, pending, backoff }
    }

    /// Serves requests until the [`Subscriber`](super::subscriber::Subscriber) is dropped. Reconnects as needed.
    ///
    /// Returns `None`, on shutdown.
    pub(super) async fn run(mut self, mut pubsub: Option<PubSubConnection>) -> Option<()> {
        let mut is_first = true;
        loop {
            let connected = match pubsub.take() {
                Some(pubsub) => pubsub,
                None => self.connect().await?,
            };
            if !std::mem::take(&mut is_first) {
                // It may be another server, or the same after a restart.
                self.notify(|signals| signals.server_changed());
            }
            let since = Instant::now();
            let error = self.serve(connected).await.err()?;
            tracing::debug!(endpoint = %self.connection.endpoint, %error, "pub/sub connection broken, reconnecting");
            // Whatever broke this connection may have broken the other.
            self.connection.mark_suspect();
            self.notify(|signals| signals.connection_changed());
            self.queue_resubscribe(Vec::new());
            if since.elapsed() > STABLE_AFTER {
                self.backoff = Backoff::default();
            } else {
                self.back_off().await?;
            }
        }
    }

    fn notify(&self, notify: impl FnOnce(&dyn Signals)) {
        self.connection.common.notify(notify);
    }

    /// Connects, and retries until it succeeds. `None` on shutdown.
    async fn connect(&mut self) -> Option<PubSubConnection> {
        let connection = Arc::clone(&self.connection);
        loop {
            let connecting = PubSubConnection::open(&connection.common, &connection.endpoint);
            match self.record_requests_until(connecting).await? {
                Ok(pubsub) => return Some(pubsub),
                Err(failure) => tracing::debug!(%failure, "pub/sub connect failed, will retry"),
            }
            self.back_off().await?;
        }
    }

    /// Pauses, longer each time. `None` on shutdown.
    async fn back_off(&mut self) -> Option<()> {
        let pause = self.backoff.pause(fastrand::f64());
        self.record_requests_until(sleep(pause)).await
    }

    /// Waits for `future` while there is no connection. `None` on shutdown.
    async fn record_requests_until<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return Some(output),
                request = self.requests.recv() => drop(self.record_request(request?)),
            }
        }
    }

    /// Serves one connection until it breaks, which is an error, or until shutdown.
    async fn serve(&mut self, mut pubsub: PubSubConnection) -> io::Result<()> {
        self.pending.clear();
        for channel in self.channels.values_mut() {
            channel.confirmed = false;
            channel.is_resumed = true;
        }
        let all = self.channels.keys().cloned().map(Command::Subscribe).collect();
        self.send(&mut pubsub, all).await?;
        let connection = Arc::clone(&self.connection);
        let (reply_limit, epoch) = (connection.common.access.connect_limit, pubsub.epoch);
        let mut maintenance = interval_at(Instant::now() + MAINTENANCE_PERIOD, MAINTENANCE_PERIOD);
        let mut requests = Vec::new();
        loop {
            let overdue = self.pending.front().map(|(_, since)| *since + reply_limit);
            tokio::select! {
                push = pubsub.next_push() => self.on_push(push?),
                count = self.requests.recv_many(&mut requests, usize::MAX) => {
                    if count == 0 {
                        return Ok(());
                    }
                    let fresh = requests.drain(..).filter_map(|request| self.record_request(request));
                    let fresh = fresh.map(Command::Subscribe).collect();
                    self.send(&mut pubsub, fresh).await?;
                }
                _ = maintenance.tick() => self.maintain(&mut pubsub).await?,
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                () = connection.endpoint.wait_until_moved(epoch) => {
                    return Err(io::Error::other("the master changed"));
                }
                // Messages of the new master may never reach this server.
                () = connection.left_replica() => return Err(io::Error::other("the server became a replica")),
            }
        }
    }

    /// Records a request. Returns the channel if it must be subscribed now.
    fn record_request(&mut self, request: SubscriptionRequest) -> Option<String> {
        match request {
            SubscriptionRequest::Subscribe(name, confirm) => {
                let is_new = !self.channels.contains_key(name.channel());
                let fresh = is_new.then(|| name.channel().to_owned());
                let channel = self.channels.entry(name.channel().to_owned()).or_default();
                channel.idle_since = None;
                if !channel.names.contains(&name) {
                    channel.names.push(name);
                }
                if channel.confirmed {
                    let _ = confirm.send(());
                } else {
                    channel.waiting.push(confirm);
                }
                fresh
            }
            SubscriptionRequest::Unsubscribe(name) => {
                if let Some(channel) = self.channels.get_mut(name.channel()) {
                    if channel.names.len() > 1 {
                        channel.names.retain(|other| *other != name);
                    } else if channel.names.contains(&name) {
                        channel.idle_since = Some(Instant::now());
                    }
                }
                None
            }
        }
    }

    /// Sends commands. Each channel has its own, so that a denied channel does not affect others.
    async fn send(&mut self, pubsub: &mut PubSubConnection, commands: Vec<Command>) -> io::Result<()> {
        if commands.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let sent = timeout(self.connection.common.access.connect_limit, pubsub.send(&commands)).await;
        self.pending.extend(commands.into_iter().map(|command| (command, now)));
        sent?
    }

    /// Handles what the server sent.
    fn on_push(&mut self, push: Push) {
        match push {
            Push::Message(channel, message) => {
                if let Some(channel) = self.channels.get(&channel) {
                    self.notify(|signals| channel.notify_of(&message, signals));
                }
            }
            Push::Done(command) => {
                let is_reply = self.pending.front().is_some_and(|(sent, _)| *sent == command);
                if is_reply {
                    self.pending.pop_front();
                }
                match command {
                    Command::Subscribe(channel) if is_reply => self.confirm(&channel),
                    // Not requested: the slot of the channel has left this server.
                    Command::Unsubscribe(channel) if !is_reply => self.drop_moved_channel(&channel),
                    _ => {}
                }
            }
            Push::Refused(error) => {
                if let Some((Command::Subscribe(channel), _)) = self.pending.pop_front() {
                    self.subscribe_failed(&channel, &error);
                }
            }
        }
    }

    /// Marks a channel as subscribed, and notifies those that wait for it.
    fn confirm(&mut self, key: &str) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.confirmed = true;
        // A waiter that no longer waits for the confirmation is notified, so that it checks the lock again.
        let abandoned = channel.waiting.drain(..).filter_map(|waiter| waiter.send(()).err()).count();
        if abandoned > 0 || channel.is_resumed {
            self.connection.common.notify(|signals| channel.notify(signals));
        }
    }

    fn subscribe_failed(&mut self, channel: &str, error: &RedisError) {
        if failure::is_cluster_error(error) {
            return self.drop_moved_channel(channel);
        }
        if !failure::is_denial(error) {
            // Retried when the connection is maintained next.
            tracing::debug!(%error, channel, "subscribe failed, will retry");
            return;
        }
        tracing::warn!(%error, channel, "subscribe denied, waiters poll instead");
        self.channels.remove(channel);
    }

    /// Removes a channel that this server does not serve, and has it subscribed elsewhere.
    fn drop_moved_channel(&mut self, channel: &str) {
        if let Some(Channel { names, idle_since: None, .. }) = self.channels.remove(channel) {
            self.queue_resubscribe(names);
        }
    }

    fn queue_resubscribe(&self, names: Vec<LockName>) {
        if let Some(resubscribe) = &self.resubscribe {
            let _ = resubscribe.send(names);
        }
    }

    /// Retries missing subscriptions, or else drops idle channels, or else sends a `PING`.
    async fn maintain(&mut self, pubsub: &mut PubSubConnection) -> io::Result<()> {
        let mut commands = Vec::new();
        for (key, channel) in self.channels.iter_mut().filter(|(_, channel)| !channel.confirmed) {
            let subscribe = Command::Subscribe(key.clone());
            if !self.pending.iter().any(|(sent, _)| *sent == subscribe) {
                channel.is_resumed = true;
                commands.push(subscribe);
            }
        }
        if commands.is_empty() {
            let idle = self.channels.extract_if(|_, channel| channel.is_idle());
            commands.extend(idle.map(|(key, _)| Command::Unsubscribe(key)));
        }
        if commands.is_empty() {
            commands.push(Command::Ping);
        }
        self.send(pubsub, commands).await
    }
}
