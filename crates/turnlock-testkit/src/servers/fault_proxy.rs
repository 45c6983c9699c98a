//! A TCP proxy that injects network faults.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::servers::connected_client::ConnectedClient;
use crate::servers::fault_trigger::{Fault, FaultTrigger};
use crate::servers::proxy_connection::ProxyConnection;
use crate::servers::proxy_state::{Mode, ProxyState};

/// A TCP proxy on a loopback port in front of another loopback port.
///
/// The proxy has three modes: [`pass`](Self::pass), [`black_hole`](Self::black_hole) and
/// [`delay`](Self::delay). The mode applies to existing and new connections, and to every byte that is sent
/// after the call that set it has returned. The proxy can also refuse new connections, reset existing ones,
/// and have one armed fault that a certain request triggers.
///
/// Each client connection has its own connection to the server; if that cannot be made, the client is reset.
/// The server may restart. Dropping the proxy closes its port and every connection.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddrV4,
    upstream: Arc<AtomicU16>,
    state: watch::Sender<ProxyState>,
    trigger: Arc<FaultTrigger>,
    connected: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy to `127.0.0.1:upstream_port` that passes everything. The server need not be up yet.
    pub async fn start(upstream_port: u16) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, upstream_port).await
    }

    /// As [`start`](Self::start), on a port of another address of this machine.
    pub async fn start_at(address: Ipv4Addr, upstream_port: u16) -> Self {
        let listener = TcpListener::bind((address, 0)).await;
        let listener = listener.expect("a port is free for the proxy");
        let port = listener.local_addr().expect("a listener has an address").port();
        Self::serve(SocketAddrV4::new(address, port), upstream_port, Incoming::Listener(listener))
    }

    /// Starts a proxy without a port of its own. It serves the connections that arrive on the channel.
    pub(crate) fn of_connections(connections: mpsc::UnboundedReceiver<TcpStream>) -> Self {
        Self::serve(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 0, Incoming::Channel(connections))
    }

    fn serve(address: SocketAddrV4, upstream_port: u16, incoming: Incoming) -> Self {
        let state = watch::Sender::new(ProxyState { mode: Mode::Pass, refuse: false, resets: 0 });
        let trigger = Arc::new(FaultTrigger::new());
        let connected = Arc::new(AtomicUsize::new(0));
        let upstream = Arc::new(AtomicU16::new(upstream_port));
        let accepting = accept(
            incoming,
            Arc::clone(&upstream),
            state.subscribe(),
            Arc::clone(&trigger),
            Arc::clone(&connected),
        );
        Self { address, upstream, state, trigger, connected, acceptor: tokio::spawn(accepting) }
    }

    /// Returns the URL for Redis clients: `redis://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns the port that clients connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of connected clients: accepted, and closed by neither side.
    pub fn connections(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }

    /// Passes everything at once. This is the initial mode.
    ///
    /// Delayed bytes are delivered now, in order. A connection on which a black hole discarded anything is
    /// reset.
    pub fn pass(&self) {
        self.set_mode(Mode::Pass);
    }

    /// Keeps connections open but delivers nothing in either direction, not even a close.
    ///
    /// New connections are accepted, without a connection to the server. What is sent meanwhile, and what was
    /// in transit, is lost.
    pub fn black_hole(&self) {
        self.set_mode(Mode::BlackHole);
    }

    /// Delays both directions by `delay` and keeps the order.
    ///
    /// Bytes in transit keep their previous delay. After a black hole, the same connections are reset as with
    /// [`pass`](Self::pass).
    pub fn delay(&self, delay: Duration) {
        self.set_mode(Mode::Delay(delay));
    }

    /// Resets every connection accepted so far, on both sides.
    ///
    /// Nothing that is sent on them after this call is delivered; new connections are served as before. A
    /// held request stays held: only its client is reset.
    pub fn reset_all(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }

    /// Connects new clients to another server, as a moved address does. Existing connections stay.
    pub fn redirect_to(&self, upstream_port: u16) {
        self.upstream.store(upstream_port, Ordering::SeqCst);
    }

    /// While `true`, closes new connections as soon as they are accepted. Existing ones stay.
    pub fn refuse(&self, refuse: bool) {
        self.state.send_modify(|state| state.refuse = refuse);
    }

    /// Arms a fault that loses the reply to one request; the server executes the request.
    ///
    /// The next chunk from a client that contains `needle` is delivered. After it, everything that the server
    /// sends on that connection is discarded. Once at least one byte is discarded, the client's connection is
    /// closed and the fault has [`fired`](Self::fired). The fault fires once, and replaces an armed fault.
    pub fn swallow_replies_to(&self, needle: &[u8]) {
        self.trigger.arm(Fault::LoseReply, needle);
    }

    /// Arms a fault that holds one request back until [`release_held`](Self::release_held).
    ///
    /// The next chunk from a client that contains `needle` is held. After it, nothing passes on that
    /// connection in either direction, in any mode: the client's side stays open but silent, and the server's
    /// side stays open even if the client closes. The fault has [`fired`](Self::fired) when the chunk is
    /// held. It fires once, and replaces an armed fault; requests that are already held stay held.
    pub fn hold_request(&self, needle: &[u8]) {
        self.trigger.arm(Fault::HoldRequest, needle);
    }

    /// Delivers the held requests in the order they were caught.
    ///
    /// Returns once they are written to the server. The replies are discarded. A server that has closed the
    /// connection meanwhile never gets the request. Panics if no request is held.
    pub async fn release_held(&self) {
        self.trigger.release().await;
    }

    /// Waits until the fault that was armed last has fired.
    ///
    /// Panics after 10 s, or if no fault was ever armed.
    pub async fn fired(&self) {
        self.trigger.fired().await;
    }

    fn set_mode(&self, mode: Mode) {
        self.state.send_modify(|state| state.mode = mode);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The connections belong to this task and end with it.
        self.acceptor.abort();
    }
}

/// Where the connections of clients come from.
#[derive(Debug)]
enum Incoming {
    Listener(TcpListener),
    Channel(mpsc::UnboundedReceiver<TcpStream>),
}

impl Incoming {
    /// Returns the next connection. `None` if a client closed before it was accepted.
    async fn next(&mut self) -> Option<TcpStream> {
        match self {
            Self::Listener(listener) => listener.accept().await.ok().map(|(client, _)| client),
            Self::Channel(connections) => match connections.recv().await {
                Some(client) => Some(client),
                // There is no sender any more.
                None => std::future::pending().await,
            },
        }
    }
}

async fn accept(
    mut incoming: Incoming,
    upstream: Arc<AtomicU16>,
    states: watch::Receiver<ProxyState>,
    trigger: Arc<FaultTrigger>,
    connected: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = incoming.next() => {
                let Some(client) = accepted else { continue };
                if !states.borrow().refuse {
                    let connected = ConnectedClient::new(&connected);
                    let (upstream, trigger) = (Arc::clone(&upstream), Arc::clone(&trigger));
                    let states = states.clone();
                    connections.spawn(ProxyConnection::run(client, upstream, states, trigger, connected));
                }
            }
            // Removes finished connections, so that they do not accumulate over a long test.
            Some(_) = connections.join_next() => {}
        }
    }
}
