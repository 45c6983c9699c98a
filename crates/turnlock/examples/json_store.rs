//! A store in a JSON file, for the processes of one machine: what a store must do, and no more.
//!
//! ```sh
//! cargo run -p turnlock --example json_store
//! ```
//!
//! The page "Writing a store" explains it, and says what it lacks. `tests/json_store.rs` runs the conformance suite on it.

#[cfg(unix)]
mod store {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io::{self, Read, Seek, Write};
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex, Weak};

    use futures_util::future::BoxFuture;
    use rustix::fs::{FlockOperation, flock};
    use turnlock::ClientId;
    use turnlock_core::LockName;
    use turnlock_core::model::{Reply, Step};
    use turnlock_store::row::{self, Executed, Row};
    use turnlock_store::{
        Failure, FailureKind, ReplyFuture, Sent, Signals, StepOptions, StepReply, Store, clock,
    };

    /// The store of one client.
    #[derive(Debug)]
    pub struct JsonStore {
        path: PathBuf,
        client: ClientId,
    }

    /// The clients of this process, which wake each other: the path of each, and where its signals go.
    static CLIENTS: Mutex<Vec<(PathBuf, Weak<dyn Signals>)>> = Mutex::new(Vec::new());

    /// The number of the next call.
    static CALLS: AtomicU64 = AtomicU64::new(1);

    impl JsonStore {
        /// Creates the store of this client. The file is created with the first step.
        pub fn new(path: impl Into<PathBuf>, client: ClientId) -> Self {
            Self { path: path.into(), client }
        }

        /// Executes steps in one transaction.
        fn submit(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Result<Reply, Failure>>> {
            let (path, client) = (self.path.clone(), self.client);
            // Nothing happens before the first poll: a future that is dropped before has no effect.
            Box::pin(async move {
                steps.first().map_or(Ok(()), |step| options.without_replicas(step.name()))?;
                // Each call has a number of its own, since calls may reach the file in any order. The moment is
                // before the step: the client counts its lease from then on.
                let sent = Sent { connection: CALLS.fetch_add(1, Ordering::Relaxed), at: clock::now() };
                // Once begun, the step is completed, and the waiters are woken, even if this future is dropped.
                let task = tokio::task::spawn_blocking(move || execute(&path, &steps, client, sent));
                match tokio::time::timeout(options.limit, task).await {
                    Ok(Ok(outcome)) => outcome,
                    // There is no reply in time: the step may still take effect.
                    Ok(Err(_)) | Err(_) => Err(in_doubt(io::ErrorKind::TimedOut.into(), sent)),
                }
            })
        }
    }

    impl Store for JsonStore {
        fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
            let replies = self.submit(vec![step], options);
            let only =
                |mut replies: Vec<_>| replies.pop().unwrap_or_else(|| Err(Failure::unavailable("no reply")));
            Box::pin(async move { replies.await?.try_map(only) })
        }

        fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
            let replies = self.submit(steps, options);
            Box::pin(
                async move { replies.await?.try_map(|all| Ok(all.into_iter().map(Result::ok).collect())) },
            )
        }

        fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
            // Every client of this process is notified of every release, and wakes its own waiters.
            Box::pin(std::future::ready(()))
        }

        fn unsubscribe(&self, _: &LockName) {}

        fn attach(&self, signals: Weak<dyn Signals>) {
            let mut clients = CLIENTS.lock().expect("no panic while it is locked");
            clients.retain(|(_, signals)| signals.strong_count() > 0);
            clients.push((self.path.clone(), signals));
        }
    }

    /// Executes steps, and wakes the waiters that they concern.
    fn execute(
        path: &Path,
        steps: &[Step],
        client: ClientId,
        sent: Sent,
    ) -> Result<StepReply<Vec<Result<Reply, Failure>>>, Failure> {
        let Executed { replies, freed } = transact(path, steps, client, sent)?;
        let clients = CLIENTS.lock().expect("no panic while it is locked").clone();
        let here = clients.iter().filter(|(other, _)| other == path && !freed.is_empty());
        let mut notified = 0;
        for signals in here.filter_map(|(_, signals)| signals.upgrade()) {
            let mut is_concerned = false;
            for name in &freed {
                is_concerned |= signals.freed(name);
            }
            notified += u32::from(is_concerned);
        }
        Ok(StepReply { notified: Some(notified), ..StepReply::new(replies, sent) })
    }

    /// Reads the rows, executes the steps, and writes the rows, while no other process does.
    fn transact(path: &Path, steps: &[Step], client: ClientId, sent: Sent) -> Result<Executed, Failure> {
        let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(unavailable)?;
        // Closing the file ends the lock.
        flock(&file, FlockOperation::LockExclusive).map_err(|error| unavailable(error.into()))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(unavailable)?;
        let rows = if text.is_empty() { Ok(HashMap::new()) } else { serde_json::from_slice(&text) };
        let mut rows: HashMap<Box<str>, Row> = rows.map_err(|error| {
            let (key, found) = (path.display().to_string(), error.to_string());
            Failure::refused(FailureKind::NotALock { key, found })
        })?;
        // The clock is read under the lock, so that it does not go back from one step to the next.
        let executed = row::execute(&mut rows, steps, clock::both(), client)?;
        if !steps.iter().all(|step| matches!(step, Step::Inspect(_))) {
            let text = serde_json::to_vec(&rows).map_err(|error| unavailable(error.into()))?;
            let written = file.rewind().and_then(|()| file.write_all(&text));
            written.and_then(|()| file.set_len(text.len() as u64)).map_err(|error| in_doubt(error, sent))?;
        }
        Ok(executed)
    }

    /// A failure of a step that had no effect.
    fn unavailable(error: io::Error) -> Failure {
        Failure::refused(FailureKind::Unavailable(Arc::new(error)))
    }

    /// A failure of a step that may have taken effect, or still may.
    fn in_doubt(error: io::Error, sent: Sent) -> Failure {
        Failure { in_doubt: Some(sent), ..unavailable(error) }
    }
}

#[cfg(unix)]
pub use store::JsonStore;

/// Two clients take turns.
#[cfg(unix)]
#[tokio::main]
pub async fn main() -> Result<(), turnlock::Error> {
    let path = std::env::temp_dir().join(format!("turnlock-{}.json", std::process::id()));
    let open = |client| std::sync::Arc::new(JsonStore::new(&path, client)) as _;
    let (one, two) = (turnlock::Client::builder().store(open)?, turnlock::Client::builder().store(open)?);

    let guard = one.lock("orders").lock().await?;
    println!("busy: {}", two.lock("orders").try_lock().await?.is_busy());
    let waiting = tokio::spawn(async move { two.lock("orders").lock().await });
    guard.unlock().await?;
    let guard = waiting.await.expect("no panic")?;
    println!("acquired by the other client");
    guard.unlock().await?;

    let _ = std::fs::remove_file(path);
    Ok(())
}

#[cfg(not(unix))]
pub fn main() {
    println!("this example needs a Unix system");
}
