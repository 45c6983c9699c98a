//! Locks between the processes of one machine, without a server, in one `SQLite` file.
//!
//! Each name has a row with the state of its model. A step is one transaction: it reads the row, executes the
//! model, and writes the row back. The parts:
//!
//! | module | what it does |
//! |---|---|
//! | `worker`, `database`, `transaction`, `row` | execute steps, in order, on a thread of their own |
//! | `presence` | shows whether a client is alive, by a file lock that ends with its process |
//! | `boot` | detects a reboot, which ends all holds |
//! | `wakeups`, `wake_pipe`, `local_clients` | notify waiters of releases |
//! | `store_path`, `file_system`, `schema` | find, check and create the file |

mod boot;
mod database;
mod file_error;
mod file_system;
mod local_clients;
mod presence;
mod row;
mod schema;
mod store_path;
mod transaction;
mod wake_pipe;
mod wakeups;
mod worker;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use turnlock_core::model::{
    AcquireOptions, Acquired, Claim, CounterOp, Notification, QueuePosition, Released, Renewed, Snapshot,
};
use turnlock_core::{ClientId, Kind, Lease, LockName, OwnerId};

use super::embedded::{OwnedClaim, unacknowledged};
use super::{
    Backend, FairWaiter, FoundKeys, Renewal, Search, Sent, ServerProbes, Signals, Step, StepOptions,
    StepReply,
};
use crate::clock;
use crate::error::Error;
use database::Database;
use file_error::FileError;
use presence::Presence;
pub(crate) use store_path::StorePath;
use wake_pipe::WakePipe;
use wakeups::Wakeups;
use worker::Worker;

/// The backend of one client on a store in a file.
///
/// Steps are executed by a thread, in order, since file I/O blocks. A dead client is detected by the file
/// lock that its process had, and its holds are removed.
pub(crate) struct File {
    store_path: StorePath,
    worker: Worker,
    wakeups: Arc<Wakeups>,
    presence: Arc<Presence>,
    wakeup_task: JoinHandle<()>,
}

impl File {
    /// Opens or creates the store. Must be called on the runtime of the client.
    pub(crate) async fn open(
        store_path: StorePath,
        client: ClientId,
        limit: Duration,
    ) -> Result<Self, Error> {
        let wakeups = Arc::new(Wakeups::new(store_path.clone()));
        let open = {
            let (store_path, wakeups) = (store_path.clone(), Arc::clone(&wakeups));
            move || {
                worker::set_busy_timeout(limit);
                let presence = Arc::new(Presence::new(&store_path, client));
                Database::open(store_path, Arc::clone(&presence), wakeups)
                    .map(|database| (database, presence))
            }
        };
        let opened = tokio::task::spawn_blocking(open).await;
        let (database, presence) =
            opened.map_err(|_| Error::ShuttingDown)?.map_err(|error| error.into_error(&store_path))?;
        let pipe = WakePipe::open(&store_path, client)
            .map_err(|error| FileError::from_io(&error).into_error(&store_path))?;
        let worker =
            Worker::start(database).map_err(|error| FileError::from_io(&error).into_error(&store_path))?;
        wakeups.register(client);
        let wakeup_task = tokio::spawn(wakeups::run(Arc::clone(&wakeups), pipe));
        Ok(Self { store_path, worker, wakeups, presence, wakeup_task })
    }

    /// A step that is queued at the worker when it is first polled, and then executed even if it is dropped.
    fn submit<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database) -> Result<T, FileError> + Send + 'static,
    ) -> Step<T> {
        let (worker, store_path) = (self.worker.clone(), self.store_path.clone());
        Box::pin(async move {
            let sent = Sent { connection: CONNECTION, at: clock::now() };
            match worker.run(limit, work).await {
                Some(Ok(value)) => Ok(StepReply::new(value, sent)),
                Some(Err(error)) => Err(error.into_failure(&store_path, sent)),
                None => Err(FileError::timed_out(limit).into_failure(&store_path, sent)),
            }
        })
    }
}

/// The number of the only connection: the steps of one client are always executed in order.
const CONNECTION: u64 = 1;

impl Backend for File {
    fn acquire(
        &self,
        claim: Claim<'_>,
        options: AcquireOptions,
        step_options: StepOptions,
    ) -> Step<Acquired> {
        if step_options.replicas > 0 {
            return unacknowledged(claim.name, step_options.replicas);
        }
        let claim = OwnedClaim::of(claim);
        self.submit(step_options.limit, move |database| {
            let reply =
                database.step(&claim.name, |item, now| item.acquire(now, &claim.as_claim(), &options))?;
            if matches!(reply, Acquired::Busy { .. }) {
                database.watch_blockers(&claim.name);
            }
            Ok(reply)
        })
    }

    fn release(&self, claim: Claim<'_>, limit: Duration) -> Step<Released> {
        let claim = OwnedClaim::of(claim);
        let step = self.submit(limit, move |database| database.release(&claim.as_claim()));
        Box::pin(async move {
            let StepReply { value: (value, notified), sent, .. } = step.await?;
            Ok(StepReply { notified: Some(notified), ..StepReply::new(value, sent) })
        })
    }

    fn renew(&self, lines: &[Renewal], step_options: StepOptions) -> Step<Vec<Option<Renewed>>> {
        let lines = lines.to_vec();
        self.submit(step_options.limit, move |database| {
            let names: Vec<_> = lines.iter().map(|line| &line.name).collect();
            database.steps(&names, |at, item, now| {
                let line = &lines[at];
                item.renew(now, &line.claim(), line.lease).map(|reply| (reply, Notification::None))
            })
        })
    }

    fn unlock_after(&self, claim: Claim<'_>, lease: Lease, step_options: StepOptions) -> Step<Renewed> {
        if step_options.replicas > 0 {
            return unacknowledged(claim.name, step_options.replicas);
        }
        let claim = OwnedClaim::of(claim);
        self.submit(step_options.limit, move |database| database.unlock_after(&claim.as_claim(), lease))
    }

    fn set_lease(&self, claim: Claim<'_>, lease: Lease, step_options: StepOptions) -> Step<Renewed> {
        let claim = OwnedClaim::of(claim);
        self.submit(step_options.limit, move |database| {
            database.step(&claim.name, |item, now| item.unlock_after(now, &claim.as_claim(), lease))
        })
    }

    fn heartbeat(&self, waiters: &[FairWaiter], limit: Duration) -> Step<Vec<Option<QueuePosition>>> {
        let waiters = waiters.to_vec();
        self.submit(limit, move |database| {
            let names: Vec<_> = waiters.iter().map(|waiter| &waiter.name).collect();
            database.steps(&names, |at, item, now| item.heartbeat(now, &waiters[at].owner))
        })
    }

    fn force_unlock(&self, name: &LockName, limit: Duration) -> Step<bool> {
        let name = name.clone();
        self.submit(limit, move |database| {
            database.step(&name, |item, now| item.force_unlock(now, name.kind()))
        })
    }

    fn perform(&self, name: &LockName, op: CounterOp, request: &OwnerId, limit: Duration) -> Step<i64> {
        let (name, request) = (name.clone(), request.clone());
        self.submit(limit, move |database| {
            database.step(&name, |item, now| item.perform(now, name.kind(), op, &request))
        })
    }

    fn forget(&self, name: &LockName, request: &OwnerId, limit: Duration) -> Step<()> {
        let (name, request) = (name.clone(), request.clone());
        self.submit(limit, move |database| {
            database
                .step(&name, |item, _| item.forget(name.kind(), &request).map(|()| ((), Notification::None)))
        })
    }

    fn inspect(&self, name: &LockName, limit: Duration) -> Step<Snapshot> {
        let name = name.clone();
        self.submit(limit, move |database| database.inspect(&name))
    }

    fn find(&self, search: Search, limit: Duration) -> Step<FoundKeys> {
        self.submit(limit, move |database| database.find(&search))
    }

    fn kind_of(&self, name: &LockName, limit: Duration) -> Step<Option<Kind>> {
        let name = name.clone();
        self.submit(limit, move |database| database.kind_of(&name))
    }

    fn write_client_record(
        &self,
        client: ClientId,
        record: String,
        _: Duration,
        limit: Duration,
    ) -> Step<()> {
        // Without an expiry: the record is removed with its client.
        self.submit(limit, move |database| database.write_client_record(client, &record))
    }

    fn client_records(&self, clients: &[ClientId], limit: Duration) -> Step<Vec<Option<String>>> {
        let clients = clients.to_vec();
        self.submit(limit, move |database| database.client_records(&clients))
    }

    fn subscribe(&self, name: &LockName) -> Pin<Box<dyn Future<Output = ()> + Send>> {
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

    fn server_probes(&self) -> ServerProbes<'_> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn about(&self) -> String {
        format!(
            "The store is the file {}, without a server to check. Its locks exclude only processes of this machine that \
             use the same file. They end with their processes, and with a reboot.",
            self.store_path
        )
    }

    fn attach(&self, signals: Weak<dyn Signals>) {
        self.wakeups.attach(signals);
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
