use std::path::{Path, PathBuf};

/// A participant with one of the kinds of locks of its library: a row of the tables.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// The participant's name, which is that of its directory.
    pub(crate) participant: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// The kind of lock of the library; empty is its default one.
    pub(crate) kind: String,
    /// The scenarios of a kind that is not the default one.
    scenarios: &'static [&'static str],
}

/// The kinds that only `herds` measures.
const HERD_KINDS: [&str; 5] = ["write", "read", "semaphore", "permits", "latch"];
/// Other kinds than the default one, with their scenarios.
const KINDS: [(&str, &str, &[&str]); 5] = [
    ("turnlock", "plain", &["W1", "W2"]),
    ("turnlock", "no-hand-over", &["W3", "W4", "W5"]),
    ("turnlock", "fair", &["W3", "W4", "W5", "waiters"]),
    ("redisson", "try", &["W1"]),
    ("redisson", "fair", &["W3", "W4", "W5", "waiters"]),
];

/// The warm-up pairs of participants with a just-in-time compiler.
const JIT_WARM_UP: [(&str, u64); 2] = [("redisson", 10_000), ("node-redlock", 2_000)];

impl Variant {
    /// All variants of a participant, the default kind first.
    pub(crate) fn all(participant: &str, program: &Path) -> Vec<Self> {
        let variant = |kind: &str, scenarios| Self {
            participant: participant.to_owned(),
            program: program.to_owned(),
            kind: kind.to_owned(),
            scenarios,
        };
        let kinds = KINDS.iter().filter(|(name, ..)| *name == participant);
        let mut variants = vec![variant("", &[])];
        variants.extend(kinds.map(|(_, kind, scenarios)| variant(kind, scenarios)));
        if ["turnlock", "redisson"].contains(&participant) {
            variants.extend(HERD_KINDS.map(|kind| variant(kind, &["herds"])));
        }
        variants
    }

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
        if self.kind.is_empty() { scenario != "herds" } else { self.scenarios.contains(&scenario) }
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
