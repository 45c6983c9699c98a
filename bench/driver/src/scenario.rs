use contract::Settings;

use crate::variant::Variant;

/// A scenario of the benchmark, or one size of a scenario whose size varies.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Its name on the command line and in the results.
    pub(crate) id: &'static str,
    /// The number of waiters or locks, if it varies.
    pub(crate) size: Option<u64>,
    pub(crate) setup: Setup,
    /// The number of rounds. Each round measures all rows in turn, so that ratios compare figures of the same time.
    pub(crate) rounds: usize,
    /// The same for other libraries, whose figures may be rough.
    pub(crate) rounds_of_others: usize,
    /// The participants that are measured; empty is all.
    pub(crate) only: &'static [&'static str],
    /// Whether it runs on the cluster.
    pub(crate) on_cluster: bool,
}

/// The processes of a scenario.
#[derive(Clone, Debug)]
pub(crate) enum Setup {
    /// Processes of one variant.
    Processes { settings: Settings, processes: usize },
    /// Processes of several variants at once.
    Mixed { settings: Settings, variants: &'static [(&'static str, usize)] },
    /// Two processes of one variant that pass a lock to each other, round by round.
    WakeUp { rounds: usize },
}

impl Scenario {
    pub(crate) fn includes(&self, variant: &Variant) -> bool {
        variant.is_in(self.id) && (self.only.is_empty() || self.only.contains(&variant.participant.as_str()))
    }

    pub(crate) fn rounds_for(&self, must_succeed: bool) -> usize {
        if must_succeed { self.rounds } else { self.rounds_of_others }
    }

    /// The title for the progress output.
    pub(crate) fn title(&self) -> String {
        self.size.map_or_else(|| self.id.to_owned(), |size| format!("{size} {}", self.id))
    }
}
