use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::{Either, select};

use super::client_thread::ClientThread;
use super::interrupt::Interrupt;
use crate::{Client, ClientId, Error, Owner, TryAcquire};

thread_local! {
    /// This thread as an owner of each client.
    static OWNERS: RefCell<HashMap<ClientId, Owner>> = RefCell::default();
}

/// Runs async calls from the calling thread. A part of every blocking type.
///
/// In a guard, it is dropped after the async guard: its thread runs the release.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    /// The clients with their threads. The first thread runs the calls; the other clients are those of a group.
    clients: Arc<[(Client, Arc<ClientThread>)]>,
    interrupt: Option<Interrupt>,
}

impl Bridge {
    pub(super) fn new(client: Client, thread: Arc<ClientThread>) -> Self {
        Self { clients: Arc::new([(client, thread)]), interrupt: None }
    }

    /// Combines the bridges of the members of a group, of which there is at least one.
    pub(super) fn of_group(members: &[Self]) -> Self {
        let clients = members.iter().flat_map(|member| member.clients.iter().cloned()).collect();
        Self { clients, interrupt: members[0].interrupt.clone() }
    }

    pub(super) fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), clients: Arc::clone(&self.clients) }
    }

    /// Returns the client: the only one, or that of this member of a group.
    pub(super) fn client(&self, member: usize) -> &Client {
        &self.clients[member].0
    }

    /// Returns the calling thread as an owner.
    pub(super) fn owner(&self, member: usize) -> Owner {
        let client = self.client(member);
        OWNERS.with_borrow_mut(|owners| {
            owners.retain(|_, owner| owner.has_client());
            owners.entry(client.id()).or_insert_with(|| client.owner()).clone()
        })
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.clients[0].1.block_on(future)
    }

    /// Blocks until the future is ready, or the wait for `name` is interrupted.
    pub(super) fn wait<T>(
        &self,
        name: &str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(interrupt) = &self.interrupt else { return self.block_on(future) };
        self.block_on(async {
            let (raised, future) = (std::pin::pin!(interrupt.raised()), std::pin::pin!(future));
            match select(raised, future).await {
                Either::Left(((), _)) => Err(Error::Interrupted { name: name.to_owned() }),
                Either::Right((outcome, _)) => outcome,
            }
        })
    }
}

/// An async type that has a blocking form.
pub(super) trait IntoBlocking {
    type Blocking;

    fn into_blocking(self, bridge: &Bridge) -> Self::Blocking;
}

impl<G: IntoBlocking> IntoBlocking for TryAcquire<G> {
    type Blocking = TryAcquire<G::Blocking>;

    fn into_blocking(self, bridge: &Bridge) -> Self::Blocking {
        self.map(|guard| guard.into_blocking(bridge))
    }
}

/// Declares that the blocking type of this name is the async one with a bridge. A handle can be interruptible.
macro_rules! into_blocking {
    (handle $name:ident $(<$kind:ident>)?) => {
        into_blocking!($name $(<$kind>)?);

        impl $(<$kind: Clone>)? $name $(<$kind>)? {
            /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
            pub fn interruptible(&self, interrupt: &super::Interrupt) -> Self {
                Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
            }
        }
    };
    ($name:ident $(<$kind:ident>)?) => {
        impl $(<$kind>)? super::bridge::IntoBlocking for crate::$name $(<$kind>)? {
            type Blocking = $name $(<$kind>)?;

            fn into_blocking(self, bridge: &Bridge) -> Self::Blocking {
                $name { inner: self, bridge: bridge.clone() }
            }
        }
    };
}
pub(super) use into_blocking;
