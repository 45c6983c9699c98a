use std::panic;
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
    /// Starts the thread, which opens the database first. Returns also what `open` returns beside it.
    ///
    /// A panic of `open` is a panic of the caller.
    pub(super) async fn start<T: Send + 'static>(
        open: impl FnOnce() -> Result<(Database, T), FileError> + Send + 'static,
    ) -> Result<(Self, T), FileError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (opened_sender, opened) = oneshot::channel();
        let run = move || match open() {
            Ok((mut database, rest)) => {
                let _ = opened_sender.send(Ok(rest));
                for job in queue {
                    job(&mut database);
                }
            }
            Err(error) => {
                let _ = opened_sender.send(Err(error));
            }
        };
        let thread = thread::Builder::new().name("turnlock-file".to_owned()).spawn(run)?;
        match opened.await {
            Ok(opened) => opened.map(|rest| (Self { jobs }, rest)),
            // Only a panic ends the thread without a result.
            Err(_) => panic::resume_unwind(thread.join().expect_err("open has panicked")),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "out of order")]
    async fn a_panic_while_opening_reaches_the_caller() {
        let _ = Worker::start(|| -> Result<(Database, ()), FileError> { panic!("out of order") }).await;
    }
}
