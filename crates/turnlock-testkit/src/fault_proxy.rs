//! A proxy that breaks the network on demand.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::link::Link;
use crate::live::Live;
use crate::rule::{Mode, Rule};
use crate::trap::{Fault, Trap};

/// A TCP proxy on a loopback port in front of another loopback port.
///
/// It is always in one of three modes ([`pass`](Self::pass), [`black_hole`](Self::black_hole),
/// [`delay`](Self::delay)), which holds for the connections there are and for new ones. A byte that is sent after the
/// call that changes the mode has returned gets the new mode. On top of that it may refuse new connections, reset
/// those there are, and have one fault armed that waits for a certain request.
///
/// Each new connection gets its own connection to the server; if that fails, the client is reset. The proxy outlives
/// restarts of the server. Dropping the proxy closes its port and every connection.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    upstream: Arc<AtomicU16>,
    rule: watch::Sender<Rule>,
    trap: Arc<Trap>,
    live: Arc<AtomicUsize>,
    acceptor: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy to `127.0.0.1:upstream_port` that passes everything on. The server need not be up yet.
    pub async fn start(upstream_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a loopback port is free for the proxy");
        let port = listener.local_addr().expect("a listener has an address").port();
        let rule = watch::Sender::new(Rule { mode: Mode::Pass, refuse: false, resets: 0 });
        let trap = Arc::new(Trap::new());
        let live = Arc::new(AtomicUsize::new(0));
        let upstream = Arc::new(AtomicU16::new(upstream_port));
        let accepting =
            accept(listener, Arc::clone(&upstream), rule.subscribe(), Arc::clone(&trap), Arc::clone(&live));
        Self { port, upstream, rule, trap, live, acceptor: tokio::spawn(accepting) }
    }

    /// The address as clients of Redis take it: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many clients are connected: accepted, and neither closed by themselves nor by the proxy.
    pub fn connections(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// Passes everything on at once, which is the mode at the start.
    ///
    /// What a delay was holding back is delivered now, in order. A connection from which a black hole has taken
    /// anything is reset, since what was taken is gone for good.
    pub fn pass(&self) {
        self.set_mode(Mode::Pass);
    }

    /// Keeps connections open but delivers nothing, in either direction, not even that a side has closed.
    ///
    /// New connections are accepted and get the same treatment, without a connection to the server. What is sent
    /// meanwhile, and what was on its way, is lost for good.
    pub fn black_hole(&self) {
        self.set_mode(Mode::BlackHole);
    }

    /// Delays both directions by this much and keeps the order.
    ///
    /// What is on its way already keeps the delay it had. Coming from a black hole, the same connections are reset
    /// as with [`pass`](Self::pass).
    pub fn delay(&self, delay: Duration) {
        self.set_mode(Mode::Delay(delay));
    }

    /// Resets every connection accepted so far, on both sides; new ones are served as before.
    ///
    /// Nothing that is sent on them after this call is delivered. A request that is being held stays so: only its
    /// client is reset.
    pub fn reset_all(&self) {
        self.rule.send_modify(|rule| rule.resets += 1);
    }

    /// Leads new connections to another server, as an address that is moved does; those there are stay where they lead.
    pub fn lead_to(&self, upstream_port: u16) {
        self.upstream.store(upstream_port, Ordering::SeqCst);
    }

    /// While true, new connections are closed as soon as they are accepted; those there are go on.
    pub fn refuse(&self, refuse: bool) {
        self.rule.send_modify(|rule| rule.refuse = refuse);
    }

    /// Arms a fault that loses the reply to one request, which the server nevertheless carries out.
    ///
    /// The next chunk from a client in which `needle` is found is delivered. From then on all that the server sends
    /// on that connection is dropped, and once at least one byte has been, the client's connection is closed. Then
    /// the fault has [`fired`](Self::fired). It fires once and takes the place of a fault that is armed.
    pub fn swallow_replies_to(&self, needle: &[u8]) {
        self.trap.arm(Fault::LoseReply, needle);
    }

    /// Arms a fault that holds one request back until [`release_held`](Self::release_held).
    ///
    /// The next chunk from a client in which `needle` is found is kept. From then on nothing passes on that
    /// connection in either direction, whatever the mode: the client's side stays open but silent, and the server's
    /// side stays open even when the client closes. The fault has [`fired`](Self::fired) when the chunk is kept. It
    /// fires once and takes the place of a fault that is armed; requests held already stay held.
    pub fn hold_request(&self, needle: &[u8]) {
        self.trap.arm(Fault::HoldRequest, needle);
    }

    /// Delivers the held requests, in the order they were caught, and returns once they are written to the server.
    ///
    /// The replies are thrown away. A server that has ended the connection meanwhile never sees the request. Panics
    /// when nothing is held.
    pub async fn release_held(&self) {
        self.trap.release().await;
    }

    /// Waits until the fault that was armed last has fired; panics after 10 s, or when none was ever armed.
    pub async fn fired(&self) {
        self.trap.fired().await;
    }

    fn set_mode(&self, mode: Mode) {
        self.rule.send_modify(|rule| rule.mode = mode);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The connections belong to this task and end with it.
        self.acceptor.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: Arc<AtomicU16>,
    rules: watch::Receiver<Rule>,
    trap: Arc<Trap>,
    live: Arc<AtomicUsize>,
) {
    let mut links = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // A client may be gone again before it is accepted.
                let Ok((client, _)) = accepted else { continue };
                if !rules.borrow().refuse {
                    let live = Live::new(&live);
                    links.spawn(Link::run(client, Arc::clone(&upstream), rules.clone(), Arc::clone(&trap), live));
                }
            }
            // Takes finished connections out, so that they do not pile up over a long test.
            Some(_) = links.join_next() => {}
        }
    }
}
