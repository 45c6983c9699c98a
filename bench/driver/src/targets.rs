//! The performance targets of turnlock, and which of them a run meets.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::columns::sent_a_period;
use crate::markdown::{Table, number};
use crate::measurement::{Measurement, as_float};
use crate::results::{Line, Results};

/// One figure with its bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    scenario: String,
    what: String,
    /// `None` if it was not measured.
    figure: Option<f64>,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

const TURNLOCK: &str = "turnlock";
const FAIR: &str = "turnlock fair";
const LIMIT: &str = "bare";

/// All targets that were measured.
pub(crate) fn all(results: &Results) -> Vec<Target> {
    let targets = [
        uncontended(results),
        contended(results),
        fair(results),
        held(results),
        growth(results, TURNLOCK),
        growth(results, FAIR),
    ];
    targets.concat().into_iter().filter(|target| target.figure.is_some()).collect()
}

/// The targets as a table; `None` without targets.
pub(crate) fn table(targets: &[Target]) -> Option<Table> {
    let mut table = Table::new(["scenario", "figure", "measured", "wanted", "verdict"]);
    for target in targets {
        let figure = number(target.figure?);
        table.row(vec![
            target.scenario.clone(),
            target.what.clone(),
            figure,
            target.wanted(),
            target.verdict().to_owned(),
        ]);
    }
    (!targets.is_empty()).then_some(table)
}

/// The number of targets that are met, and those that are missed.
pub(crate) fn summary(targets: &[Target]) -> String {
    let missed: Vec<&Target> = targets.iter().filter(|target| !target.is_met()).collect();
    let mut text = format!("Targets: {} of {} met\n", targets.len() - missed.len(), targets.len());
    for target in missed {
        let figure = number(target.figure.unwrap_or(f64::NAN));
        let _ = writeln!(
            text,
            "  missed: {}, {}: {figure}, wanted {}",
            target.scenario,
            target.what,
            target.wanted()
        );
    }
    text
}

impl Target {
    fn is_met(&self) -> bool {
        self.figure.is_some_and(|figure| match self.bound {
            AtLeast(bound) => figure >= bound,
            AtMost(bound) => figure <= bound,
        })
    }

    fn verdict(&self) -> &'static str {
        if self.is_met() { "met" } else { "missed" }
    }

    fn wanted(&self) -> String {
        match self.bound {
            AtLeast(bound) => format!("≥ {}", number(bound)),
            AtMost(bound) => format!("≤ {}", number(bound)),
        }
    }
}

/// Uncontended locks, on a server and on a cluster.
fn uncontended(results: &Results) -> Vec<Target> {
    let rate = |scenario, ours, theirs, bound| {
        let figure = ratio(results, scenario, ours, theirs, Measurement::rate);
        target(scenario, &format!("pairs/s: {ours} / {theirs}"), figure, AtLeast(bound))
    };
    let cpu = |process, theirs, figure: fn(&Measurement) -> f64, bound| {
        let cost = ratio(results, "W2", TURNLOCK, theirs, |run| run.per_turn(figure(run)));
        target("W2", &format!("{process} CPU per pair: turnlock / {theirs}"), cost, AtMost(bound))
    };
    vec![
        rate("W1", TURNLOCK, LIMIT, 0.97),
        rate("W1", TURNLOCK, "redisson", 1.5),
        rate("W1", "turnlock plain", "rslock", 1.0),
        rate("W2", TURNLOCK, LIMIT, 1.0),
        rate("W2", TURNLOCK, "rslock", 1.2),
        rate("W2", TURNLOCK, "redisson", 8.0),
        cpu("client", LIMIT, |run| run.client_cpu, 1.2),
        cpu("client", "rslock", |run| run.client_cpu, 1.0),
        cpu("server", "rslock", |run| run.server_cpu, 1.0),
        rate("cluster", TURNLOCK, "redisson", 2.0),
    ]
}

/// Contended locks.
fn contended(results: &Results) -> Vec<Target> {
    let line = |scenario| results.line(scenario, None, TURNLOCK);
    let longest = |scenario| Some(line(scenario)?.median_of(|run| run.max_ns)? / 1e6);
    let off = |scenario, figure: fn(&Measurement) -> Option<f64>| {
        Some(line(scenario)?.median(|run| figure(run).unwrap_or(f64::NAN)) * 100.0)
    };
    let mixed = results.of_scenario("W4").find(|line| line.is_mixed() && !line.runs.is_empty());
    let share = mixed.map(|line| line.median(|run| run.share_of("redisson").unwrap_or(f64::NAN)));
    let wake_up = |figure: fn(&Measurement) -> Option<u64>| {
        ratio(results, "W6", TURNLOCK, "redisson", move |run| figure(run).map_or(f64::NAN, as_float))
    };
    vec![
        target("W3", "turns/s: turnlock / the best peer", ratio_to_best_peer(results, "W3"), AtLeast(20.0)),
        target("W3", "longest wait, ms", longest("W3"), AtMost(50.0)),
        target("W3", "a task's turns off the mean, %", off("W3", Measurement::worst_task), AtMost(20.0)),
        target("W4", "turns/s: turnlock / the best peer", ratio_to_best_peer(results, "W4"), AtLeast(10.0)),
        target(
            "W4",
            "a process's turns off its share, %",
            off("W4", Measurement::worst_process),
            AtMost(25.0),
        ),
        target("W4", "longest wait, ms", longest("W4"), AtMost(200.0)),
        target(
            "W4",
            "Redisson's part of an even share of the server's grants, beside three of turnlock",
            share,
            AtLeast(0.5),
        ),
        target(
            "W5",
            "time to drain: turnlock / bare",
            ratio(results, "W5", TURNLOCK, LIMIT, |run| run.seconds),
            AtMost(0.2),
        ),
        target(
            "W5",
            "commands sent per turn",
            line("W5").map(|line| line.median(|run| run.per_turn(as_float(run.sent)))),
            AtMost(0.1),
        ),
        target("W6", "p50: turnlock / redisson", wake_up(|run| run.p50_ns), AtMost(0.7)),
        target("W6", "p99: turnlock / redisson", wake_up(|run| run.p99_ns), AtMost(1.0)),
    ]
}

/// The fair lock, which the limit approximates by one fair queue in each process.
fn fair(results: &Results) -> Vec<Target> {
    let rate = |scenario| {
        let figure = ratio(results, scenario, FAIR, LIMIT, Measurement::rate);
        target(scenario, "turns/s: turnlock fair / bare", figure, AtLeast(0.8))
    };
    let per_turn = |scenario, what, figure: fn(&Measurement) -> u64, bound| {
        let line = results.line(scenario, None, FAIR);
        let median = line.map(|line| line.median(|run| run.per_turn(as_float(figure(run)))));
        target(scenario, &format!("turnlock fair: commands {what} per turn"), median, AtMost(bound))
    };
    let drained = ratio(results, "W5", FAIR, LIMIT, |run| run.seconds);
    let mut targets = vec![
        rate("W3"),
        rate("W4"),
        target("W5", "time to drain: turnlock fair / bare", drained, AtMost(2.0)),
    ];
    for scenario in ["W3", "W4", "W5"] {
        targets.push(per_turn(scenario, "sent", |run| run.sent, 3.0));
        targets.push(per_turn(scenario, "executed", |run| run.executed, 25.0));
    }
    targets
}

/// Held locks.
fn held(results: &Results) -> Vec<Target> {
    let lines = results.line("W7", None, TURNLOCK).zip(results.line("W7", None, "redisson"));
    let sent = lines.map(|(ours, theirs)| sent_a_period(ours) / sent_a_period(theirs));
    let cpu = ratio(results, "W7", TURNLOCK, "redisson", |run| run.client_cpu);
    let lost = results.line("W7", None, TURNLOCK).and_then(|line| line.median_of(|run| run.locks_lost));
    let million = results.line("locks", Some(1_000_000), TURNLOCK);
    let lost_of_million = million.and_then(|line| line.median_of(|run| run.locks_lost));
    let memory = |size| results.memory_per_item(results.line("locks", Some(size), TURNLOCK)?);
    vec![
        target("W7", "commands sent: turnlock / redisson", sent, AtMost(1.0)),
        target("W7", "client CPU: turnlock / redisson", cpu, AtMost(0.25)),
        target("W7", "locks lost", lost, AtMost(0.0)),
        target("locks", "locks lost of 1,000,000", lost_of_million, AtMost(0.0)),
        target("locks", "client memory per lock, 100,000 held, kB", memory(100_000), AtMost(1.0)),
        target("locks", "client memory per lock, 1,000,000 held, kB", memory(1_000_000), AtMost(1.0)),
    ]
}

/// The cost of a turn and the memory of a waiter, by the number of waiters.
fn growth(results: &Results, participant: &str) -> Vec<Target> {
    let lines = sizes(results, "waiters", participant);
    // The largest distance from the figure with the fewest waiters.
    let off = |cost: fn(&Measurement) -> f64| {
        let (first, more) = lines.split_first().filter(|(_, more)| !more.is_empty())?;
        let cost = |line: &Line| line.median(|run| run.per_turn(cost(run)));
        Some(more.iter().map(|line| (cost(line) / cost(first) - 1.0).abs()).fold(0.0, f64::max) * 100.0)
    };
    let cpu = off(|run| run.client_cpu + run.server_cpu);
    let executed = off(|run| as_float(run.executed)).filter(|_| participant == FAIR);
    let memory =
        lines.last().and_then(|line| results.memory_per_item(line)).filter(|_| participant == TURNLOCK);
    let named = |what: &str| format!("{participant}: {what}");
    vec![
        target("waiters", &named("CPU per turn off that with the fewest, %"), cpu, AtMost(20.0)),
        target("waiters", &named("commands per turn off those with the fewest, %"), executed, AtMost(20.0)),
        target("waiters", &named("client memory per waiter, kB"), memory, AtMost(3.0)),
    ]
}

fn target(scenario: &str, what: &str, figure: Option<f64>, bound: Bound) -> Target {
    let figure = figure.filter(|figure| figure.is_finite());
    Target { scenario: scenario.to_owned(), what: what.to_owned(), figure, bound }
}

fn ratio(
    results: &Results,
    scenario: &str,
    ours: &str,
    theirs: &str,
    figure: impl Fn(&Measurement) -> f64,
) -> Option<f64> {
    Some(results.line(scenario, None, ours)?.ratio(results.line(scenario, None, theirs)?, figure))
}

/// The ratio of turnlock's rate to the highest one of another library.
fn ratio_to_best_peer(results: &Results, scenario: &str) -> Option<f64> {
    let ours = results.line(scenario, None, TURNLOCK)?;
    let peers = results.of_scenario(scenario).filter(|line| line.is_peer() && !line.runs.is_empty());
    let best = peers.max_by(|one, other| one.rate().total_cmp(&other.rate()))?;
    Some(ours.ratio(best, Measurement::rate))
}

/// The lines of a participant in a scenario whose size varies, the smallest first.
fn sizes<'a>(results: &'a Results, scenario: &'a str, participant: &str) -> Vec<&'a Line> {
    let lines = results.of_scenario(scenario);
    let mut lines: Vec<&Line> =
        lines.filter(|line| line.participant == participant && !line.runs.is_empty()).collect();
    lines.sort_by_key(|line| line.size);
    lines
}

#[cfg(test)]
mod tests {
    use super::{all, summary, table};
    use crate::measurement::{Measurement, ProcessTurns};
    use crate::results::{Line, Results};

    fn line(scenario: &str, size: Option<u64>, participant: &str, run: Measurement) -> Line {
        Line {
            scenario: scenario.to_owned(),
            size,
            participant: participant.to_owned(),
            lease_ms: 9_000,
            runs: vec![run],
            failure: None,
        }
    }

    fn at(turns: u64) -> Measurement {
        Measurement { turns, seconds: 1.0, ..Measurement::default() }
    }

    fn verdicts(lines: Vec<Line>) -> String {
        let targets = all(&Results { lines, ..Results::default() });
        table(&targets).map(|table| table.to_string()).unwrap_or_default()
    }

    #[test]
    fn targets_without_measurements_are_left_out() {
        assert_eq!(verdicts(vec![]), "");
        let text = verdicts(vec![line("W1", None, "turnlock", at(96)), line("W1", None, "bare", at(100))]);
        assert!(text.contains("| W1 | pairs/s: turnlock / bare | 0.96 | ≥ 0.97 | missed |"), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn the_best_peer_is_another_library_alone() {
        let text = verdicts(vec![
            line("W4", None, "bare", at(9_000)),
            line("W4", None, "turnlock", at(1_900)),
            line("W4", None, "rslock", at(200)),
            line("W4", None, "redsync", at(100)),
            line("W4", None, "3 turnlock + 1 redisson", at(8_000)),
        ]);
        assert!(text.contains("turnlock / the best peer | 9.50 | ≥ 10.0 | missed |"), "{text}");
    }

    #[test]
    fn shares_of_processes_are_compared() {
        let process = |participant: &str, turns| ProcessTurns { participant: participant.to_owned(), turns };
        let per_process = vec![process("turnlock", 60), process("redisson", 40)];
        let commands = [("publish".to_owned(), 100)].into();
        let run = Measurement { per_process, commands, ..at(100) };
        let text = verdicts(vec![line("W4", None, "1 turnlock + 1 redisson", run)]);
        assert!(text.contains("| 0.80 | ≥ 0.50 | met |"), "{text}");
    }

    #[test]
    fn memory_is_counted_from_the_smallest_size() {
        let run = |memory_kb| Measurement { memory_kb, ..at(1) };
        let text = verdicts(vec![
            line("locks", Some(10), "turnlock", run(5_000)),
            line("locks", Some(100_000), "turnlock", run(54_995)),
            line("locks", Some(1_000_000), "turnlock", Measurement { locks_lost: Some(1), ..run(2_004_980) }),
        ]);
        assert!(text.contains("100,000 held, kB | 0.50 | ≤ 1.00 | met |"), "{text}");
        assert!(text.contains("1,000,000 held, kB | 2.00 | ≤ 1.00 | missed |"), "{text}");
        assert!(text.contains("locks lost of 1,000,000 | 1.00 | ≤ 0.00 | missed |"), "{text}");
    }

    #[test]
    fn the_fair_lock_is_compared_with_the_limit() {
        let fair = |turns, sent, executed| Measurement { sent, executed, ..at(turns) };
        let text = verdicts(vec![
            line("W3", None, "bare", at(100)),
            line("W3", None, "turnlock fair", fair(80, 240, 2_080)),
            line("W5", None, "bare", at(100)),
            line("W5", None, "turnlock fair", Measurement { seconds: 2.5, ..fair(100, 300, 100) }),
        ]);
        assert!(text.contains("| W3 | turns/s: turnlock fair / bare | 0.80 | ≥ 0.80 | met |"), "{text}");
        assert!(
            text.contains("| W3 | turnlock fair: commands sent per turn | 3.00 | ≤ 3.00 | met |"),
            "{text}"
        );
        assert!(text.contains("commands executed per turn | 26.0 | ≤ 25.0 | missed |"), "{text}");
        assert!(
            text.contains("| W5 | time to drain: turnlock fair / bare | 2.50 | ≤ 2.00 | missed |"),
            "{text}"
        );
    }

    #[test]
    fn a_turn_of_the_fair_lock_costs_the_same_with_more_waiters() {
        let run = |executed, client_cpu| Measurement { executed, client_cpu, ..at(10) };
        let text = verdicts(vec![
            line("waiters", Some(10), "turnlock fair", run(100, 1.0)),
            line("waiters", Some(100), "turnlock fair", run(130, 1.1)),
            line("waiters", Some(1_000), "turnlock fair", run(90, 0.9)),
        ]);
        assert!(text.contains("turnlock fair: CPU per turn off that with the fewest, % | 10.0 |"), "{text}");
        assert!(
            text.contains("commands per turn off those with the fewest, % | 30.0 | ≤ 20.0 | missed |"),
            "{text}"
        );
    }

    #[test]
    fn the_cluster_has_a_target_of_its_own() {
        let lines =
            vec![line("cluster", None, "turnlock", at(19)), line("cluster", None, "redisson", at(10))];
        let targets = all(&Results { lines, ..Results::default() });
        assert_eq!(
            summary(&targets),
            "Targets: 0 of 1 met\n  missed: cluster, pairs/s: turnlock / redisson: 1.90, wanted ≥ 2.00\n"
        );
    }
}
