//! A proxied connection whose request is held back.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::servers::connected_client::ConnectedClient;
use crate::servers::fault_trigger::Release;
use crate::servers::proxy_state::ProxyState;
use crate::servers::socket;

/// A request that the client sent and the server does not get before its release.
///
/// Nothing else passes on the connection: what either side sends is discarded. The connection to the server
/// stays open even if the client closes, as if the request were still in transit.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    /// `None` once the client has closed its connection or was reset.
    pub(crate) client: Option<(TcpStream, ConnectedClient)>,
    pub(crate) server: TcpStream,
    pub(crate) request: Vec<u8>,
    pub(crate) release: oneshot::Receiver<Release>,
    pub(crate) states: watch::Receiver<ProxyState>,
    /// [`ProxyState::resets`] when the connection was accepted.
    pub(crate) reset_epoch: u64,
}

impl HeldRequest {
    /// Holds the request until its release. Returns when it is delivered and the client is gone.
    pub(crate) async fn run(mut self) {
        let mut released = false;
        let mut server_ended = false;
        while !released || self.client.is_some() {
            let client_closed = async {
                match &self.client {
                    Some((client, _)) => socket::discard(client).await,
                    None => std::future::pending().await,
                }
            };
            // Drops the read guard of the watch before the other branches run.
            let all_reset =
                async { self.states.wait_for(|state| state.resets != self.reset_epoch).await.is_ok() };
            tokio::select! {
                () = client_closed => self.client = None,
                () = socket::discard(&self.server), if !server_ended => server_ended = true,
                release = &mut self.release, if !released => {
                    // The sender is dropped only with the proxy.
                    let Ok(written) = release else { return };
                    // If the server is gone, the request is lost; the test detects that.
                    let _ = self.server.write_all(&self.request).await;
                    released = true;
                    let _ = written.send(());
                }
                reset = all_reset, if self.client.is_some() => {
                    if !reset {
                        return;
                    }
                    if let Some((client, _connected)) = self.client.take() {
                        socket::reset(client);
                    }
                }
            }
        }
        socket::finish(self.server).await;
    }
}
