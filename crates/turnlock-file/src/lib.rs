//! A file as a store of turnlock's locks, for the processes of one machine, without a server.
//!
//! Each name has a row with the state of its model. A step is one transaction: it reads the row, executes the
//! model, and writes the row back. The parts:
//!
//! | module | what it does |
//! |---|---|
//! | `worker`, `database`, `file_table` | execute steps, in order, on a thread of their own |
//! | `presence` | shows whether a client is alive, by a file lock that ends with its process |
//! | `boot` | detects a reboot, which ends all holds |
//! | `wakeups`, `wake_pipe` | notify waiters of releases |
//! | `store_path`, `preparation`, `file_system`, `schema` | the settings; find, check and create the file |
//! | `access`, `store_directory`, `clients_directory` | who may use the store; create its files, safe against other users |
//! | `access_problem`, `accounts` | explain why files cannot be used |

#![cfg(unix)]
#![forbid(unsafe_code)]
#![warn(clippy::disallowed_methods)]

mod access;
mod access_problem;
mod accounts;
mod boot;
mod clients_directory;
mod database;
mod file_error;
mod file_system;
mod file_table;
mod preparation;
mod presence;
mod schema;
mod store_directory;
mod store_path;
#[cfg(test)]
mod tests;
mod wake_pipe;
mod wakeups;
mod worker;

use std::fmt;
use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use turnlock_core::model::{Reply, Step};
use turnlock_core::{ClientId, Kind, LockName, Moment};
use turnlock_store::{
    Activity, ActivityRecord, ActivityScope, ClientProfile, Directory, Examination, Failure, Finding,
    FoundKeys, Level, OpenError, Overview, ReleaseMessages, ReplyFuture, Search, Sent, ServerOverview,
    Signals, StepOptions, StepReply, Store, Topic, clock,
};

pub use access::is_group_directory;
use database::Database;
use file_error::FileError;
use presence::Presence;
use store_directory::StoreDirectory;
pub use store_path::{FileSettings, StorePath};
use wake_pipe::WakePipe;
use wakeups::Wakeups;
use worker::Worker;

/// The store of one client in a file.
///
/// Steps are executed by a thread, in order, since file I/O blocks. A dead client is detected by the file
/// lock that its process had, and its holds are removed.
pub struct File {
    store_path: StorePath,
    worker: Worker,
    wakeups: Arc<Wakeups>,
    presence: Arc<Presence>,
    wakeup_task: JoinHandle<()>,
}

impl File {
    /// Opens or creates the store. Must be called on the runtime of the client.
    pub async fn open(store_path: StorePath, client: ClientId, limit: Duration) -> Result<Self, OpenError> {
        let wakeups = Arc::new(Wakeups::new(store_path.clone()));
        let open = {
            let (store_path, wakeups, runtime) =
                (store_path.clone(), Arc::clone(&wakeups), Handle::current());
            move || {
                let _entered = runtime.enter();
                database::set_busy_deadline(clock::now() + limit);
                let presence = Arc::new(Presence::new(&store_path, client));
                let database = Database::open(store_path.clone(), Arc::clone(&presence), wakeups)?;
                Ok((database, (WakePipe::open(&store_path, client)?, presence)))
            }
        };
        let opened = Worker::start(open).await;
        let (worker, (pipe, presence)) = opened.map_err(|error| error.into_open_error(&store_path))?;
        wakeups.register(client);
        let wakeup_task = tokio::spawn(wakeups::run(Arc::clone(&wakeups), pipe));
        Ok(Self { store_path, worker, wakeups, presence, wakeup_task })
    }

    /// A step that is queued at the worker when it is first polled, and then executed even if it is dropped.
    fn submit<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database) -> Result<T, FileError> + Send + 'static,
    ) -> ReplyFuture<T> {
        let (worker, store_path) = (self.worker.clone(), self.store_path.clone());
        Box::pin(async move {
            let sent = Sent { connection: CONNECTION, at: clock::now() };
            let outcome = worker.run(limit, work).await;
            outcome
                .map(|value| StepReply::new(value, sent))
                .map_err(|error| error.into_failure(&store_path, sent))
        })
    }
}

/// The number of the only connection: the steps of one client are always executed in order.
const CONNECTION: u64 = 1;

impl Store for File {
    fn call(&self, step: Step, options: StepOptions) -> ReplyFuture<Reply> {
        if let Err(failure) = options.without_replicas(step.name()) {
            return Box::pin(std::future::ready(Err(failure)));
        }
        let is_release = matches!(step, Step::Release(_));
        let executed = self.submit(options.limit, move |database| {
            let (mut replies, notified) = database.execute(&[step])?;
            let reply = replies.pop().unwrap_or_else(|| Err(Failure::unavailable("no reply")));
            Ok((reply?, is_release.then_some(notified)))
        });
        Box::pin(async move {
            let StepReply { value: (value, notified), sent, .. } = executed.await?;
            Ok(StepReply { notified, ..StepReply::new(value, sent) })
        })
    }

    fn call_batch(&self, steps: Vec<Step>, options: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        self.submit(options.limit, move |database| {
            let (replies, _) = database.execute(&steps)?;
            Ok(replies.into_iter().map(Result::ok).collect())
        })
    }

    fn subscribe(&self, name: &LockName) -> BoxFuture<'static, ()> {
        let subscription = self.wakeups.subscribe(name);
        let name = name.clone();
        let step = self.submit(SUBSCRIBE_LIMIT, move |database| database.subscribe(&name, subscription));
        Box::pin(async move {
            if let Err(failure) = step.await {
                tracing::debug!(%failure, "subscribe failed, will poll");
            }
        })
    }

    fn unsubscribe(&self, name: &LockName) {
        if let Some(subscription) = self.wakeups.unsubscribe(name) {
            self.worker.run_detached(SUBSCRIBE_LIMIT, move |database| database.unsubscribe(subscription));
        }
    }

    fn directory(&self) -> &dyn Directory {
        self
    }

    fn examination(&self) -> &dyn Examination {
        self
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.wakeups.attach(signals);
    }
}

impl Examination for File {
    fn examine<'a>(
        &'a self,
        _: &'a ClientProfile,
        _: &'a dyn ReleaseMessages,
    ) -> BoxFuture<'a, Vec<Finding>> {
        let text = format!(
            "The store is the file {}, without a server to check. Its locks exclude only processes of this machine that \
             use the same file. They end with their processes, and with a reboot. {}",
            self.store_path,
            StoreDirectory::open(&self.store_path)
                .and_then(|directory| directory.users())
                .unwrap_or_default()
        );
        Box::pin(ready(vec![Finding::new(Level::Fine, Topic::Server, text)]))
    }

    fn overview<'a>(&'a self, client: &'a ClientProfile) -> BoxFuture<'a, Result<Overview, Failure>> {
        Box::pin(async move {
            let start = Instant::now();
            let latency = self.ping(client.limit).await.map(|()| start.elapsed());
            let latency = latency.map_err(|failure| failure.to_string());
            let mut file = ServerOverview::new(self.store_path.to_string(), latency);
            file.version = Some(format!("SQLite {}", rusqlite::version()));
            Ok(Overview::new(vec![file], Vec::new()))
        })
    }

    fn ping(&self, limit: Duration) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(self.submit(limit, Database::ping).map_ok(|reply| reply.value))
    }
}

impl Directory for File {
    fn find(&self, search: Search, limit: Duration) -> ReplyFuture<FoundKeys> {
        self.submit(limit, move |database| database.find(&search))
    }

    fn kind_of(&self, name: &LockName, limit: Duration) -> ReplyFuture<Option<Kind>> {
        let name = name.clone();
        self.submit(limit, move |database| database.kind_of(&name))
    }

    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        _: Duration,
        limit: Duration,
    ) -> ReplyFuture<()> {
        // Without an expiry: the record is removed with its client.
        self.submit(limit, move |database| database.write_client_record(client, &record))
    }

    fn client_records(&self, clients: &[ClientId], limit: Duration) -> ReplyFuture<Vec<Option<String>>> {
        let clients = clients.to_vec();
        self.submit(limit, move |database| database.client_records(&clients))
    }

    fn write_activity(
        &self,
        client: ClientId,
        record: Option<ActivityRecord>,
        limit: Duration,
    ) -> ReplyFuture<Option<Moment>> {
        self.submit(limit, move |database| database.write_activity(client, record.as_ref()).map(Some))
    }

    fn activity(&self, scope: ActivityScope, limit: Duration) -> ReplyFuture<Activity> {
        self.submit(limit, move |database| database.activity(scope))
    }
}

/// The time-out for subscribing and unsubscribing.
const SUBSCRIBE_LIMIT: Duration = Duration::from_secs(1);

impl Drop for File {
    fn drop(&mut self) {
        self.wakeup_task.abort();
        // No step is under way any more. From here on, other clients remove what is left of this one's holds.
        self.presence.end();
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("store_path", &self.store_path).finish_non_exhaustive()
    }
}
