use std::time::Duration;

use crate::report::Report;

/// What one task counts, without sharing anything with others while it works.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) turns: u64,
    pub(crate) nanos: Vec<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: String,
}

impl Tally {
    pub(crate) fn error(&mut self, trouble: String) {
        if self.errors == 0 {
            self.first_error = trouble;
        }
        self.errors += 1;
    }

    /// One more time, in nanoseconds.
    pub(crate) fn time(&mut self, time: Duration) {
        self.nanos.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What all tasks counted, as one report.
    pub(crate) fn report(tallies: Vec<Self>, direct: &[&str]) -> Report {
        let mut report =
            Report { direct: direct.iter().map(ToString::to_string).collect(), ..Report::default() };
        for mut tally in tallies {
            report.turns += tally.turns;
            report.per_task.push(tally.turns);
            report.nanos.append(&mut tally.nanos);
            report.errors += tally.errors;
            if report.first_error.is_empty() {
                report.first_error = tally.first_error;
            }
        }
        report
    }
}
