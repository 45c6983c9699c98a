use std::cell::Cell;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use turnlock_core::Moment;

use super::ledger::Ledger;
use super::trouble::Trouble;
use crate::clock;

/// The thread that does one client's steps, in the order in which they came. It ends with its last user.
#[derive(Clone, Debug)]
pub(super) struct Clerk {
    desk: Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Ledger) + Send>;

impl Clerk {
    pub(super) fn start(mut ledger: Ledger) -> io::Result<Self> {
        let (desk, jobs) = mpsc::channel::<Job>();
        thread::Builder::new().name("turnlock-file".to_owned()).spawn(move || {
            for job in jobs {
                job(&mut ledger);
            }
        })?;
        Ok(Self { desk })
    }

    /// Does something, and says what came of it. `None` when that took too long: it is done all the same, later, and before
    /// anything that is asked for after it.
    pub(super) async fn perform<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Ledger) -> Result<T, Trouble> + Send + 'static,
    ) -> Option<Result<T, Trouble>> {
        let (tell, told) = oneshot::channel();
        let end = clock::now() + limit;
        let job: Job = Box::new(move |ledger| {
            wait_until(end);
            let _ = tell.send(work(ledger));
        });
        self.desk.send(job).ok()?;
        // The file is given up on at the limit; the rest is for the thread to say so.
        tokio::time::timeout(limit + limit / 4 + GRACE, told).await.ok()?.ok()
    }

    /// Does something of which nobody waits for the end.
    pub(super) fn perform_some_time(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Ledger) -> Result<(), Trouble> + Send + 'static,
    ) {
        let job: Job = Box::new(move |ledger| {
            wait_at_most(limit);
            if let Err(trouble) = work(ledger) {
                tracing::debug!(?trouble, "left undone");
            }
        });
        let _ = self.desk.send(job);
    }
}

const GRACE: Duration = Duration::from_millis(50);

thread_local! {
    /// Until when this thread waits for other processes to be done with the file.
    static PATIENCE: Cell<Moment> = const { Cell::new(Moment::NEVER) };
}

/// From here on, this thread waits for other processes for so long at the most.
pub(super) fn wait_at_most(limit: Duration) {
    wait_until(clock::now() + limit);
}

fn wait_until(end: Moment) {
    PATIENCE.set(end);
}

/// Called by `SQLite` when another process has the file. Whether to try again.
///
/// A step takes some microseconds, so the waits are short; by chance, so that those who wait do not come together again.
pub(super) fn try_again(times: i32) -> bool {
    if clock::now() >= PATIENCE.get() {
        return false;
    }
    let longest = 50_u64 << times.clamp(0, 5);
    thread::sleep(Duration::from_micros(fastrand::u64(longest / 2..=longest)));
    true
}
