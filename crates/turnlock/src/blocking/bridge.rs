use std::sync::Arc;

use futures_util::future::{Either, select};

use super::client_thread::ClientThread;
use super::interrupt::Interrupt;
use super::thread_owner;
use crate::client::Client;
use crate::error::Error;
use crate::owner::Owner;

/// Runs async calls from a blocking handle. A part of every handle.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) client: Client,
    pub(super) thread: Arc<ClientThread>,
    interrupt: Option<Interrupt>,
}

impl Bridge {
    pub(super) fn new(client: Client, thread: Arc<ClientThread>) -> Self {
        Self { client, thread, interrupt: None }
    }

    pub(super) fn interruptible(&self, interrupt: &Interrupt) -> Self {
        Self { interrupt: Some(interrupt.clone()), ..self.clone() }
    }

    /// Returns the calling thread as an owner.
    pub(super) fn owner(&self) -> Owner {
        thread_owner::current(&self.client)
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.thread.block_on(future)
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
