//! The clients of this process, which wake each other without a pipe.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use turnlock_core::ClientId;

use super::wakeups::Wakeups;

static CLIENTS: Mutex<Option<HashMap<ClientId, Weak<Wakeups>>>> = Mutex::new(None);

pub(super) fn register(client: ClientId, wakeups: &Arc<Wakeups>) {
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = clients.get_or_insert_default();
    clients.retain(|_, wakeups| wakeups.strong_count() > 0);
    clients.insert(client, Arc::downgrade(wakeups));
}

/// Returns the wakeups of a client, if it belongs to this process.
pub(super) fn find(client: ClientId) -> Option<Arc<Wakeups>> {
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&client)?.upgrade()
}
