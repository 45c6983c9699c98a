//! The count of connected clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::servers::proxy_state::ProxyState;
use crate::servers::socket;

/// Counts one connected client until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectedClient(Arc<AtomicUsize>);

impl ConnectedClient {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }

    /// Waits while the proxy is a black hole, and discards what the new client sends.
    ///
    /// `None` if anything was discarded, including the client's shutdown, or if all connections were reset
    /// meanwhile.
    pub(crate) async fn wait_out_black_hole(
        self,
        client: &TcpStream,
        states: &mut watch::Receiver<ProxyState>,
        reset_epoch: u64,
    ) -> Option<Self> {
        let mut connected = Some(self);
        let mut has_lost_bytes = false;
        loop {
            let state = *states.borrow_and_update();
            if state.resets != reset_epoch || (has_lost_bytes && !state.is_black_hole()) {
                return None;
            }
            if !state.is_black_hole() {
                return connected;
            }
            tokio::select! {
                changed = states.changed() => changed.ok()?,
                length = socket::discard_chunk(client), if connected.is_some() => {
                    has_lost_bytes = true;
                    if length == 0 {
                        connected = None;
                    }
                }
            }
        }
    }
}

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
