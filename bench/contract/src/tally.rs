use std::time::Duration;

use crate::report::Report;

/// The counts of one task, which shares nothing with other tasks while it runs.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) turns: u64,
    pub(crate) nanos: Vec<u64>,
    pub(crate) errors: u64,
    pub(crate) first_error: String,
}

impl Tally {
    pub(crate) fn error(&mut self, error: String) {
        if self.errors == 0 {
            self.first_error = error;
        }
        self.errors += 1;
    }

    /// Records a time, in nanoseconds.
    pub(crate) fn time(&mut self, time: Duration) {
        self.nanos.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Merges the counts of all tasks into one report.
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
