//! One connection through the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::held::Held;
use crate::lane::{Lane, Step};
use crate::live::Live;
use crate::loss::Loss;
use crate::rule::{Mode, Rule};
use crate::trap::{Fault, NEEDLE_LIMIT, Trap};
use crate::wire;

#[derive(Clone, Copy, Debug)]
enum Event {
    RuleChanged,
    ClientSent,
    ServerSent,
    ToServer,
    ToClient,
    ProxyGone,
}

/// Why a connection is over.
#[derive(Debug)]
enum End {
    /// Both sides are to be reset.
    Reset,
    /// The client has got all it shall get.
    Close,
    /// A request is to be held.
    Hold(u64),
    /// The proxy itself is gone.
    Dropped,
}

/// Carries bytes between a client and the server, and does to them what the rule and the trap ask for.
#[derive(Debug)]
pub(crate) struct Link {
    client: TcpStream,
    server: TcpStream,
    /// `None` once the client has ended its half.
    live: Option<Live>,
    server_ended: bool,
    to_server: Lane,
    to_client: Lane,
    rules: watch::Receiver<Rule>,
    /// The count of resets under which the connection came to be.
    born: u64,
    trap: Arc<Trap>,
    /// The last bytes the client sent.
    recent: Vec<u8>,
    loss: Loss,
    /// Whether a black hole took anything, after which the connection must never work again.
    swallowed: bool,
}

impl Link {
    /// Serves one accepted connection from its start to its end.
    pub(crate) async fn run(
        client: TcpStream,
        upstream: Arc<AtomicU16>,
        mut rules: watch::Receiver<Rule>,
        trap: Arc<Trap>,
        live: Live,
    ) {
        let born = rules.borrow().resets;
        let Some(live) = live.outlast_hole(&client, &mut rules, born).await else {
            return wire::reset(client);
        };
        let upstream = upstream.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
            return wire::reset(client);
        };
        // Small writes must not wait for each other here, or tests would measure the proxy.
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        let link = Self {
            client,
            server,
            live: Some(live),
            server_ended: false,
            to_server: Lane::default(),
            to_client: Lane::default(),
            rules,
            born,
            trap,
            recent: Vec::new(),
            loss: Loss::None,
            swallowed: false,
        };
        link.carry().await;
    }

    async fn carry(mut self) {
        let end = loop {
            let rule = *self.rules.borrow_and_update();
            if rule.is_hole() {
                // Both lanes must be emptied, hence no short cut here.
                self.swallowed |= self.to_server.clear() | self.to_client.clear();
            }
            if rule.resets != self.born || (self.swallowed && !rule.is_hole()) {
                break End::Reset;
            }
            let hurry = rule.mode == Mode::Pass;
            let event = tokio::select! {
                changed = self.rules.changed() => changed.map_or(Event::ProxyGone, |()| Event::RuleChanged),
                _ = self.client.readable(), if self.live.is_some() => Event::ClientSent,
                _ = self.server.readable(), if !self.server_ended => Event::ServerSent,
                () = self.to_server.ready(&self.server, hurry) => Event::ToServer,
                () = self.to_client.ready(&self.client, hurry) => Event::ToClient,
            };
            let end = match event {
                Event::RuleChanged => None,
                Event::ProxyGone => Some(End::Dropped),
                Event::ClientSent => self.hear_client(rule),
                Event::ServerSent => self.hear_server(rule),
                Event::ToServer => self.tell_server().await,
                Event::ToClient => self.tell_client(),
            };
            if let Some(end) = end {
                break end;
            }
        };
        self.end(end).await;
    }

    fn hear_client(&mut self, seen: Rule) -> Option<End> {
        let mut buffer = vec![0; wire::CHUNK];
        let chunk = wire::read(&self.client, &mut buffer)?;
        if chunk.is_empty() {
            self.live = None;
        }
        let rule = self.rule_for(seen)?;
        if chunk.is_empty() {
            self.to_server.push_end(rule.delay());
            return None;
        }
        self.to_server.push(rule.delay(), chunk);
        let caught = self.trap.catch(&self.recent, chunk);
        self.recent.extend_from_slice(chunk);
        self.recent.drain(..self.recent.len().saturating_sub(NEEDLE_LIMIT));
        match caught {
            None => None,
            Some((Fault::HoldRequest, id)) => Some(End::Hold(id)),
            Some((Fault::LoseReply, id)) => {
                self.to_server.push_mark();
                self.loss = Loss::Seen(id);
                None
            }
        }
    }

    fn hear_server(&mut self, seen: Rule) -> Option<End> {
        let mut buffer = vec![0; wire::CHUNK];
        let chunk = wire::read(&self.server, &mut buffer)?;
        self.server_ended = chunk.is_empty();
        let rule = self.rule_for(seen)?;
        match self.loss {
            Loss::Done(_) => {}
            _ if chunk.is_empty() => self.to_client.push_end(rule.delay()),
            Loss::None => self.to_client.push(rule.delay(), chunk),
            // Perhaps the reply to an earlier request: too early to close.
            Loss::Seen(_) => {}
            Loss::Delivered(id) => {
                self.loss = Loss::Done(id);
                self.to_client.push_end(rule.delay());
            }
        }
        None
    }

    /// The rule for bytes that were just read, or `None` if they are lost and that has been noted.
    ///
    /// The rule may have changed since the connection last looked (`seen`). A byte sent after the change to a black
    /// hole must not slip through, and one that may have been sent before its end must not either.
    fn rule_for(&mut self, seen: Rule) -> Option<Rule> {
        let now = *self.rules.borrow();
        let lost = seen.is_hole() || now.is_hole() || now.resets != self.born;
        self.swallowed |= lost;
        (!lost).then_some(now)
    }

    async fn tell_server(&mut self) -> Option<End> {
        let mut step = self.to_server.advance(&self.server);
        if step == Step::Wrote && self.to_server.is_at_mark() {
            // Noted in the same breath as the write before it: the answer may be here at the next one.
            step = self.to_server.advance(&self.server);
        }
        match step {
            Step::Wrote => {}
            Step::Mark => {
                if let Loss::Seen(id) = self.loss {
                    self.loss = Loss::Delivered(id);
                }
            }
            // Redis then ends its own half, which closes the rest.
            Step::End => drop(self.server.shutdown().await),
            // Its last words may still be unread; the connection ends after them.
            Step::Broken => drop(self.to_server.clear()),
        }
        None
    }

    fn tell_client(&mut self) -> Option<End> {
        match self.to_client.advance(&self.client) {
            Step::Wrote | Step::Mark => None,
            Step::End => Some(End::Close),
            // What it sent before it went away may still be unread.
            Step::Broken => {
                self.to_client.clear();
                None
            }
        }
    }

    async fn end(mut self, end: End) {
        match end {
            End::Dropped => {}
            End::Reset => {
                wire::reset(self.client);
                wire::reset(self.server);
            }
            End::Close => {
                drop(self.client);
                drop(self.live);
                if let Loss::Done(id) = self.loss {
                    self.trap.fire(id);
                }
                let rest = self.to_server.take_bytes();
                let _ = self.server.write_all(&rest).await;
                wire::finish(self.server).await;
            }
            End::Hold(id) => {
                let held = Held {
                    client: self.live.map(|live| (self.client, live)),
                    server: self.server,
                    request: self.to_server.take_bytes(),
                    release: self.trap.hold(),
                    rules: self.rules,
                    born: self.born,
                };
                // Only now can the request be released by someone who waited for the fault.
                self.trap.fire(id);
                held.run().await;
            }
        }
    }
}
