//! Records when the machine is too busy to run a process, or to write to a disk: such a time is no fault of turnlock.

use std::fs::{self, File};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use turnlock_core::Moment;
use turnlock_store::clock;
use turnlock_testkit::TempDir;

use crate::history::What;
use crate::recorder::Recorder;

/// How often it is checked, and how much later than planned a check may end.
const TICK: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_millis(200);

/// Records when this process does not run.
pub(super) async fn record_of_process(recorder: Arc<Recorder>, process: u32) {
    loop {
        let planned = clock::now() + TICK;
        tokio::time::sleep(TICK).await;
        record_delay(&recorder, process, planned);
    }
}

fn record_delay(recorder: &Recorder, process: u32, planned: Moment) {
    let late = clock::now().since(planned);
    if late > LONGEST_DELAY {
        let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        recorder.record(process, What::Stalled { us });
    }
}

/// A thread that records when the machine stalls, until this is dropped. Servers sync what they write.
pub(super) struct MachineWatch(Arc<AtomicBool>);

impl MachineWatch {
    pub(super) fn start(recorder: &Arc<Recorder>) -> Self {
        let (recorder, is_over) = (Arc::clone(recorder), Arc::new(AtomicBool::new(false)));
        let watch = Self(Arc::clone(&is_over));
        thread::spawn(move || {
            let directory = TempDir::new();
            let path = directory.path().join("written");
            while !is_over.load(Ordering::Relaxed) {
                let planned = clock::now() + TICK;
                thread::sleep(TICK);
                let written = File::create(&path).and_then(|mut file| {
                    file.write_all(b"x")?;
                    file.sync_all()
                });
                // A disk that is full is not slow.
                let _ = written.and_then(|()| fs::remove_file(&path));
                record_delay(&recorder, 0, planned);
            }
        });
        watch
    }
}

impl Drop for MachineWatch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
