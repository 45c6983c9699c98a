use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use turnlock_core::LockName;

use super::common::Common;
use super::inlet::Inlet;
use super::link::Link;
use super::listener::Listener;
use super::place::Place;
use crate::backend::Failure;

/// The connection for messages of one server, by the task that owns it.
pub(super) struct Subscriber {
    wishes: mpsc::UnboundedSender<Wish>,
    patience: Duration,
}

/// What is wanted of the listener.
pub(super) enum Wish {
    Listen(LockName, oneshot::Sender<()>),
    Unlisten(LockName),
}

/// Where a listener leaves names whose channels its server does not serve any more, so that another one is found for
/// them. None at all: the connection was lost, and the whole set-up is worth a look.
pub(super) type Orphanage = mpsc::UnboundedSender<Vec<LockName>>;

impl Subscriber {
    /// Starts to listen, on a connection that is there.
    pub(super) async fn connect(
        common: &Arc<Common>,
        place: &Place,
        link: &Arc<Link>,
    ) -> Result<Self, Failure> {
        let inlet = Inlet::open(common, place).await?;
        Ok(Self::start(common, place, link, None, Some(inlet)))
    }

    /// Starts to listen; connects, as long as there is no connection, however long it takes.
    pub(super) fn start(
        common: &Arc<Common>,
        place: &Place,
        link: &Arc<Link>,
        orphanage: Option<Orphanage>,
        inlet: Option<Inlet>,
    ) -> Self {
        let (wishes, inbox) = mpsc::unbounded_channel();
        let listener = Listener::new(Arc::clone(common), place.clone(), Arc::clone(link), orphanage, inbox);
        let link = Arc::clone(link);
        common.runtime.spawn(async move {
            tokio::select! {
                () = listener.run(inlet) => {}
                () = link.watch_role() => {}
            }
        });
        Self { wishes, patience: common.access.connect_limit }
    }

    /// Ready when a message on the channel of the name will be heard; or after a while, without a word.
    pub(super) fn listen(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (confirm, confirmed) = oneshot::channel();
        // Without the task there is nothing to wait for: the sender is dropped, and so the receiver is ready.
        let _ = self.wishes.send(Wish::Listen(name.clone(), confirm));
        let patience = self.patience;
        Box::pin(async move {
            let _ = timeout(patience, confirmed).await;
        })
    }

    pub(super) fn unlisten(&self, name: &LockName) {
        let _ = self.wishes.send(Wish::Unlisten(name.clone()));
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}
