use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::runtime::Handle;

use crate::access::Access;
use crate::lua::ServerMode;
use turnlock_store::Signals;

/// State that all connections of one store share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) access: Access,
    pub(crate) server_mode: ServerMode,
    /// The runtime that drives all connections, whichever task opens them.
    pub(crate) runtime: Handle,
    connection_count: AtomicU64,
    signals: OnceLock<Weak<dyn Signals>>,
}

impl Common {
    /// Must be called on the runtime that drives the connections from then on.
    pub(crate) fn new(access: Access, server_mode: ServerMode) -> Arc<Self> {
        let (runtime, connection_count, signals) = (Handle::current(), AtomicU64::new(0), OnceLock::new());
        Arc::new(Self { access, server_mode, runtime, connection_count, signals })
    }

    /// Returns a unique number for a new connection.
    pub(crate) fn next_connection_number(&self) -> u64 {
        self.connection_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sets the receiver of notifications.
    ///
    /// A second engine on the same store would be a bug in this crate; the first one stays attached.
    pub(crate) fn attach(&self, signals: Weak<dyn Signals>) {
        let _ = self.signals.set(signals);
    }

    /// Notifies the attached engine, if it still exists.
    pub(crate) fn notify(&self, notify: impl FnOnce(&dyn Signals)) {
        if let Some(signals) = self.signals.get().and_then(Weak::upgrade) {
            notify(&*signals);
        }
    }
}
