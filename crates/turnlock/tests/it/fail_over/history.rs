//! What holders did, by the one clock that all processes of a machine share, and whether two of them did it at once.

use std::fmt;

/// One hold: from the grant to the release, both as the holder saw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// When the grant was received, in microseconds.
    pub(super) start: u64,
    /// When the release was sent.
    pub(super) end: u64,
    pub(super) outcome: Outcome,
    /// Whether the holder has incremented the counter.
    pub(super) counted: bool,
}

/// What the holder was told when it gave the lock back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Kept,
    /// It had been lost.
    Lost,
    InDoubt,
}

/// Now, on the clock of all processes of this machine.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000 + u64::try_from(time.tv_nsec).unwrap() / 1_000
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Kept => "kept",
            Outcome::Lost => "lost",
            Outcome::InDoubt => "doubt",
        };
        write!(f, "{} {} {outcome} {}", self.start, self.end, self.counted)
    }
}

impl Turn {
    /// Reads what was displayed.
    pub(super) fn read(line: &str) -> Self {
        let fields: Vec<_> = line.split(' ').collect();
        let [start, end, outcome, counted] = fields[..] else { panic!("not a turn: {line:?}") };
        let outcome = match outcome {
            "kept" => Outcome::Kept,
            "lost" => Outcome::Lost,
            _ => Outcome::InDoubt,
        };
        Self { start: start.parse().unwrap(), end: end.parse().unwrap(), outcome, counted: counted == "true" }
    }
}

/// Every pair of turns that overlap, the one that began first in front.
pub(super) fn overlaps(turns: &[Turn]) -> Vec<(Turn, Turn)> {
    let mut turns = turns.to_vec();
    turns.sort_by_key(|turn| turn.start);
    let mut found = Vec::new();
    for (place, first) in turns.iter().enumerate() {
        let later = turns[place + 1..].iter().take_while(|later| later.start < first.end);
        found.extend(later.map(|later| (*first, *later)));
    }
    found
}

/// Shows that the checker sees what it is for; a checker that finds nothing proves nothing.
pub(super) fn check_the_checker() {
    let turn = |start, end| Turn { start, end, outcome: Outcome::Kept, counted: true };
    assert_eq!(overlaps(&[turn(20, 30), turn(0, 10), turn(10, 20)]), []);
    let (long, inner, other) = (turn(0, 100), turn(10, 20), turn(90, 110));
    assert_eq!(overlaps(&[other, long, inner]), [(long, inner), (long, other)]);
    assert_eq!(Turn::read(&long.to_string()), long);
}
