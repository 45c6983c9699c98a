//! The clients of this process, so that one can tell another without the system between them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use turnlock_core::ClientId;

use super::ears::Ears;

static ROLL: Mutex<Option<HashMap<ClientId, Weak<Ears>>>> = Mutex::new(None);

pub(super) fn enter(client: ClientId, ears: &Arc<Ears>) {
    let mut roll = ROLL.lock().unwrap_or_else(PoisonError::into_inner);
    let roll = roll.get_or_insert_default();
    roll.retain(|_, ears| ears.strong_count() > 0);
    roll.insert(client, Arc::downgrade(ears));
}

/// The ears of a client, if it is of this process.
pub(super) fn find(client: ClientId) -> Option<Arc<Ears>> {
    ROLL.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&client)?.upgrade()
}
