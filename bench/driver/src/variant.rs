use std::path::PathBuf;

/// A participant with one of the kinds of locks of its library: a row of the tables.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// The participant's name, which is that of its directory.
    pub(crate) participant: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// The kind of lock of the library; empty is its default one.
    pub(crate) kind: String,
    /// The scenarios that include it; empty is all.
    pub(crate) scenarios: &'static [&'static str],
}

/// Kinds other than the default, with their scenarios.
pub(crate) const KINDS: [(&str, &str, &[&str]); 3] = [
    ("turnlock", "plain", &["W1", "W2"]),
    ("turnlock", "no-hand-over", &["W3", "W4", "W5"]),
    ("redisson", "try", &["W1"]),
];

/// The warm-up pairs of participants with a just-in-time compiler.
const JIT_WARM_UP: [(&str, u64); 2] = [("redisson", 10_000), ("node-redlock", 2_000)];

impl Variant {
    pub(crate) fn title(&self) -> String {
        if self.kind.is_empty() {
            self.participant.clone()
        } else {
            format!("{} {}", self.participant, self.kind)
        }
    }

    /// Returns `true` if a failure of it fails the run.
    pub(crate) fn must_succeed(&self) -> bool {
        must_succeed(&self.participant)
    }

    pub(crate) fn is_in(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&scenario)
    }

    /// The number of warm-up pairs: `default`, or more where a compiler runs, except in a quick run.
    pub(crate) fn warm_up(&self, default: u64, quick: bool) -> u64 {
        if quick {
            return default;
        }
        let longer = JIT_WARM_UP.iter().find(|(name, _)| *name == self.participant);
        longer.map_or(default, |(_, pairs)| default.max(*pairs))
    }
}

/// Returns `true` if a failure of the participant fails the run.
pub(crate) fn must_succeed(participant: &str) -> bool {
    ["turnlock", "bare"].contains(&participant)
}
