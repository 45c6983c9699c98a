use std::path::PathBuf;

/// One row of the tables: a participant, with one of the locks that its library has.
#[derive(Clone, Debug)]
pub(crate) struct Entrant {
    /// The participant's name, which is that of its folder.
    pub(crate) participant: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Which lock of the library; empty is its usual one.
    pub(crate) kind: String,
    /// The only works that it takes part in; empty is all.
    pub(crate) works: &'static [&'static str],
}

/// Locks besides the usual one, and what they are measured for.
pub(crate) const KINDS: [(&str, &str, &[&str]); 3] = [
    ("turnlock", "plain", &["W1", "W2"]),
    ("turnlock", "apart", &["W3", "W4", "W5"]),
    ("redisson", "try", &["W1"]),
];

/// Pairs that a virtual machine with a compiler is warmed up with, where others are content with a few.
const COMPILED_WHILE_RUNNING: [(&str, u64); 2] = [("redisson", 10_000), ("node-redlock", 2_000)];

impl Entrant {
    pub(crate) fn title(&self) -> String {
        if self.kind.is_empty() {
            self.participant.clone()
        } else {
            format!("{} {}", self.participant, self.kind)
        }
    }

    /// Whether it must not fail.
    pub(crate) fn is_ours(&self) -> bool {
        is_ours(&self.participant)
    }

    pub(crate) fn takes_part_in(&self, work: &str) -> bool {
        self.works.is_empty() || self.works.contains(&work)
    }

    /// How many pairs to warm up with where `usual` are enough for most, and for all in a quick run.
    pub(crate) fn warm_up(&self, usual: u64, quick: bool) -> u64 {
        if quick {
            return usual;
        }
        let longer = COMPILED_WHILE_RUNNING.iter().find(|(name, _)| *name == self.participant);
        longer.map_or(usual, |(_, pairs)| usual.max(*pairs))
    }
}

/// Whether a participant must not fail.
pub(crate) fn is_ours(participant: &str) -> bool {
    ["turnlock", "floor"].contains(&participant)
}
