use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use turnlock_core::{Backoff, LockName};

use super::{PubSubConnection, Push};
use crate::common::Common;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
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
    common: Arc<Common>,
    endpoint: Endpoint,
    /// The connection for commands to the same server.
    connection: Arc<Connection>,
    resubscribe: Option<ResubscribeQueue>,
    requests: mpsc::UnboundedReceiver<SubscriptionRequest>,
    channels: HashMap<String, Channel>,
    /// Commands sent on this connection without a reply yet, in order, with the time of sending.
    pending: VecDeque<(PendingCommand, Instant)>,
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
struct Channel {
    /// The locks that use this channel. Rarely more than one: `n` and `{n}` share a channel.
    names: Vec<LockName>,
    confirmed: bool,
    /// Notified once the subscription is confirmed.
    waiting: Vec<oneshot::Sender<()>>,
    /// Since when the channel has no subscriber.
    idle_since: Option<Instant>,
}

/// A command without a reply yet.
enum PendingCommand {
    Subscribe(String, Occasion),
    Unsubscribe(String),
    Ping,
}

/// Why a channel is subscribed.
///
/// A waiter checks the lock before and after a fresh subscription. A message that was published while there was no
/// connection is lost, so after a resumed subscription waiters are notified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Fresh,
    Resumed,
}

/// Why a connection is no longer served.
enum StopReason {
    ConnectionLost,
    Shutdown,
}

impl Subscriptions {
    pub(crate) fn new(
        common: Arc<Common>,
        endpoint: Endpoint,
        connection: Arc<Connection>,
        resubscribe: Option<ResubscribeQueue>,
        requests: mpsc::UnboundedReceiver<SubscriptionRequest>,
    ) -> Self {
        Self {
            common,
            endpoint,
            connection,
            resubscribe,
            requests,
            channels: HashMap::new(),
            pending: VecDeque::new(),
            backoff: Backoff::default(),
        }
    }

    /// Serves requests until the [`Subscriber`](super::subscriber::Subscriber) is dropped. Reconnects as needed.
    pub(crate) async fn run(mut self, mut pubsub: Option<PubSubConnection>) {
        let mut is_first = true;
        loop {
            let Some(connected) = (match pubsub.take() {
                Some(pubsub) => Some(pubsub),
                None => self.connect().await,
            }) else {
                return;
            };
            if !std::mem::take(&mut is_first) {
                // It may be another server, or the same after a restart.
                self.common.notify(|signals| signals.server_changed());
            }
            let since = Instant::now();
            if matches!(self.serve(connected).await, StopReason::Shutdown) {
                return;
            }
            tracing::warn!(endpoint = %self.endpoint, "pub/sub connection broken, reconnecting");
            // Whatever broke this connection may have broken the other.
            self.connection.mark_suspect();
            self.common.notify(|signals| signals.connection_changed());
            self.queue_resubscribe(Vec::new());
            if since.elapsed() > STABLE_AFTER {
                self.backoff = Backoff::default();
            } else if !self.back_off().await {
                return;
            }
        }
    }

    /// Connects, and retries until it succeeds. `None` on shutdown.
    async fn connect(&mut self) -> Option<PubSubConnection> {
        loop {
            let (common, endpoint) = (Arc::clone(&self.common), self.endpoint.clone());
            let connecting = PubSubConnection::open(&common, &endpoint);
            tokio::pin!(connecting);
            let connected = loop {
                tokio::select! {
                    connected = &mut connecting => break connected,
                    request = self.requests.recv() => drop(self.record_request(request?)),
                }
            };
            match connected {
                Ok(pubsub) => return Some(pubsub),
                Err(failure) => tracing::debug!(%failure, "pub/sub connect failed, will retry"),
            }
            if !self.back_off().await {
                return None;
            }
        }
    }

    /// Pauses, longer each time. Returns `false` on shutdown.
    async fn back_off(&mut self) -> bool {
        let pause = tokio::time::sleep(self.backoff.pause(fastrand::f64()));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return true,
                request = self.requests.recv() => match request {
                    Some(request) => drop(self.record_request(request)),
                    None => return false,
                },
            }
        }
    }

    /// Serves one connection until it breaks.
    async fn serve(&mut self, mut pubsub: PubSubConnection) -> StopReason {
        self.pending.clear();
        for channel in self.channels.values_mut() {
            channel.confirmed = false;
        }
        let all: Vec<_> = self.channels.keys().cloned().collect();
        let endpoint = self.endpoint.clone();
        let connection = Arc::clone(&self.connection);
        let epoch = pubsub.epoch;
        if !self.subscribe(&mut pubsub, all, Occasion::Resumed).await {
            return StopReason::ConnectionLost;
        }
        let mut maintenance =
            tokio::time::interval_at(Instant::now() + MAINTENANCE_PERIOD, MAINTENANCE_PERIOD);
        loop {
            let overdue = self.pending.front().map(|(_, since)| *since + self.common.access.connect_limit);
            tokio::select! {
                push = pubsub.next_push() => match push {
                    Some(push) => self.on_push(push),
                    None => return StopReason::ConnectionLost,
                },
                request = self.requests.recv() => {
                    let Some(request) = request else { return StopReason::Shutdown };
                    let mut fresh: Vec<_> = self.record_request(request).into_iter().collect();
                    while let Ok(request) = self.requests.try_recv() {
                        fresh.extend(self.record_request(request));
                    }
                    if !self.subscribe(&mut pubsub, fresh, Occasion::Fresh).await {
                        return StopReason::ConnectionLost;
                    }
                }
                _ = maintenance.tick() => {
                    if !self.maintain(&mut pubsub).await {
                        return StopReason::ConnectionLost;
                    }
                }
                () = tokio::time::sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    return StopReason::ConnectionLost;
                }
                () = endpoint.wait_until_moved(epoch) => return StopReason::ConnectionLost,
                // Messages of the new master may never reach this server.
                () = connection.left_replica() => return StopReason::ConnectionLost,
            }
        }
    }

    /// Records a request. Returns the channel if it must be subscribed now.
    fn record_request(&mut self, request: SubscriptionRequest) -> Option<String> {
        match request {
            SubscriptionRequest::Subscribe(name, confirm) => {
                let key: String = name.channel().to_owned();
                if let Some(channel) = self.channels.get_mut(&key) {
                    channel.idle_since = None;
                    if !channel.names.contains(&name) {
                        channel.names.push(name);
                    }
                    if channel.confirmed {
                        let _ = confirm.send(());
                    } else {
                        channel.waiting.push(confirm);
                    }
                    return None;
                }
                let channel =
                    Channel { names: vec![name], confirmed: false, waiting: vec![confirm], idle_since: None };
                self.channels.insert(key.clone(), channel);
                Some(key)
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

    /// Subscribes to each channel by its own command, so that a denied channel does not affect others.
    ///
    /// Returns `false` if the connection is broken.
    async fn subscribe(
        &mut self,
        pubsub: &mut PubSubConnection,
        channels: Vec<String>,
        occasion: Occasion,
    ) -> bool {
        let command = if self.common.server_mode.has_sharded_pubsub() { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        let commands = channels.into_iter().map(|channel| PendingCommand::Subscribe(channel, occasion));
        self.send_commands(pubsub, command, commands).await
    }

    /// Sends one command for each item. Returns `false` if the connection is broken.
    async fn send_commands(
        &mut self,
        pubsub: &mut PubSubConnection,
        command: &str,
        commands: impl Iterator<Item = PendingCommand>,
    ) -> bool {
        let now = Instant::now();
        let mut cmds = Vec::new();
        for pending in commands {
            let mut cmd = redis::cmd(command);
            if let PendingCommand::Subscribe(channel, _) | PendingCommand::Unsubscribe(channel) = &pending {
                cmd.arg(channel);
            }
            cmds.push(cmd);
            self.pending.push_back((pending, now));
        }
        if cmds.is_empty() {
            return true;
        }
        let limit = self.common.access.connect_limit;
        matches!(tokio::time::timeout(limit, pubsub.send(&cmds)).await, Ok(Ok(())))
    }

    /// Handles what the server sent.
    fn on_push(&mut self, push: Push) {
        match push {
            Push::Message(channel) => {
                if let Some(channel) = self.channels.get(&channel) {
                    self.common.notify(|signals| channel.names.iter().for_each(|name| signals.freed(name)));
                }
            }
            Push::Subscribed(channel) => {
                let is_match =
                    |sent: &_| matches!(sent, PendingCommand::Subscribe(key, _) if *key == channel);
                if let Some(PendingCommand::Subscribe(channel, occasion)) = self.take_pending_if(is_match) {
                    self.confirm(&channel, occasion);
                }
            }
            Push::Unsubscribed(channel) => {
                let is_match = |sent: &_| matches!(sent, PendingCommand::Unsubscribe(key) if *key == channel);
                if self.take_pending_if(is_match).is_none() {
                    // Not requested: the slot of the channel has left this server.
                    self.drop_moved_channel(&channel);
                }
            }
            Push::Pong => drop(self.take_pending_if(|sent| matches!(sent, PendingCommand::Ping))),
            Push::Refused(error) => {
                if let Some(PendingCommand::Subscribe(channel, _)) = self.take_pending_if(|_| true) {
                    self.subscribe_failed(&channel, &error);
                }
            }
        }
    }

    /// Removes the oldest pending command, if `is_match` accepts it.
    fn take_pending_if(&mut self, is_match: impl Fn(&PendingCommand) -> bool) -> Option<PendingCommand> {
        let (pending, _) = self.pending.front()?;
        if !is_match(pending) {
            return None;
        }
        self.pending.pop_front().map(|(pending, _)| pending)
    }

    /// Marks a channel as subscribed, and notifies those that wait for it.
    fn confirm(&mut self, key: &str, occasion: Occasion) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.confirmed = true;
        // A waiter that no longer waits for the confirmation is notified, so that it checks the lock again.
        let abandoned = channel.waiting.drain(..).filter_map(|waiter| waiter.send(()).err()).count();
        if abandoned > 0 || occasion == Occasion::Resumed {
            let names = channel.names.clone();
            self.common.notify(|signals| names.iter().for_each(|name| signals.freed(name)));
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
    ///
    /// Returns `false` if the connection is broken.
    async fn maintain(&mut self, pubsub: &mut PubSubConnection) -> bool {
        let now = Instant::now();
        let is_idle = |channel: &Channel| {
            let linger =
                if channel.names.iter().all(LockName::is_for_one_waiter) { Duration::ZERO } else { LINGER };
            channel.confirmed && channel.idle_since.is_some_and(|since| now.duration_since(since) >= linger)
        };
        let is_pending = |key: &String| {
            self.pending.iter().any(
                |(pending, _)| matches!(pending, PendingCommand::Subscribe(channel, _) if channel == key),
            )
        };
        let missing: Vec<_> = self
            .channels
            .iter()
            .filter(|(key, channel)| !channel.confirmed && !is_pending(key))
            .map(|(key, _)| key.clone())
            .collect();
        if !missing.is_empty() {
            return self.subscribe(pubsub, missing, Occasion::Resumed).await;
        }
        let idle: Vec<_> =
            self.channels.extract_if(|_, channel| is_idle(channel)).map(|(key, _)| key).collect();
        if idle.is_empty() {
            return self.send_commands(pubsub, "PING", std::iter::once(PendingCommand::Ping)).await;
        }
        let command =
            if self.common.server_mode.has_sharded_pubsub() { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" };
        self.send_commands(pubsub, command, idle.into_iter().map(PendingCommand::Unsubscribe)).await
    }
}
