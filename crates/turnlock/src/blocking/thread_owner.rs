//! Each thread is one owner of each client, and has its detached guards. Both end with the thread.

use std::cell::RefCell;
use std::collections::HashMap;

use turnlock_core::{ClientId, Kind, LockName};

use super::guard::Guard;
use crate::client::Client;
use crate::owner::Owner;

thread_local! {
    static OWNERS: RefCell<HashMap<ClientId, Owner>> = RefCell::default();
    static DETACHED: RefCell<HashMap<(ClientId, Kind, String), Vec<Guard>>> = RefCell::default();
}

/// Returns the calling thread as an owner.
pub(super) fn current(client: &Client) -> Owner {
    OWNERS.with_borrow_mut(|owners| {
        owners.retain(|_, owner| owner.has_client());
        owners.entry(client.id()).or_insert_with(|| client.owner()).clone()
    })
}

fn key(client: ClientId, name: &LockName) -> (ClientId, Kind, String) {
    (client, name.kind(), name.as_str().to_owned())
}

pub(super) fn detach(client: ClientId, guard: Guard) {
    let key = key(client, guard.lock_name());
    DETACHED.with_borrow_mut(|detached| detached.entry(key).or_default().push(guard));
}

/// Returns the guard of this lock that the calling thread detached last.
pub(super) fn take_detached(client: ClientId, name: &LockName) -> Option<Guard> {
    DETACHED.with_borrow_mut(|detached| {
        let key = key(client, name);
        let guards = detached.get_mut(&key)?;
        let guard = guards.pop();
        if guards.is_empty() {
            detached.remove(&key);
        }
        guard
    })
}
