//! A port in front of a server, with a fault proxy for each source of connections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::FaultProxy;

use super::socket_owner;

/// The address of a server that others know: each source of connections has a [`FaultProxy`] of its own.
///
/// Servers are told apart by their IP address: each binds its outgoing connections to one (`bind-source-addr`). Connections
/// from any other address belong to source 0, the clients. Clients of [minority processes](Minority) are the last source.
#[derive(Debug)]
pub struct Front {
    port: u16,
    sources: Arc<Vec<Source>>,
    acceptor: JoinHandle<()>,
}

/// The processes whose clients are a source of their own, for all fronts of a deployment.
#[derive(Clone, Debug, Default)]
pub struct Minority(Arc<Mutex<Vec<u32>>>);

impl Minority {
    /// Adds a process. Its connections from now on are of the last source.
    pub fn add(&self, pid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    /// Returns `true` if a process has the client's end of this connection, which is at `from`.
    fn has(&self, stream: &TcpStream, from: SocketAddr) -> bool {
        let pids = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        !pids.is_empty() && stream.local_addr().is_ok_and(|to| socket_owner::have_socket(&pids, from, to))
    }
}

/// The connections from one source.
#[derive(Debug)]
struct Source {
    /// `None` for clients of the minority.
    address: Option<Ipv4Addr>,
    proxy: Arc<FaultProxy>,
    connections: mpsc::UnboundedSender<TcpStream>,
}

impl Front {
    /// Starts a front whose server is not known yet, for clients and servers at these addresses.
    pub(crate) async fn start(servers: &[Ipv4Addr], minority: &Minority) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a loopback port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let mut sources = Vec::new();
        let servers = servers.iter().copied().map(Some);
        for address in [Some(Ipv4Addr::LOCALHOST)].into_iter().chain(servers).chain([None]) {
            let (connections, receiver) = mpsc::unbounded_channel();
            let proxy = Arc::new(FaultProxy::of_connections(receiver));
            sources.push(Source { address, proxy, connections });
        }
        let sources = Arc::new(sources);
        let acceptor = tokio::spawn(accept(listener, Arc::clone(&sources), minority.clone()));
        Self { port, sources, acceptor }
    }

    /// Sets the port of the server.
    pub(crate) fn lead_to(&self, port: u16) {
        self.sources.iter().for_each(|source| source.proxy.redirect_to(port));
    }

    /// Returns the port that clients and other servers connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the proxies of all sources: the clients, the servers, the clients of the minority.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = &Arc<FaultProxy>> {
        self.sources.iter().map(|source| &source.proxy)
    }

    /// Returns the proxy for the connections from a source, by its number.
    pub fn from(&self, source: usize) -> &Arc<FaultProxy> {
        &self.sources[source].proxy
    }

    /// Returns the proxies for the connections of clients.
    pub fn clients(&self) -> [&Arc<FaultProxy>; 2] {
        [self.from(0), self.from(self.sources.len() - 1)]
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // The connections belong to the proxies and end with them.
        self.acceptor.abort();
    }
}

/// Passes each connection to the proxy of its source.
async fn accept(listener: TcpListener, sources: Arc<Vec<Source>>, minority: Minority) {
    loop {
        // A client may close before it is accepted.
        let Ok((stream, from)) = listener.accept().await else { continue };
        let is_client = from.ip() == Ipv4Addr::LOCALHOST;
        let source = if is_client && minority.has(&stream, from) {
            sources.last()
        } else {
            sources.iter().find(|source| source.address.map(IpAddr::V4) == Some(from.ip()))
        };
        if let Some(source) = source.or(sources.first()) {
            // The proxy lives as long as the front.
            let _ = source.connections.send(stream);
        }
    }
}
