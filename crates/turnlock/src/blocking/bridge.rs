use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

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

/// The thread of a blocking client, with its runtime.
///
/// Every handle and guard holds it. When the last one is dropped, which does not block, the thread finishes the
/// background tasks and ends.
#[derive(Debug)]
struct ClientThread {
    runtime: Handle,
    /// Its drop lets the thread finish and end.
    _alive: oneshot::Sender<()>,
}

/// How long the thread finishes releases after the last handle and guard were dropped.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

impl Bridge {
    /// Starts the thread of a client, and connects there.
    pub(super) fn connect(
        connect: impl AsyncFnOnce() -> Result<Client, Error> + Send + 'static,
    ) -> Result<(Self, Client), Error> {
        let (ready, connected) = mpsc::channel();
        let (alive, all_dropped) = oneshot::channel();
        let body = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(no_thread(&error)))),
            };
            runtime.block_on(async {
                let client = connect().await;
                let background = client.as_ref().ok().map(|client| client.engine.background.clone());
                let thread = Arc::new(ClientThread { runtime: Handle::current(), _alive: alive });
                // Fails only if the caller is gone.
                let _ = ready.send(client.map(|client| (thread, client)));
                if let Some(background) = background {
                    let _ = all_dropped.await;
                    let _ = tokio::time::timeout(EXIT_TIMEOUT, background.drained()).await;
                }
            });
        };
        thread::Builder::new().name("turnlock".to_owned()).spawn(body).map_err(|error| no_thread(&error))?;
        let panicked = "the thread of the client panicked while connecting";
        let connected = connected.recv().unwrap_or_else(|_| Err(Error::Unsupported(panicked.to_owned())));
        let (thread, client) = connected?;
        Ok((Self { clients: Arc::new([(client.clone(), thread)]), interrupt: None }, client))
    }

    /// Combines the bridges of the members of a group, of which there is at least one.
    pub(super) fn of_group(members: &[Self]) -> Self {
        let clients = members.iter().flat_map(|member| member.clients.iter().cloned()).collect();
        Self { clients, interrupt: members[0].interrupt.clone() }
    }

    pub(super) fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), clients: Arc::clone(&self.clients) }
    }

    /// Returns the calling thread as an owner of the client: the only one, or that of this member of a group.
    pub(super) fn owner(&self, member: usize) -> Owner {
        let client = &self.clients[member].0;
        OWNERS.with_borrow_mut(|owners| {
            owners.retain(|_, owner| owner.has_client());
            owners.entry(client.id()).or_insert_with(|| client.owner()).clone()
        })
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.clients[0].1.runtime.block_on(future)
    }

    /// Blocks until the future is ready, or the wait for `name` is interrupted.
    pub(super) fn wait<T>(
        &self,
        name: &str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(interrupt) = &self.interrupt else { return self.block_on(future) };
        self.block_on(async {
            tokio::select! {
                biased;
                () = interrupt.raised() => Err(Error::Interrupted { name: name.to_owned() }),
                outcome = future => outcome,
            }
        })
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Unsupported(format!("the thread of the client could not be started: {error}"))
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

/// Declares the blocking form of the async type of this name: that type with a bridge.
///
/// A handle, unlike a guard, can be cloned, and its waits can be interruptible.
macro_rules! blocking_form {
    ($(#[$meta:meta])* handle $name:ident $(<$kind:ident $(= $default:ty)?>)?) => {
        blocking_form! { $(#[$meta])* #[derive(Clone)] guard $name $(<$kind $(= $default)?>)? }

        impl $(<$kind: Clone>)? $name $(<$kind>)? {
            /// Makes waits interruptible: they end with [`Error::Interrupted`] when `interrupt` is raised.
            pub fn interruptible(&self, interrupt: &super::Interrupt) -> Self {
                Self { bridge: self.bridge.interruptible(interrupt), ..self.clone() }
            }
        }
    };
    ($(#[$meta:meta])* guard $name:ident $(<$kind:ident $(= $default:ty)?>)?) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub struct $name $(<$kind $(= $default)?>)? {
            pub(super) inner: crate::$name $(<$kind>)?,
            pub(super) bridge: Bridge,
        }

        impl $(<$kind>)? super::bridge::IntoBlocking for crate::$name $(<$kind>)? {
            type Blocking = $name $(<$kind>)?;

            fn into_blocking(self, bridge: &Bridge) -> Self::Blocking {
                $name { inner: self, bridge: bridge.clone() }
            }
        }
    };
}
pub(super) use blocking_form;
