use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::database::{Database, set_busy_deadline};
use super::file_error::FileError;
use turnlock_store::clock;

/// The thread that executes the steps of one client, in order. It ends when the last `Worker` is dropped.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    jobs: Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Database) + Send>;

impl Worker {
    pub(super) fn start(mut database: Database) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new().name("turnlock-file".to_owned()).spawn(move || {
            for job in queue {
                job(&mut database);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs a job and returns its result. After a time-out it is executed nevertheless, before every later one.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let (result_sender, result) = oneshot::channel();
        let deadline = clock::now() + limit;
        let job: Job = Box::new(move |database| {
            set_busy_deadline(deadline);
            let _ = result_sender.send(work(database));
        });
        let _ = self.jobs.send(job);
        // A busy file is given up at the limit. The extra time lets the thread report that.
        let result = tokio::time::timeout(limit + limit / 4 + GRACE, result).await;
        result.ok().and_then(Result::ok).unwrap_or(Err(FileError::TimedOut(limit)))
    }

    /// Runs a job without waiting for its result.
    pub(super) fn run_detached(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database) -> Result<(), FileError> + Send + 'static,
    ) {
        let job: Job = Box::new(move |database| {
            set_busy_deadline(clock::now() + limit);
            if let Err(error) = work(database) {
                tracing::debug!(?error, "background job on the store file failed");
            }
        });
        let _ = self.jobs.send(job);
    }
}

const GRACE: Duration = Duration::from_millis(50);
