//! One connection through the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::servers::connected_client::ConnectedClient;
use crate::servers::delay_queue::{DelayQueue, Progress};
use crate::servers::fault_trigger::{Fault, FaultTrigger, NEEDLE_LIMIT};
use crate::servers::held_request::HeldRequest;
use crate::servers::proxy_state::{Mode, ProxyState};
use crate::servers::socket;

#[derive(Clone, Copy, Debug)]
enum Event {
    StateChanged,
    ClientReadable,
    ServerReadable,
    ServerDue,
    ClientDue,
    ProxyDropped,
}

/// Why the connection ends.
#[derive(Debug)]
enum End {
    /// Both sides are reset.
    Reset,
    /// Everything for the client is delivered.
    Close,
    /// A request is held back.
    Hold(u64),
    /// The proxy was dropped.
    Dropped,
}

/// How far a fault that loses a reply has progressed. The number identifies the armed fault.
#[derive(Clone, Copy, Debug)]
enum ReplyLoss {
    None,
    /// The request was read from the client and is in transit.
    Seen(u64),
    /// The server has the request.
    Delivered(u64),
    /// At least one byte of the reply is lost; the client's connection is closed next.
    Done(u64),
}

/// Forwards bytes between a client and the server.
///
/// The state of the proxy and its armed fault decide what is delivered.
#[derive(Debug)]
pub(crate) struct ProxyConnection {
    client: TcpStream,
    server: TcpStream,
    /// `None` once the client has shut down its half.
    connected: Option<ConnectedClient>,
    server_closed: bool,
    to_server: DelayQueue,
    to_client: DelayQueue,
    states: watch::Receiver<ProxyState>,
    /// [`ProxyState::resets`] when the connection was accepted.
    reset_epoch: u64,
    trigger: Arc<FaultTrigger>,
    /// The last bytes from the client.
    recent: Vec<u8>,
    loss: ReplyLoss,
    /// Whether a black hole discarded anything; the connection must not work again then.
    has_lost_bytes: bool,
}

impl ProxyConnection {
    /// Serves one accepted connection until it ends.
    pub(crate) async fn run(
        client: TcpStream,
        upstream: Arc<AtomicU16>,
        mut states: watch::Receiver<ProxyState>,
        trigger: Arc<FaultTrigger>,
        connected: ConnectedClient,
    ) {
        let reset_epoch = states.borrow().resets;
        let Some(connected) = connected.wait_out_black_hole(&client, &mut states, reset_epoch).await else {
            return socket::reset(client);
        };
        let upstream = upstream.load(Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else {
            return socket::reset(client);
        };
        // Without this, small writes are delayed, and tests measure the proxy.
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        let connection = Self {
            client,
            server,
            connected: Some(connected),
            server_closed: false,
            to_server: DelayQueue::default(),
            to_client: DelayQueue::default(),
            states,
            reset_epoch,
            trigger,
            recent: Vec::new(),
            loss: ReplyLoss::None,
            has_lost_bytes: false,
        };
        connection.forward().await;
    }

    async fn forward(mut self) {
        let end = loop {
            let state = *self.states.borrow_and_update();
            if state.is_black_hole() {
                // Not `||`: both queues must be cleared.
                self.has_lost_bytes |= self.to_server.clear() | self.to_client.clear();
            }
            if state.resets != self.reset_epoch || (self.has_lost_bytes && !state.is_black_hole()) {
                break End::Reset;
            }
            let ignore_delays = state.mode == Mode::Pass;
            let event = tokio::select! {
                changed = self.states.changed() => {
                    changed.map_or(Event::ProxyDropped, |()| Event::StateChanged)
                }
                _ = self.client.readable(), if self.connected.is_some() => Event::ClientReadable,
                _ = self.server.readable(), if !self.server_closed => Event::ServerReadable,
                () = self.to_server.ready(&self.server, ignore_delays) => Event::ServerDue,
                () = self.to_client.ready(&self.client, ignore_delays) => Event::ClientDue,
            };
            let end = match event {
                Event::StateChanged => None,
                Event::ProxyDropped => Some(End::Dropped),
                Event::ClientReadable => self.read_client(state),
                Event::ServerReadable => self.read_server(state),
                Event::ServerDue => self.write_server().await,
                Event::ClientDue => self.write_client(),
            };
            if let Some(end) = end {
                break end;
            }
        };
        self.finish(end).await;
    }

    fn read_client(&mut self, seen: ProxyState) -> Option<End> {
        let mut buffer = vec![0; socket::CHUNK];
        let chunk = socket::read(&self.client, &mut buffer)?;
        if chunk.is_empty() {
            self.connected = None;
        }
        let state = self.state_for(seen)?;
        if chunk.is_empty() {
            self.to_server.push_end(state.delay());
            return None;
        }
        self.to_server.push(state.delay(), chunk);
        let triggered = self.trigger.match_request(&self.recent, chunk);
        self.recent.extend_from_slice(chunk);
        self.recent.drain(..self.recent.len().saturating_sub(NEEDLE_LIMIT));
        match triggered {
            None => None,
            Some((Fault::HoldRequest, id)) => Some(End::Hold(id)),
            Some((Fault::LoseReply, id)) => {
                self.to_server.push_mark();
                self.loss = ReplyLoss::Seen(id);
                None
            }
        }
    }

    fn read_server(&mut self, seen: ProxyState) -> Option<End> {
        let mut buffer = vec![0; socket::CHUNK];
        let chunk = socket::read(&self.server, &mut buffer)?;
        self.server_closed = chunk.is_empty();
        let state = self.state_for(seen)?;
        match self.loss {
            ReplyLoss::Done(_) => {}
            _ if chunk.is_empty() => self.to_client.push_end(state.delay()),
            ReplyLoss::None => self.to_client.push(state.delay(), chunk),
            // May be the reply to an earlier request: too early to close.
            ReplyLoss::Seen(_) => {}
            ReplyLoss::Delivered(id) => {
                self.loss = ReplyLoss::Done(id);
                self.to_client.push_end(state.delay());
            }
        }
        None
    }

    /// Returns the state for bytes that were just read; `None` if they are lost.
    ///
    /// The state may have changed since it was last read (`seen`). A byte that was sent after the start of a
    /// black hole must not pass, nor one that may have been sent before its end.
    fn state_for(&mut self, seen: ProxyState) -> Option<ProxyState> {
        let now = *self.states.borrow();
        let lost = seen.is_black_hole() || now.is_black_hole() || now.resets != self.reset_epoch;
        self.has_lost_bytes |= lost;
        (!lost).then_some(now)
    }

    async fn write_server(&mut self) -> Option<End> {
        let mut progress = self.to_server.advance(&self.server);
        if progress == Progress::Wrote && self.to_server.is_at_mark() {
            // Passes the mark together with the write before it: the reply may arrive before the next event.
            progress = self.to_server.advance(&self.server);
        }
        match progress {
            Progress::Wrote => {}
            Progress::Mark => {
                if let ReplyLoss::Seen(id) = self.loss {
                    self.loss = ReplyLoss::Delivered(id);
                }
            }
            // Redis then closes its half, which ends the connection.
            Progress::End => drop(self.server.shutdown().await),
            // What the server sent before may still be unread; the connection ends after it.
            Progress::Broken => drop(self.to_server.clear()),
        }
        None
    }

    fn write_client(&mut self) -> Option<End> {
        match self.to_client.advance(&self.client) {
            Progress::Wrote | Progress::Mark => None,
            Progress::End => Some(End::Close),
            // What the client sent before it closed may still be unread.
            Progress::Broken => {
                self.to_client.clear();
                None
            }
        }
    }

    async fn finish(mut self, end: End) {
        match end {
            End::Dropped => {}
            End::Reset => {
                socket::reset(self.client);
                socket::reset(self.server);
            }
            End::Close => {
                drop(self.client);
                drop(self.connected);
                if let ReplyLoss::Done(id) = self.loss {
                    self.trigger.mark_fired(id);
                }
                let rest = self.to_server.take_bytes();
                let _ = self.server.write_all(&rest).await;
                socket::finish(self.server).await;
            }
            End::Hold(id) => {
                let held = HeldRequest {
                    client: self.connected.map(|connected| (self.client, connected)),
                    server: self.server,
                    request: self.to_server.take_bytes(),
                    release: self.trigger.hold(),
                    states: self.states,
                    reset_epoch: self.reset_epoch,
                };
                // Only now: a test that waits for the fault may release the request at once.
                self.trigger.mark_fired(id);
                held.run().await;
            }
        }
    }
}
