use std::cell::Cell;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use turnlock_core::Moment;

use super::database::Database;
use super::file_error::FileError;
use crate::clock;

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

    /// Runs a job and returns its result.
    ///
    /// Returns `None` on a time-out. The job is executed nevertheless, before every later one.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database) -> Result<T, FileError> + Send + 'static,
    ) -> Option<Result<T, FileError>> {
        let (result_sender, result) = oneshot::channel();
        let deadline = clock::now() + limit;
        let job: Job = Box::new(move |database| {
            set_busy_deadline(deadline);
            let _ = result_sender.send(work(database));
        });
        self.jobs.send(job).ok()?;
        // A busy file is given up at the limit. The extra time lets the thread report that.
        tokio::time::timeout(limit + limit / 4 + GRACE, result).await.ok()?.ok()
    }

    /// Runs a job without waiting for its result.
    pub(super) fn run_detached(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Database) -> Result<(), FileError> + Send + 'static,
    ) {
        let job: Job = Box::new(move |database| {
            set_busy_timeout(limit);
            if let Err(error) = work(database) {
                tracing::debug!(?error, "background job on the store file failed");
            }
        });
        let _ = self.jobs.send(job);
    }
}

const GRACE: Duration = Duration::from_millis(50);

thread_local! {
    /// Until when this thread waits while other processes have the file locked.
    static BUSY_DEADLINE: Cell<Moment> = const { Cell::new(Moment::NEVER) };
}

/// Sets how long this thread waits, from now on, while other processes have the file locked.
pub(super) fn set_busy_timeout(limit: Duration) {
    set_busy_deadline(clock::now() + limit);
}

fn set_busy_deadline(deadline: Moment) {
    BUSY_DEADLINE.set(deadline);
}

/// The busy handler of `SQLite`: waits a moment. Returns `false` to give up.
///
/// A step takes some microseconds, so the waits are short. They are random, so that waiting processes do not
/// collide again.
pub(super) fn retry_busy(times: i32) -> bool {
    if clock::now() >= BUSY_DEADLINE.get() {
        return false;
    }
    let longest = 50_u64 << times.clamp(0, 5);
    thread::sleep(Duration::from_micros(fastrand::u64(longest / 2..=longest)));
    true
}
