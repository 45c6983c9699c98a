//! Collects the events of a run.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use turnlock_core::Moment;
use turnlock_store::clock;

use crate::history::{Event, What};

/// The events so far, by one clock.
#[derive(Debug)]
pub(crate) struct Recorder {
    start: Moment,
    to: Mutex<To>,
    next_op: AtomicU64,
}

#[derive(Debug)]
enum To {
    Memory(Vec<Event>),
    /// Each event is written at once, so that it outlasts the process.
    File(File),
}

/// The numbers of acquires of one process, so that those of several processes differ.
const OPS_OF_A_PROCESS: u64 = 1_000_000_000;

impl Recorder {
    /// Keeps the events. The run starts now.
    pub(crate) fn new() -> Self {
        Self { start: clock::now(), to: Mutex::new(To::Memory(Vec::new())), next_op: AtomicU64::new(1) }
    }

    /// Writes the events of a process to a file. The run started at `start`, in microseconds of the local clock.
    pub(crate) fn to_file(start: u64, process: u32, file: File) -> Self {
        let next_op = AtomicU64::new(u64::from(process) * OPS_OF_A_PROCESS + 1);
        Self { start: Moment::from_micros(start), to: Mutex::new(To::File(file)), next_op }
    }

    /// When the run started, in microseconds of the local clock.
    pub(crate) fn start_micros(&self) -> u64 {
        self.start.as_micros()
    }

    /// The number for the next acquire.
    pub(crate) fn next_op(&self) -> u64 {
        self.next_op.fetch_add(1, Ordering::Relaxed)
    }

    /// Microseconds since the start.
    pub(crate) fn at(&self, moment: Moment) -> u64 {
        moment.as_micros().saturating_sub(self.start.as_micros())
    }

    pub(crate) fn record(&self, process: u32, what: What) {
        let mut to = self.to.lock();
        // The time is read under the mutex, so that events are in the order of their times.
        let event = Event { t: self.at(clock::now()), process, what };
        let written = match &mut *to {
            To::Memory(events) => {
                events.push(event);
                Ok(())
            }
            To::File(file) => file.write_all(format!("{event}\n").as_bytes()),
        };
        // Without the mutex: a panic is recorded too.
        drop(to);
        // A worker that cannot write has nothing to tell.
        written.expect("the history can be written");
    }

    /// Returns the events that were kept.
    pub(crate) fn take(&self) -> Vec<Event> {
        match &mut *self.to.lock() {
            To::Memory(events) => std::mem::take(events),
            To::File(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::history::ProcessState;

    #[test]
    fn a_history_that_cannot_be_written_blocks_no_one() {
        // As a disk that is full.
        let file = File::options().write(true).open("/dev/full").expect("a device of the system");
        let recorder = Recorder::to_file(0, 1, file);
        let record = || recorder.record(1, What::Process { is: ProcessState::Panicked });
        // A panic hook calls it while the first call panics.
        for _ in 0..2 {
            assert!(catch_unwind(AssertUnwindSafe(record)).is_err());
            assert!(!recorder.to.is_locked());
        }
    }
}
