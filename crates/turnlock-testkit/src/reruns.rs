use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::{TooSlow, standstill};

/// How many cases one run of a test program may run again.
const MOST: usize = 5;

/// The re-runs of this program.
pub(crate) static RERUNS: Reruns = Reruns::new(MOST, standstill::total_since);

/// Runs cases again that were too slow while the machine stood still: counted, named, and limited for a whole run.
#[derive(Debug)]
pub(crate) struct Reruns {
    most: usize,
    /// For how long the machine has stood still since then.
    stood_still_since: fn(Instant) -> Duration,
    cases: Mutex<Vec<String>>,
    /// Parts of cases that showed nothing.
    voided: Mutex<Vec<String>>,
}

/// Why a case failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A wait took too long.
    TooSlow(TooSlow),
    /// Anything else: it stays a failure.
    Final(String),
}

impl Reruns {
    pub(crate) const fn new(most: usize, stood_still_since: fn(Instant) -> Duration) -> Self {
        Self { most, stood_still_since, cases: Mutex::new(Vec::new()), voided: Mutex::new(Vec::new()) }
    }

    /// Runs a case until it passes or its failure stays.
    pub(crate) fn run(&self, name: &str, case: impl Fn() -> Result<(), Failure>) -> Result<(), String> {
        loop {
            match case() {
                Ok(()) => return Ok(()),
                Err(Failure::Final(message)) => return Err(message),
                Err(Failure::TooSlow(slow)) => {
                    let stood_still = (self.stood_still_since)(slow.began());
                    if !slow.is_explained_by(stood_still) || !self.grant(name) {
                        return Err(format!("{slow}; the machine stood still for {stood_still:?} meanwhile"));
                    }
                    println!("the machine stood still for {stood_still:?}: {name} is run again");
                }
            }
        }
    }

    /// Takes one of the re-runs that are left.
    fn grant(&self, name: &str) -> bool {
        let mut cases = self.cases.lock().expect("no panic while it is looked at");
        let is_left = cases.len() < self.most;
        if is_left {
            cases.push(name.to_owned());
        }
        is_left
    }

    /// Notes a part of a case that showed nothing, since the machine stood still.
    pub(crate) fn void(&self, what: String) {
        println!("the machine stood still: {what} is void");
        self.voided.lock().expect("no panic while it is looked at").push(what);
    }

    /// What is printed at the end of a run.
    pub(crate) fn report(&self) -> String {
        let cases = self.cases.lock().expect("no panic while it is looked at");
        let voided = self.voided.lock().expect("no panic while it is looked at");
        let mut lines = Vec::new();
        if !cases.is_empty() {
            let (count, most, names) = (cases.len(), self.most, cases.join(", "));
            lines.push(format!(
                "re-run because the machine stood still: {count} of at most {most}: {names}\n"
            ));
        }
        if !voided.is_empty() {
            let (count, names) = (voided.len(), voided.join(", "));
            lines.push(format!("void because the machine stood still, and repeated: {count}: {names}\n"));
        }
        lines.concat()
    }
}
