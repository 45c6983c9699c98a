use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{TimedOut, stalls};

/// How many cases a test program may run again.
const MAX_RERUNS: usize = 5;

/// The re-runs of this program.
pub(crate) static RERUNS: Reruns = Reruns::new(MAX_RERUNS, stalls::total_since);

/// Runs cases again that timed out while the machine stalled.
///
/// Re-runs are counted, named and limited for a whole run.
#[derive(Debug)]
pub(crate) struct Reruns {
    max: usize,
    /// Returns how long the machine has stalled since an instant.
    stalled_since: fn(Instant) -> Duration,
    cases: Mutex<Vec<String>>,
    /// Parts of cases that were repeated.
    repeats: Mutex<Vec<String>>,
}

/// Why a case failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A wait exceeded its limit.
    TimedOut(TimedOut),
    /// Any other failure; never run again.
    Final(String),
}

impl Reruns {
    pub(crate) const fn new(max: usize, stalled_since: fn(Instant) -> Duration) -> Self {
        Self { max, stalled_since, cases: Mutex::new(Vec::new()), repeats: Mutex::new(Vec::new()) }
    }

    /// Runs a case until it passes or fails for good.
    pub(crate) fn run(&self, name: &str, case: impl Fn() -> Result<(), Failure>) -> Result<(), String> {
        loop {
            match case() {
                Ok(()) => return Ok(()),
                Err(Failure::Final(message)) => return Err(message),
                Err(Failure::TimedOut(timed_out)) => {
                    let stalled = (self.stalled_since)(timed_out.began());
                    if !timed_out.is_explained_by(stalled) || !self.take_rerun(name) {
                        return Err(format!("{timed_out}; the machine stalled for {stalled:?} meanwhile"));
                    }
                    println!("the machine stalled for {stalled:?}: {name} is run again");
                }
            }
        }
    }

    /// Takes one of the remaining re-runs. Returns `false` if there is none.
    fn take_rerun(&self, name: &str) -> bool {
        let mut cases = self.cases.lock().expect("no panic while recording");
        let is_allowed = cases.len() < self.max;
        if is_allowed {
            cases.push(name.to_owned());
        }
        is_allowed
    }

    /// Records a part of a case that is repeated because the machine stalled.
    pub(crate) fn record_repeat(&self, what: String) {
        println!("the machine stalled: {what} is repeated");
        self.repeats.lock().expect("no panic while recording").push(what);
    }

    /// Returns the summary for the end of a run.
    pub(crate) fn report(&self) -> String {
        let cases = self.cases.lock().expect("no panic while recording");
        let repeats = self.repeats.lock().expect("no panic while recording");
        let mut lines = Vec::new();
        if !cases.is_empty() {
            let (count, max, names) = (cases.len(), self.max, cases.join(", "));
            lines.push(format!("run again because the machine stalled: {count} of at most {max}: {names}\n"));
        }
        if !repeats.is_empty() {
            let (count, names) = (repeats.len(), repeats.join(", "));
            lines.push(format!("repeated in part because the machine stalled: {count}: {names}\n"));
        }
        lines.concat()
    }
}
