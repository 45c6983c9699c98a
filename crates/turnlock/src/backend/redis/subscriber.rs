use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use turnlock_core::{Backoff, LockName};

use super::failure;
use super::link::Link;
use crate::backend::{Failure, Signals};

/// How long a channel stays subscribed after its last waiter left, so that contention does not turn into a stream of
/// SUBSCRIBE and UNSUBSCRIBE.
const LINGER: Duration = Duration::from_secs(5);

/// How often the connection is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// The connection for messages, and the task that owns it.
pub(super) struct Subscriber {
    wishes: mpsc::UnboundedSender<Wish>,
    signals: Arc<OnceLock<Weak<dyn Signals>>>,
    patience: Duration,
}

enum Wish {
    Listen(LockName, oneshot::Sender<()>),
    Unlisten(LockName),
}

impl Subscriber {
    pub(super) async fn connect(
        client: redis::Client,
        limit: Duration,
        link: Arc<Link>,
    ) -> Result<Self, Failure> {
        let signals = Arc::new(OnceLock::new());
        let pubsub = dial(&client, limit).await?;
        let (wishes, inbox) = mpsc::unbounded_channel();
        let listener =
            Listener { client, limit, link, signals: Arc::clone(&signals), inbox, channels: HashMap::new() };
        tokio::spawn(listener.run(pubsub));
        Ok(Self { wishes, signals, patience: limit })
    }

    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        let _ = self.signals.set(signals);
    }

    pub(super) fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (confirm, confirmed) = oneshot::channel();
        // Without the task there is nothing to wait for: the sender is dropped, and so the receiver is ready.
        let _ = self.wishes.send(Wish::Listen(name.clone(), confirm));
        let patience = self.patience;
        Box::pin(async move {
            let _ = timeout(patience, confirmed).await;
        })
    }

    pub(super) fn unlisten(&self, name: &LockName) {
        let _ = self.wishes.send(Wish::Unlisten(name.clone()));
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

async fn dial(client: &redis::Client, limit: Duration) -> Result<PubSub, Failure> {
    match timeout(limit, client.get_async_pubsub()).await {
        Ok(dialled) => dialled.map_err(|error| failure::from_error(error, None)),
        Err(_) => Err(failure::timed_out("connection for messages", limit, None)),
    }
}

/// One channel that is, or is to be, subscribed.
struct Channel {
    /// Those who listen. Seldom more than one: `n` and `{n}` are two locks with one channel.
    names: Vec<LockName>,
    confirmed: bool,
    /// Those who wait for the confirmation.
    waiting: Vec<oneshot::Sender<()>>,
    /// Since when nobody wants it.
    idle_since: Option<Instant>,
}

struct Listener {
    client: redis::Client,
    limit: Duration,
    link: Arc<Link>,
    signals: Arc<OnceLock<Weak<dyn Signals>>>,
    inbox: mpsc::UnboundedReceiver<Wish>,
    channels: HashMap<String, Channel>,
}

/// Why the listener left a connection.
enum End {
    ConnectionLost,
    NobodyLeft,
}

/// Why channels are subscribed: a waiter asks first and again afterwards, but what was published while there was no
/// connection went unheard by all.
#[derive(Clone, Copy)]
enum Occasion {
    Fresh,
    Resumed,
}

enum Outcome {
    Subscribed(Vec<String>, Occasion),
    Refused(Vec<String>),
    Unanswered,
}

impl Listener {
    async fn run(mut self, first: PubSub) {
        let mut pubsub = first;
        loop {
            let (sink, stream) = pubsub.split();
            if matches!(self.serve(sink, stream).await, End::NobodyLeft) {
                return;
            }
            tracing::warn!("connection for messages lost");
            // What cost this one may have cost the other.
            self.link.suspect();
            self.tell(|signals| signals.connection_changed());
            match self.redial().await {
                Some(again) => pubsub = again,
                None => return,
            }
        }
    }

    /// Connects again, however long it takes. `None` when the backend is gone.
    async fn redial(&mut self) -> Option<PubSub> {
        let mut backoff = Backoff::default();
        loop {
            match dial(&self.client, self.limit).await {
                Ok(pubsub) => return Some(pubsub),
                Err(failure) => tracing::debug!(%failure, "no connection for messages yet"),
            }
            let pause = tokio::time::sleep(backoff.pause(fastrand::f64()));
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    wish = self.inbox.recv() => drop(self.note(wish?)),
                }
            }
        }
    }

    /// Serves one connection until it breaks.
    async fn serve(&mut self, sink: PubSubSink, mut stream: PubSubStream) -> End {
        let mut requests = FuturesUnordered::new();
        for channel in self.channels.values_mut() {
            channel.confirmed = false;
        }
        let all: Vec<_> = self.channels.keys().cloned().collect();
        if !all.is_empty() {
            requests.push(self.subscribe(sink.clone(), all, Occasion::Resumed));
        }
        let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.hear(message.get_channel_name()),
                    None => return End::ConnectionLost,
                },
                wish = self.inbox.recv() => {
                    let Some(wish) = wish else { return End::NobodyLeft };
                    let mut fresh: Vec<_> = self.note(wish).into_iter().collect();
                    while let Ok(wish) = self.inbox.try_recv() {
                        fresh.extend(self.note(wish));
                    }
                    if !fresh.is_empty() {
                        requests.push(self.subscribe(sink.clone(), fresh, Occasion::Fresh));
                    }
                }
                Some(outcome) = requests.next(), if !requests.is_empty() => match outcome {
                    Outcome::Subscribed(channels, occasion) => self.confirm(&channels, occasion),
                    Outcome::Refused(channels) if channels.len() > 1 => {
                        // One of them is forbidden, and not the fault of the others.
                        for channel in channels {
                            requests.push(self.subscribe(sink.clone(), vec![channel], Occasion::Resumed));
                        }
                    }
                    Outcome::Refused(channels) => self.channels.retain(|key, _| !channels.contains(key)),
                    Outcome::Unanswered => return End::ConnectionLost,
                },
                _ = heartbeat.tick() => {
                    if !self.tend(sink.clone()).await {
                        return End::ConnectionLost;
                    }
                }
            }
        }
    }

    /// Takes a wish down. The channel to subscribe now, if there is one.
    fn note(&mut self, wish: Wish) -> Option<String> {
        match wish {
            Wish::Listen(name, confirm) => {
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
            Wish::Unlisten(name) => {
                if let Some(channel) = self.channels.get_mut(name.channel()) {
                    if channel.names.len() > 1 {
                        channel.names.retain(|other| *other != name);
                    } else {
                        channel.idle_since = Some(Instant::now());
                    }
                }
                None
            }
        }
    }

    fn subscribe(
        &self,
        mut sink: PubSubSink,
        channels: Vec<String>,
        occasion: Occasion,
    ) -> impl Future<Output = Outcome> + use<> {
        let limit = self.limit;
        async move {
            match timeout(limit, sink.subscribe(&channels[..])).await {
                Ok(Ok(())) => Outcome::Subscribed(channels, occasion),
                Ok(Err(error)) if failure::is_answer(&error) => {
                    tracing::warn!(%error, "the server refuses to tell of releases: waiters find out by polling");
                    Outcome::Refused(channels)
                }
                _ => Outcome::Unanswered,
            }
        }
    }

    fn confirm(&mut self, channels: &[String], occasion: Occasion) {
        for key in channels {
            if let Some(channel) = self.channels.get_mut(key) {
                channel.confirmed = true;
                // Who does not wait for this any more is told to look again, as it would have done.
                let left = channel.waiting.drain(..).filter_map(|waiter| waiter.send(()).err()).count();
                if left > 0 {
                    let names = channel.names.clone();
                    self.tell(|signals| names.iter().for_each(|name| signals.freed(name)));
                }
            }
        }
        if matches!(occasion, Occasion::Resumed) {
            self.tell(|signals| signals.missed_releases());
        }
    }

    fn hear(&self, channel: &str) {
        if let Some(channel) = self.channels.get(channel) {
            self.tell(|signals| channel.names.iter().for_each(|name| signals.freed(name)));
        }
    }

    /// Drops channels that nobody wanted for a while, and looks whether the server is there.
    async fn tend(&mut self, mut sink: PubSubSink) -> bool {
        let now = Instant::now();
        let is_over = |channel: &Channel| {
            let linger =
                if channel.names.iter().all(LockName::is_for_one_waiter) { Duration::ZERO } else { LINGER };
            channel.confirmed && channel.idle_since.is_some_and(|since| now.duration_since(since) >= linger)
        };
        let over: Vec<_> = self
            .channels
            .iter()
            .filter(|(_, channel)| is_over(channel))
            .map(|(key, _)| key.clone())
            .collect();
        if over.is_empty() {
            return matches!(timeout(self.limit, sink.ping::<redis::Value>()).await, Ok(Ok(_)));
        }
        for key in &over {
            self.channels.remove(key);
        }
        matches!(timeout(self.limit, sink.unsubscribe(&over[..])).await, Ok(Ok(())))
    }

    fn tell(&self, tell: impl FnOnce(&dyn Signals)) {
        if let Some(signals) = self.signals.get().and_then(Weak::upgrade) {
            tell(&*signals);
        }
    }
}
