use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use turnlock_core::{Backoff, LockName};

use super::common::Common;
use super::failure;
use super::inlet::{Inlet, News};
use super::link::Link;
use super::place::Place;
use super::subscriber::{Orphanage, Wish};

/// How long a channel stays subscribed after its last waiter left, so that contention does not turn into a stream of
/// SUBSCRIBE and UNSUBSCRIBE.
const LINGER: Duration = Duration::from_secs(5);

/// How long a connection lasts that was worth making at once.
const STEADY: Duration = Duration::from_secs(5);

/// How often the connection is asked whether it is still there.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// Listens on one server, for all channels that are wanted there.
pub(super) struct Listener {
    common: Arc<Common>,
    place: Place,
    /// The connection for commands to the same server.
    link: Arc<Link>,
    orphanage: Option<Orphanage>,
    inbox: mpsc::UnboundedReceiver<Wish>,
    channels: HashMap<String, Channel>,
    /// What was asked on this connection and not answered yet, in the order of asking.
    asked: VecDeque<(Asked, Instant)>,
    /// Between connections, also those that open and do not last.
    backoff: Backoff,
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

enum Asked {
    Subscribe(String, Occasion),
    Unsubscribe(String),
    Ping,
}

/// Why a channel is subscribed: a waiter asks first and again afterwards, but what was published while there was no
/// connection is known to nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Fresh,
    Resumed,
}

/// Why the listener left a connection.
enum End {
    ConnectionLost,
    NobodyLeft,
}

impl Listener {
    pub(super) fn new(
        common: Arc<Common>,
        place: Place,
        link: Arc<Link>,
        orphanage: Option<Orphanage>,
        inbox: mpsc::UnboundedReceiver<Wish>,
    ) -> Self {
        Self {
            common,
            place,
            link,
            orphanage,
            inbox,
            channels: HashMap::new(),
            asked: VecDeque::new(),
            backoff: Backoff::default(),
        }
    }

    /// Listens until nobody wants anything any more, whatever happens to the connection.
    pub(super) async fn run(mut self, mut inlet: Option<Inlet>) {
        let mut is_first = true;
        loop {
            let Some(connected) = (match inlet.take() {
                Some(inlet) => Some(inlet),
                None => self.dial().await,
            }) else {
                return;
            };
            if !std::mem::take(&mut is_first) {
                // It may be another server, or the same after a restart.
                self.common.tell(|signals| signals.server_changed());
            }
            let since = Instant::now();
            if matches!(self.serve(connected).await, End::NobodyLeft) {
                return;
            }
            tracing::warn!(place = %self.place, "connection for messages lost");
            // What cost this one may have cost the other.
            self.link.suspect();
            self.common.tell(|signals| signals.connection_changed());
            self.leave_to_others(Vec::new());
            if since.elapsed() > STEADY {
                self.backoff = Backoff::default();
            } else if !self.pause().await {
                return;
            }
        }
    }

    /// Connects, however long it takes. `None` when the backend is gone.
    async fn dial(&mut self) -> Option<Inlet> {
        loop {
            let (common, place) = (Arc::clone(&self.common), self.place.clone());
            let dialling = Inlet::open(&common, &place);
            tokio::pin!(dialling);
            let dialled = loop {
                tokio::select! {
                    dialled = &mut dialling => break dialled,
                    wish = self.inbox.recv() => drop(self.note(wish?)),
                }
            };
            match dialled {
                Ok(inlet) => return Some(inlet),
                Err(failure) => tracing::debug!(%failure, "no connection for messages yet"),
            }
            if !self.pause().await {
                return None;
            }
        }
    }

    /// Waits a little, longer each time. Whether anybody is left to wait for.
    async fn pause(&mut self) -> bool {
        let pause = tokio::time::sleep(self.backoff.pause(fastrand::f64()));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return true,
                wish = self.inbox.recv() => match wish {
                    Some(wish) => drop(self.note(wish)),
                    None => return false,
                },
            }
        }
    }

    /// Serves one connection until it breaks.
    async fn serve(&mut self, mut inlet: Inlet) -> End {
        self.asked.clear();
        for channel in self.channels.values_mut() {
            channel.confirmed = false;
        }
        let all: Vec<_> = self.channels.keys().cloned().collect();
        let place = self.place.clone();
        let link = Arc::clone(&self.link);
        let epoch = inlet.epoch;
        if !self.subscribe(&mut inlet, all, Occasion::Resumed).await {
            return End::ConnectionLost;
        }
        let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        loop {
            let overdue = self.asked.front().map(|(_, since)| *since + self.common.access.connect_limit);
            tokio::select! {
                news = inlet.hear() => match news {
                    Some(news) => self.hear(news),
                    None => return End::ConnectionLost,
                },
                wish = self.inbox.recv() => {
                    let Some(wish) = wish else { return End::NobodyLeft };
                    let mut fresh: Vec<_> = self.note(wish).into_iter().collect();
                    while let Ok(wish) = self.inbox.try_recv() {
                        fresh.extend(self.note(wish));
                    }
                    if !self.subscribe(&mut inlet, fresh, Occasion::Fresh).await {
                        return End::ConnectionLost;
                    }
                }
                _ = heartbeat.tick() => {
                    if !self.tend(&mut inlet).await {
                        return End::ConnectionLost;
                    }
                }
                () = tokio::time::sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    return End::ConnectionLost;
                }
                () = place.moves_on_from(epoch) => return End::ConnectionLost,
                // Messages of the new master may never reach the server that this one leads to.
                () = link.left_replica() => return End::ConnectionLost,
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
                    } else if channel.names.contains(&name) {
                        channel.idle_since = Some(Instant::now());
                    }
                }
                None
            }
        }
    }

    /// Asks for channels, each for itself: one that is forbidden is not the fault of the others. Whether it could be said.
    async fn subscribe(&mut self, inlet: &mut Inlet, channels: Vec<String>, occasion: Occasion) -> bool {
        let word = if self.common.dialect.is_sharded() { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        let asked = channels.into_iter().map(|channel| Asked::Subscribe(channel, occasion));
        self.say(inlet, word, asked).await
    }

    async fn say(&mut self, inlet: &mut Inlet, word: &str, asked: impl Iterator<Item = Asked>) -> bool {
        let now = Instant::now();
        let mut said = Vec::new();
        for question in asked {
            let mut cmd = redis::cmd(word);
            if let Asked::Subscribe(channel, _) | Asked::Unsubscribe(channel) = &question {
                cmd.arg(channel);
            }
            said.push(cmd);
            self.asked.push_back((question, now));
        }
        if said.is_empty() {
            return true;
        }
        let limit = self.common.access.connect_limit;
        matches!(tokio::time::timeout(limit, inlet.say(&said)).await, Ok(Ok(())))
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Message(channel) => {
                if let Some(channel) = self.channels.get(&channel) {
                    self.common.tell(|signals| channel.names.iter().for_each(|name| signals.freed(name)));
                }
            }
            News::Subscribed(channel) => {
                let asked =
                    self.answered(|asked| matches!(asked, Asked::Subscribe(wanted, _) if *wanted == channel));
                if let Some(Asked::Subscribe(channel, occasion)) = asked {
                    self.confirm(&channel, occasion);
                }
            }
            News::Unsubscribed(channel) => {
                let is_wanted = |asked: &Asked| matches!(asked, Asked::Unsubscribe(left) if *left == channel);
                if self.answered(is_wanted).is_none() {
                    // Nobody asked for it: the slot of the channel has left this server.
                    self.give_up(&channel);
                }
            }
            News::Pong => drop(self.answered(|asked| matches!(asked, Asked::Ping))),
            News::Refused(error) => {
                if let Some(Asked::Subscribe(channel, _)) = self.answered(|_| true) {
                    self.refused(&channel, &error);
                }
            }
        }
    }

    /// The oldest question, if it is the one that is answered now.
    fn answered(&mut self, is_it: impl Fn(&Asked) -> bool) -> Option<Asked> {
        let (asked, _) = self.asked.front()?;
        if !is_it(asked) {
            return None;
        }
        self.asked.pop_front().map(|(asked, _)| asked)
    }

    fn confirm(&mut self, key: &str, occasion: Occasion) {
        let Some(channel) = self.channels.get_mut(key) else { return };
        channel.confirmed = true;
        // Who does not wait for this any more is told to look again, as it would have done.
        let left = channel.waiting.drain(..).filter_map(|waiter| waiter.send(()).err()).count();
        if left > 0 || occasion == Occasion::Resumed {
            let names = channel.names.clone();
            self.common.tell(|signals| names.iter().for_each(|name| signals.freed(name)));
        }
    }

    fn refused(&mut self, channel: &str, error: &RedisError) {
        if failure::is_of_cluster(error) {
            return self.give_up(channel);
        }
        if !failure::is_denial(error) {
            // Not now. It is asked again, when the connection is looked after next.
            tracing::debug!(%error, channel, "the server does not tell of releases yet");
            return;
        }
        tracing::warn!(%error, channel, "the server refuses to tell of releases: waiters find out by polling");
        self.channels.remove(channel);
    }

    /// Leaves a channel that is not served here to whoever serves it.
    fn give_up(&mut self, channel: &str) {
        if let Some(Channel { names, idle_since: None, .. }) = self.channels.remove(channel) {
            self.leave_to_others(names);
        }
    }

    fn leave_to_others(&self, names: Vec<LockName>) {
        if let Some(orphanage) = &self.orphanage {
            let _ = orphanage.send(names);
        }
    }

    /// Drops channels that nobody wanted for a while, and looks whether the server is there.
    async fn tend(&mut self, inlet: &mut Inlet) -> bool {
        let now = Instant::now();
        let is_over = |channel: &Channel| {
            let linger =
                if channel.names.iter().all(LockName::is_for_one_waiter) { Duration::ZERO } else { LINGER };
            channel.confirmed && channel.idle_since.is_some_and(|since| now.duration_since(since) >= linger)
        };
        let is_asked = |key: &String| {
            self.asked
                .iter()
                .any(|(asked, _)| matches!(asked, Asked::Subscribe(channel, _) if channel == key))
        };
        let missing: Vec<_> = self
            .channels
            .iter()
            .filter(|(key, channel)| !channel.confirmed && !is_asked(key))
            .map(|(key, _)| key.clone())
            .collect();
        if !missing.is_empty() {
            return self.subscribe(inlet, missing, Occasion::Resumed).await;
        }
        let over: Vec<_> =
            self.channels.extract_if(|_, channel| is_over(channel)).map(|(key, _)| key).collect();
        if over.is_empty() {
            return self.say(inlet, "PING", std::iter::once(Asked::Ping)).await;
        }
        let word = if self.common.dialect.is_sharded() { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" };
        self.say(inlet, word, over.into_iter().map(Asked::Unsubscribe)).await
    }
}
