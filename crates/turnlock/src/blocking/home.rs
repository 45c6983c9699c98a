use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::client::Client;
use crate::error::Error;

/// How long the thread goes on after its last user has gone, to finish releases.
const FAREWELL: Duration = Duration::from_secs(30);

/// The runtime of a blocking client, on a thread of its own.
///
/// Everything that needs the thread holds a `Home`. When the last is dropped, which does not block, the thread finishes
/// what is under way and ends.
#[derive(Debug)]
pub(super) struct Home {
    runtime: Handle,
    /// Dropped with the home: that is how the thread hears of it.
    _alive: oneshot::Sender<()>,
}

impl Home {
    /// Starts the thread and makes the client there.
    pub(super) fn build<F>(connect: F) -> Result<(Arc<Self>, Client), Error>
    where
        F: AsyncFnOnce() -> Result<Client, Error> + Send + 'static,
    {
        let (tell, hear) = mpsc::channel();
        let (alive, gone) = oneshot::channel();
        let body = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(no_thread(&error)))),
            };
            let handle = runtime.handle().clone();
            let Ok(errands) = runtime.block_on(async {
                let client = connect().await;
                let errands = client.as_ref().map(Client::errands).map_err(drop);
                // Fails only when the one who asked is gone.
                let _ = tell.send(client.map(|client| (handle, client)));
                errands
            }) else {
                return;
            };
            drop(tell);
            runtime.block_on(async {
                let _ = gone.await;
                let _ = tokio::time::timeout(FAREWELL, errands.drained()).await;
            });
        };
        thread::Builder::new().name("turnlock".to_owned()).spawn(body).map_err(|error| no_thread(&error))?;
        match hear.recv() {
            Ok(Ok((runtime, client))) => Ok((Arc::new(Self { runtime, _alive: alive }), client)),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(Error::bad_setting("runtime", "the thread of the client ended before it was ready"))
            }
        }
    }

    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::bad_setting("runtime", format!("the thread of the client could not be started: {error}"))
}
