use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::error::Error;

/// How long the thread finishes releases after the last handle and guard were dropped.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The thread of a blocking client, with its runtime.
///
/// Every handle and guard holds it. When the last one is dropped, which does not block, the thread finishes the
/// background tasks and ends.
#[derive(Debug)]
pub(super) struct ClientThread {
    runtime: Handle,
    /// Its drop lets the thread finish and end.
    _alive: oneshot::Sender<()>,
}

impl ClientThread {
    /// Starts the thread, and connects there.
    pub(super) fn build<F>(connect: F) -> Result<(Arc<Self>, Client), Error>
    where
        F: AsyncFnOnce() -> Result<Client, Error> + Send + 'static,
    {
        let (ready, connected) = mpsc::channel();
        let (alive, all_dropped) = oneshot::channel();
        let body = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(no_thread(&error)))),
            };
            let handle = runtime.handle().clone();
            let Ok(background) = runtime.block_on(async {
                let client = connect().await;
                let background = client.as_ref().map(Client::background).map_err(drop);
                // Fails only if the caller is gone.
                let _ = ready.send(client.map(|client| (handle, client)));
                background
            }) else {
                return;
            };
            drop(ready);
            runtime.block_on(async {
                let _ = all_dropped.await;
                let _ = tokio::time::timeout(EXIT_TIMEOUT, background.drained()).await;
            });
        };
        thread::Builder::new().name("turnlock".to_owned()).spawn(body).map_err(|error| no_thread(&error))?;
        match connected.recv() {
            Ok(Ok((runtime, client))) => Ok((Arc::new(Self { runtime, _alive: alive }), client)),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(Error::Unsupported("the thread of the client panicked while connecting".to_owned()))
            }
        }
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Unsupported(format!("the thread of the client could not be started: {error}"))
}
