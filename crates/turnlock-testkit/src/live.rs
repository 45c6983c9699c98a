//! The count of connected clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::rule::Rule;
use crate::wire;

/// Counts one live client for as long as it exists.
#[derive(Debug)]
pub(crate) struct Live(Arc<AtomicUsize>);

impl Live {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }

    /// Waits until there is no black hole, while it takes all that the new client sends.
    ///
    /// `None` if it took anything, even the client's end, or if all connections were reset meanwhile.
    pub(crate) async fn outlast_hole(
        self,
        client: &TcpStream,
        rules: &mut watch::Receiver<Rule>,
        born: u64,
    ) -> Option<Self> {
        let mut live = Some(self);
        let mut swallowed = false;
        loop {
            let rule = *rules.borrow_and_update();
            if rule.resets != born || (swallowed && !rule.is_hole()) {
                return None;
            }
            if !rule.is_hole() {
                return live;
            }
            tokio::select! {
                changed = rules.changed() => changed.ok()?,
                length = wire::swallow(client), if live.is_some() => {
                    swallowed = true;
                    if length == 0 {
                        live = None;
                    }
                }
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
