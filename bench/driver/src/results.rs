use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::arguments::Selection;
use crate::measurement::{Measurement, as_float};
use crate::percentile::median;
use crate::variant::must_succeed;

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// A description of the machine.
    pub(crate) machine: String,
    /// The version of the compiler, of the server and of each participant.
    #[serde(default)]
    pub(crate) versions: Vec<(String, String)>,
    /// The load averages before the run and after it.
    #[serde(default)]
    pub(crate) load: [String; 2],
    #[serde(flatten)]
    pub(crate) selection: Selection,
    pub(crate) lines: Vec<Line>,
    /// Participants that were left out, and why.
    pub(crate) absent: Vec<(String, String)>,
}

/// A row: the measurements of one variant in one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) scenario: String,
    pub(crate) size: Option<u64>,
    pub(crate) participant: String,
    /// The lease of the locks, which defines the renewal period.
    pub(crate) lease_ms: u64,
    pub(crate) runs: Vec<Measurement>,
    /// Why there is no measurement, or no more.
    pub(crate) failure: Option<String>,
}

impl Results {
    /// Reads a results file, finished or not.
    pub(crate) fn load(file: &Path) -> Result<Self, String> {
        let describe = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = fs::read_to_string(file).map_err(|error| describe(&error))?;
        serde_json::from_str(&text).map_err(|error| describe(&error))
    }

    /// Replaces the file in one step, so that an interrupted run leaves it complete.
    pub(crate) fn save(&self, file: &Path) -> Result<(), String> {
        let json = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let next = file.with_extension("next");
        let saved = fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))
            .and_then(|()| fs::write(&next, json))
            .and_then(|()| fs::rename(&next, file));
        saved.map_err(|error| format!("{}: {error}", file.display()))
    }

    /// The line of a participant, if it has measurements.
    pub(crate) fn line(&self, scenario: &str, size: Option<u64>, participant: &str) -> Option<&Line> {
        let matches =
            |line: &&Line| line.scenario == scenario && line.size == size && line.participant == participant;
        self.lines.iter().find(matches).filter(|line| !line.runs.is_empty())
    }

    /// Memory per waiter or lock, in kB: the growth from the smallest size of the same participant.
    pub(crate) fn memory_per_item(&self, line: &Line) -> Option<f64> {
        let same = self
            .of_scenario(&line.scenario)
            .filter(|other| other.participant == line.participant && !other.runs.is_empty());
        let fewest = same.min_by_key(|other| other.size)?;
        let more = line.size?.checked_sub(fewest.size?).filter(|more| *more > 0)?;
        Some((line.memory_kb() - fewest.memory_kb()) / as_float(more))
    }

    /// The processor time of unrelated processes as a share of one core: the median, and the most.
    pub(crate) fn others_cpu(&self) -> Option<(f64, f64)> {
        let shares = || self.lines.iter().flat_map(|line| &line.runs).map(|run| run.others_cpu);
        Some((median(shares())?, shares().fold(0.0, f64::max)))
    }

    pub(crate) fn of_scenario<'a>(&'a self, scenario: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.scenario == scenario)
    }
}

impl Line {
    pub(crate) fn median(&self, figure: impl Fn(&Measurement) -> f64) -> f64 {
        median(self.runs.iter().map(figure)).unwrap_or(f64::NAN)
    }

    /// The median of the runs that have the figure.
    pub(crate) fn median_of(&self, figure: impl Fn(&Measurement) -> Option<u64>) -> Option<f64> {
        median(self.runs.iter().filter_map(figure).map(as_float))
    }

    pub(crate) fn rate(&self) -> f64 {
        self.median(Measurement::rate)
    }

    /// The kind of lock; empty for the default one.
    pub(crate) fn kind(&self) -> &str {
        self.participant.split_once(' ').map_or("", |(_, kind)| kind)
    }

    /// Returns `true` for another library alone: not turnlock, not the limit, and not several together.
    pub(crate) fn is_peer(&self) -> bool {
        !self.is_mixed() && !must_succeed(self.participant.split(' ').next().unwrap_or_default())
    }

    /// Returns `true` for processes of several participants together.
    pub(crate) fn is_mixed(&self) -> bool {
        self.participant.contains(" + ")
    }

    /// The peak for waiters, which exist only while they wait; the final memory for locks.
    fn memory_kb(&self) -> f64 {
        self.median(|run| {
            as_float(if self.scenario == "waiters" { run.peak_memory_kb } else { run.memory_kb })
        })
    }

    /// The distance between the slowest and the fastest run, relative to the median.
    pub(crate) fn spread(&self) -> Option<f64> {
        let rates = || self.runs.iter().map(Measurement::rate);
        let distance = rates().fold(0.0, f64::max) - rates().fold(f64::INFINITY, f64::min);
        (self.runs.len() > 1).then(|| distance / self.rate())
    }

    /// The ratio of a figure to that of another line. Where both have as many rounds, it is the median of the rounds' ratios, since
    /// a slow machine slows both.
    pub(crate) fn ratio(&self, other: &Self, figure: impl Fn(&Measurement) -> f64) -> f64 {
        if self.runs.len() == other.runs.len() {
            let ratios =
                self.runs.iter().zip(&other.runs).map(|(ours, theirs)| figure(ours) / figure(theirs));
            median(ratios).unwrap_or(f64::NAN)
        } else {
            self.median(&figure) / other.median(&figure)
        }
    }

    pub(crate) fn lost_updates(&self) -> Option<i64> {
        self.runs.iter().map(|run| run.lost_updates).sum()
    }

    pub(crate) fn errors(&self) -> u64 {
        self.runs.iter().map(|run| run.errors).sum()
    }

    pub(crate) fn gave_up(&self) -> u64 {
        self.runs.iter().map(|run| run.gave_up).sum()
    }

    /// The failure of a participant that must succeed.
    pub(crate) fn fault(&self) -> Option<String> {
        let first_error = self.runs.iter().map(|run| &run.first_error).find(|error| !error.is_empty());
        if self.runs.is_empty() {
            Some(self.failure.clone().unwrap_or_else(|| "was not measured".to_owned()))
        } else if self.lost_updates().is_some_and(|lost| lost != 0) {
            Some("exclusion was broken".to_owned())
        } else if let Some(error) = first_error {
            Some(error.clone())
        } else if self.runs.iter().any(|run| run.locks_lost.is_some_and(|lost| lost > 0)) {
            Some("locks were lost".to_owned())
        } else if self.gave_up() > 0 {
            Some("waiters had to give up".to_owned())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Results};
    use crate::measurement::Measurement;

    fn line(rates: &[u64]) -> Line {
        let run = |turns: &u64| Measurement { turns: *turns, seconds: 1.0, ..Measurement::default() };
        Line {
            scenario: "W1".to_owned(),
            size: None,
            participant: "a".to_owned(),
            lease_ms: 30_000,
            runs: rates.iter().map(run).collect(),
            failure: None,
        }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_ratios() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(line(&[50, 100, 10]).ratio(&line(&[100, 100, 20]), Measurement::rate), 0.5));
        assert!(close(line(&[50, 100, 10]).ratio(&line(&[100]), Measurement::rate), 0.5));
        assert!(line(&[50, 100, 150]).spread().is_some_and(|spread| close(spread, 1.0)));
        assert!(line(&[50]).spread().is_none());
    }

    #[test]
    fn the_results_of_an_earlier_version_can_be_read() {
        let old = r#"{"machine": "2 cores", "quick": true, "absent": [], "targets": [], "lines": [{"scenario": "W1", "size": null,
            "participant": "bare", "lease_ms": 30000, "runs": [], "failure": "no reply"}]}"#;
        let results: Results = serde_json::from_str(old).expect("the format of old results");
        assert!(results.selection.quick && !results.selection.million && results.versions.is_empty());
        assert_eq!(results.lines[0].fault().as_deref(), Some("no reply"));
    }

    #[test]
    fn faults_are_found() {
        assert_eq!(line(&[1]).fault(), None);
        assert!(line(&[]).fault().is_some());
        let mut broken = line(&[1, 1]);
        broken.runs[1].lost_updates = Some(2);
        broken.runs[0].lost_updates = Some(0);
        assert_eq!(broken.fault().as_deref(), Some("exclusion was broken"));
    }
}
