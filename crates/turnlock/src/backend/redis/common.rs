use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use tokio::runtime::Handle;

use super::access::Access;
use super::scripts::ServerMode;
use crate::backend::Signals;

/// State that all connections of one backend share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) access: Access,
    pub(super) server_mode: ServerMode,
    /// The runtime that drives all connections, whichever task opens them.
    pub(super) runtime: Handle,
    connection_count: AtomicU64,
    signals: OnceLock<Weak<dyn Signals>>,
}

impl Common {
    /// Must be called on the runtime that drives the connections from then on.
    pub(super) fn new(access: Access, server_mode: ServerMode) -> Self {
        Self {
            access,
            server_mode,
            runtime: Handle::current(),
            connection_count: AtomicU64::new(0),
            signals: OnceLock::new(),
        }
    }

    /// Returns a unique number for a new connection.
    pub(super) fn next_connection_number(&self) -> u64 {
        self.connection_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sets the receiver of notifications.
    ///
    /// A second engine on the same backend would be a bug in this crate; the first one stays attached.
    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        let _ = self.signals.set(signals);
    }

    /// Notifies the attached engine, if it still exists.
    pub(super) fn notify(&self, notify: impl FnOnce(&dyn Signals)) {
        if let Some(signals) = self.signals.get().and_then(Weak::upgrade) {
            notify(&*signals);
        }
    }
}
