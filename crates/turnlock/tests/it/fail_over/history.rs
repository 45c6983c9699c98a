//! Records of holds on the clock that all processes of a machine share, and a check for overlaps.

use std::fmt;

/// One hold, from the grant to the release, both as the holder saw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldRecord {
    /// When the grant was received, in microseconds.
    pub(super) start: u64,
    /// When the release was sent.
    pub(super) end: u64,
    pub(super) outcome: Outcome,
    /// `true` if the holder has incremented the counter.
    pub(super) counted: bool,
}

/// The outcome of the holder's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Released,
    /// The hold had been lost before.
    Lost,
    InDoubt,
}

/// The time on the monotonic clock of this machine, in microseconds.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000 + u64::try_from(time.tv_nsec).unwrap() / 1_000
}

impl fmt::Display for HoldRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Released => "released",
            Outcome::Lost => "lost",
            Outcome::InDoubt => "in_doubt",
        };
        write!(f, "{} {} {outcome} {}", self.start, self.end, self.counted)
    }
}

impl HoldRecord {
    /// Parses the `Display` form.
    pub(super) fn parse(line: &str) -> Self {
        let fields: Vec<_> = line.split(' ').collect();
        let [start, end, outcome, counted] = fields[..] else { panic!("not a record: {line:?}") };
        let outcome = match outcome {
            "released" => Outcome::Released,
            "lost" => Outcome::Lost,
            _ => Outcome::InDoubt,
        };
        Self { start: start.parse().unwrap(), end: end.parse().unwrap(), outcome, counted: counted == "true" }
    }
}

/// All pairs of overlapping holds, the earlier one first.
pub(super) fn overlaps(records: &[HoldRecord]) -> Vec<(HoldRecord, HoldRecord)> {
    let mut records = records.to_vec();
    records.sort_by_key(|record| record.start);
    let mut found = Vec::new();
    for (position, first) in records.iter().enumerate() {
        let later = records[position + 1..].iter().take_while(|later| later.start < first.end);
        found.extend(later.map(|later| (*first, *later)));
    }
    found
}

/// Asserts that [`overlaps`] finds overlaps.
pub(super) fn self_test() {
    let record = |start, end| HoldRecord { start, end, outcome: Outcome::Released, counted: true };
    assert_eq!(overlaps(&[record(20, 30), record(0, 10), record(10, 20)]), []);
    let (long, inner, other) = (record(0, 100), record(10, 20), record(90, 110));
    assert_eq!(overlaps(&[other, long, inner]), [(long, inner), (long, other)]);
    assert_eq!(HoldRecord::parse(&long.to_string()), long);
}
