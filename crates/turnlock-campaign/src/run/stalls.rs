//! Records when the machine is too busy to run a process, or to write to a disk: such a time is no fault of turnlock.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use turnlock_store::clock;
use turnlock_testkit::TempDir;

use crate::history::What;
use crate::recorder::Recorder;

/// How often it is checked, and how much later than planned a check may end.
const TICK: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_millis(200);

/// A thread that records when it does not run, until this is dropped.
pub(super) struct StallWatch(Arc<AtomicBool>);

impl StallWatch {
    /// Of a worker. A task would also wait while turnlock blocks the threads of the runtime.
    pub(super) fn of_process(recorder: &Arc<Recorder>, process: u32) -> Self {
        Self::start(recorder, process, || {})
    }

    /// Of the machine, also when it does not write to its disk: servers sync what they write.
    pub(super) fn of_machine(recorder: &Arc<Recorder>) -> Self {
        let directory = TempDir::new();
        Self::start(recorder, 0, move || {
            let path = directory.path().join("written");
            let written = File::create(&path).and_then(|mut file| {
                file.write_all(b"x")?;
                file.sync_all()
            });
            // A disk that is full is not slow.
            let _ = written.and_then(|()| fs::remove_file(&path));
        })
    }

    fn start(recorder: &Arc<Recorder>, process: u32, work: impl Fn() + Send + 'static) -> Self {
        let (recorder, is_over) = (Arc::clone(recorder), Arc::new(AtomicBool::new(false)));
        let watch = Self(Arc::clone(&is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let planned = clock::now() + TICK;
                thread::sleep(TICK);
                work();
                let late = clock::now().since(planned);
                if late > LONGEST_DELAY {
                    let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                    recorder.record(process, What::Stalled { us });
                }
            }
        });
        watch
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
