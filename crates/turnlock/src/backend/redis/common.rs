use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use tokio::runtime::Handle;

use super::access::Access;
use super::scripts::Dialect;
use crate::backend::Signals;

/// What all connections of one backend have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) access: Access,
    pub(super) dialect: Dialect,
    /// Where the connections live, whoever asks for them first.
    pub(super) runtime: Handle,
    dialled: AtomicU64,
    signals: OnceLock<Weak<dyn Signals>>,
}

impl Common {
    /// Must be called on the runtime that is to drive the connections.
    pub(super) fn new(access: Access, dialect: Dialect) -> Self {
        Self {
            access,
            dialect,
            runtime: Handle::current(),
            dialled: AtomicU64::new(0),
            signals: OnceLock::new(),
        }
    }

    /// A number for a new connection, which no other has.
    pub(super) fn next_number(&self) -> u64 {
        self.dialled.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Says whom to tell. A second engine on the same backend would be a fault in this crate; the first one stays.
    pub(super) fn attach(&self, signals: Weak<dyn Signals>) {
        let _ = self.signals.set(signals);
    }

    pub(super) fn tell(&self, tell: impl FnOnce(&dyn Signals)) {
        if let Some(signals) = self.signals.get().and_then(Weak::upgrade) {
            tell(&*signals);
        }
    }
}
