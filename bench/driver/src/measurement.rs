use std::collections::BTreeMap;

use contract::Report;
use serde::{Deserialize, Serialize};

use crate::commands::Commands;
use crate::percentile::percentile;

/// The result of one round of one row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// Grants, or held locks.
    pub(crate) turns: u64,
    pub(crate) seconds: f64,
    pub(crate) errors: u64,
    pub(crate) first_error: String,
    /// Tasks that gave up waiting.
    pub(crate) gave_up: u64,
    /// Times of pairs, of waits, or since a release, depending on the workload.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) max_ns: Option<u64>,
    /// Tasks that reported, and the fewest and most grants of one of them.
    pub(crate) tasks: u64,
    pub(crate) fewest_turns: u64,
    pub(crate) most_turns: u64,
    /// The grants of each process.
    pub(crate) per_process: Vec<ProcessTurns>,
    /// Commands that clients sent, and commands that the server executed, including those inside scripts.
    pub(crate) sent: u64,
    pub(crate) executed: u64,
    pub(crate) commands: BTreeMap<String, u64>,
    /// Processor time in seconds.
    pub(crate) client_cpu: f64,
    pub(crate) server_cpu: f64,
    /// Processor time of unrelated processes, as a share of one core.
    pub(crate) others_cpu: f64,
    /// The difference between grants and the counter that the lock protects; `None` without a counter.
    pub(crate) lost_updates: Option<i64>,
    /// Held locks that did not exist any more at the end.
    pub(crate) locks_lost: Option<u64>,
    /// Resident memory of all processes at the end, and its peak, in kB.
    pub(crate) memory_kb: u64,
    pub(crate) peak_memory_kb: u64,
    /// From before the processes were started until they ended.
    pub(crate) whole_seconds: f64,
}

/// The grants of one of several processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessTurns {
    pub(crate) participant: String,
    pub(crate) turns: u64,
}

impl Measurement {
    /// Merges the reports of all processes.
    pub(crate) fn of(reports: Vec<(String, Report)>) -> Self {
        let mut all = Self::default();
        let mut nanos = Vec::new();
        let mut per_task = Vec::new();
        for (participant, mut report) in reports {
            all.turns += report.turns;
            all.seconds = all.seconds.max(report.seconds);
            all.errors += report.errors;
            all.gave_up += report.gave_up;
            if all.first_error.is_empty() {
                all.first_error = report.first_error;
            }
            all.per_process.push(ProcessTurns { participant, turns: report.turns });
            nanos.append(&mut report.nanos);
            per_task.append(&mut report.per_task);
        }
        all.set_times(nanos);
        all.tasks = per_task.len() as u64;
        all.fewest_turns = per_task.iter().copied().min().unwrap_or(0);
        all.most_turns = per_task.iter().copied().max().unwrap_or(0);
        all
    }

    pub(crate) fn set_times(&mut self, mut nanos: Vec<u64>) {
        nanos.sort_unstable();
        self.p50_ns = percentile(&nanos, 50);
        self.p99_ns = percentile(&nanos, 99);
        self.max_ns = nanos.last().copied();
    }

    pub(crate) fn set_commands(&mut self, commands: Commands) {
        self.sent = commands.sent;
        self.executed = commands.executed;
        self.commands = commands.each;
    }

    /// Grants per second.
    pub(crate) fn rate(&self) -> f64 {
        as_float(self.turns) / self.seconds.max(1e-9)
    }

    /// `amount` per grant.
    pub(crate) fn per_turn(&self, amount: f64) -> f64 {
        amount / as_float(self.turns.max(1))
    }

    /// The largest deviation of a task from the mean number of grants, as a share of the mean.
    pub(crate) fn worst_task(&self) -> Option<f64> {
        (self.tasks > 0).then(|| {
            let mean = as_float(self.turns) / as_float(self.tasks);
            worst([self.fewest_turns, self.most_turns], mean)
        })
    }

    /// The same for processes.
    pub(crate) fn worst_process(&self) -> Option<f64> {
        (!self.per_process.is_empty()).then(|| {
            let mean = as_float(self.turns) / as_float(self.per_process.len() as u64);
            worst(self.per_process.iter().map(|process| process.turns), mean)
        })
    }

    /// The average share of the server's grants of a process of this participant, relative to an even share.
    ///
    /// Each turn of the participant must be a grant of the server; for others, one grant may serve many turns. Grants are counted
    /// by the message that ends each of them.
    pub(crate) fn share_of(&self, participant: &str) -> Option<f64> {
        let turns: Vec<u64> = self
            .per_process
            .iter()
            .filter(|process| process.participant == participant)
            .map(|p| p.turns)
            .collect();
        let grants = self.commands.get("publish").copied()?;
        let even = as_float(grants) / as_float(self.per_process.len() as u64);
        (!turns.is_empty())
            .then(|| as_float(turns.iter().sum()) / as_float(turns.len() as u64) / even.max(1e-9))
    }
}

fn worst(turns: impl IntoIterator<Item = u64>, mean: f64) -> f64 {
    turns.into_iter().map(|turns| (as_float(turns) / mean.max(1e-9) - 1.0).abs()).fold(0.0, f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use contract::Report;

    use super::Measurement;

    #[test]
    fn reports_of_processes_are_merged() {
        let report = |turns, per_task: &[u64]| Report {
            turns,
            seconds: 2.0,
            per_task: per_task.to_vec(),
            nanos: vec![turns],
            ..Report::default()
        };
        let mut all = Measurement::of(vec![
            ("a".to_owned(), report(30, &[10, 20])),
            ("b".to_owned(), report(10, &[4, 6])),
        ]);
        assert_eq!((all.turns, all.tasks, all.fewest_turns, all.most_turns), (40, 4, 4, 20));
        assert_eq!((all.p50_ns, all.max_ns), (Some(10), Some(30)));
        let close = |a: Option<f64>, b: f64| (a.expect("a value") - b).abs() < 1e-9;
        assert!((all.rate() - 20.0).abs() < 1e-9);
        assert!(close(all.worst_task(), 1.0));
        assert!(close(all.worst_process(), 0.5));
        assert!(all.share_of("b").is_none());
        // Six grants served the turns of `a`.
        all.commands.insert("publish".to_owned(), 16);
        assert!(close(all.share_of("b"), 1.25));
        assert!(all.share_of("c").is_none());
    }
}
