//! Each thread is one owner at each client, and keeps the guards that it was told to keep. Both end with the thread.

use std::cell::RefCell;
use std::collections::HashMap;

use turnlock_core::ClientId;

use super::guard::Guard;
use crate::client::Client;
use crate::owner::Owner;

thread_local! {
    static OWNERS: RefCell<HashMap<ClientId, Owner>> = RefCell::default();
    static KEPT: RefCell<HashMap<(ClientId, String), Vec<Guard>>> = RefCell::default();
}

/// The calling thread as an owner.
pub(super) fn current(client: &Client) -> Owner {
    OWNERS.with_borrow_mut(|owners| {
        owners.retain(|_, owner| owner.is_of_use());
        owners.entry(client.id()).or_insert_with(|| client.owner()).clone()
    })
}

pub(super) fn keep(client: ClientId, guard: Guard) {
    KEPT.with_borrow_mut(|kept| kept.entry((client, guard.name().to_owned())).or_default().push(guard));
}

/// The guard of this lock that the calling thread kept last.
pub(super) fn take_kept(client: ClientId, name: &str) -> Option<Guard> {
    KEPT.with_borrow_mut(|kept| {
        let place = (client, name.to_owned());
        let guards = kept.get_mut(&place)?;
        let guard = guards.pop();
        if guards.is_empty() {
            kept.remove(&place);
        }
        guard
    })
}
