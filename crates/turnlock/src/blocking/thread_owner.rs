//! Each thread is one owner at each client, and keeps the guards that it was told to keep. Both end with the thread.

use std::cell::RefCell;
use std::collections::HashMap;

use turnlock_core::{ClientId, Kind, LockName};

use super::guard::Guard;
use crate::client::Client;
use crate::owner::Owner;

thread_local! {
    static OWNERS: RefCell<HashMap<ClientId, Owner>> = RefCell::default();
    static KEPT: RefCell<HashMap<(ClientId, Kind, String), Vec<Guard>>> = RefCell::default();
}

/// The calling thread as an owner.
pub(super) fn current(client: &Client) -> Owner {
    OWNERS.with_borrow_mut(|owners| {
        owners.retain(|_, owner| owner.is_of_use());
        owners.entry(client.id()).or_insert_with(|| client.owner()).clone()
    })
}

/// Where guards of this lock are kept.
fn place(client: ClientId, name: &LockName) -> (ClientId, Kind, String) {
    (client, name.kind(), name.as_str().to_owned())
}

pub(super) fn keep(client: ClientId, guard: Guard) {
    let place = place(client, guard.lock_name());
    KEPT.with_borrow_mut(|kept| kept.entry(place).or_default().push(guard));
}

/// The guard of this lock that the calling thread kept last.
pub(super) fn take_kept(client: ClientId, name: &LockName) -> Option<Guard> {
    KEPT.with_borrow_mut(|kept| {
        let place = place(client, name);
        let guards = kept.get_mut(&place)?;
        let guard = guards.pop();
        if guards.is_empty() {
            kept.remove(&place);
        }
        guard
    })
}
