//! The performance targets of turnlock, and which of them a run meets.

use serde::{Deserialize, Serialize};

use crate::columns::sent_a_period;
use crate::markdown::{Table, number};
use crate::measurement::{Measurement, as_float};
use crate::results::{Line, Results};
use crate::variant::must_succeed;

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

/// All targets that were measured.
pub(crate) fn all(results: &Results) -> Vec<Target> {
    let targets = [uncontended(results), contended(results), held(results), growth(results)].concat();
    targets.into_iter().filter(|target| target.figure.is_some()).collect()
}

/// The targets as a table; `None` without targets.
pub(crate) fn table(targets: &[Target]) -> Option<Table> {
    let mut table = Table::new(["scenario", "figure", "measured", "wanted", "verdict"]);
    for target in targets {
        let figure = target.figure?;
        let (wanted, met) = match target.bound {
            AtLeast(bound) => (format!("≥ {}", number(bound)), figure >= bound),
            AtMost(bound) => (format!("≤ {}", number(bound)), figure <= bound),
        };
        let verdict = if met { "met" } else { "missed" };
        table.row(vec![
            target.scenario.clone(),
            target.what.clone(),
            number(figure),
            wanted,
            verdict.to_owned(),
        ]);
    }
    (!targets.is_empty()).then_some(table)
}

/// Uncontended locks.
fn uncontended(results: &Results) -> Vec<Target> {
    let rate = |scenario, ours, theirs, bound| {
        let figure = ratio(results, scenario, ours, theirs, Measurement::rate);
        target(scenario, &format!("pairs/s: {ours} / {theirs}"), figure, AtLeast(bound))
    };
    let cpu = |process, figure: fn(&Measurement) -> f64| {
        let cost = ratio(results, "W2", TURNLOCK, "rslock", |run| run.per_turn(figure(run)));
        target("W2", &format!("{process} CPU per pair: turnlock / rslock"), cost, AtMost(1.0))
    };
    vec![
        rate("W1", TURNLOCK, "bare", 0.95),
        rate("W1", TURNLOCK, "redisson", 1.5),
        rate("W1", "turnlock plain", "rslock", 0.95),
        rate("W2", TURNLOCK, "rslock", 1.0),
        rate("W2", TURNLOCK, "redisson", 8.0),
        cpu("client", |run| run.client_cpu),
        cpu("server", |run| run.server_cpu),
    ]
}

/// Contended locks.
fn contended(results: &Results) -> Vec<Target> {
    let line = |scenario| results.line(scenario, None, TURNLOCK);
    let longest = |scenario| Some(line(scenario)?.median_of(|run| run.max_ns)? / 1e6);
    let off = |scenario, figure: fn(&Measurement) -> Option<f64>| {
        Some(line(scenario)?.median(|run| figure(run).unwrap_or(f64::NAN)) * 100.0)
    };
    let mixed = results.of_scenario("W4").find(|line| is_mixed(line) && !line.runs.is_empty());
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
            ratio(results, "W5", TURNLOCK, "bare", |run| run.seconds),
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

/// Held locks.
fn held(results: &Results) -> Vec<Target> {
    let lines = results.line("W7", None, TURNLOCK).zip(results.line("W7", None, "redisson"));
    let sent = lines.map(|(ours, theirs)| sent_a_period(ours) / sent_a_period(theirs));
    let cpu = ratio(results, "W7", TURNLOCK, "redisson", |run| run.client_cpu);
    let lost = results.line("W7", None, TURNLOCK).and_then(|line| line.median_of(|run| run.locks_lost));
    vec![
        target("W7", "commands sent: turnlock / redisson", sent, AtMost(1.0)),
        target("W7", "client CPU: turnlock / redisson", cpu, AtMost(0.25)),
        target("W7", "locks lost", lost, AtMost(0.0)),
    ]
}

/// Cost and memory by size.
fn growth(results: &Results) -> Vec<Target> {
    let waiters = sizes(results, "waiters");
    let cost = |line: &Line| line.median(|run| run.per_turn(run.client_cpu + run.server_cpu));
    let flat = waiters.split_first().filter(|(_, more)| !more.is_empty()).map(|(first, more)| {
        more.iter().map(|line| (cost(line) / cost(first) - 1.0).abs()).fold(0.0, f64::max) * 100.0
    });
    let memory = |lines: &[&Line]| lines.last().and_then(|line| results.memory_per_item(line));
    let (a_waiter, a_lock) = (memory(&waiters), memory(&sizes(results, "locks")));
    vec![
        target("waiters", "CPU per turn, client and server, off that with the fewest, %", flat, AtMost(20.0)),
        target("waiters", "client memory per waiter, kB", a_waiter, AtMost(4.0)),
        target("locks", "client memory per held lock, kB", a_lock, AtMost(1.0)),
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
    let peers = results.of_scenario(scenario).filter(|line| is_peer(line) && !line.runs.is_empty());
    let best = peers.max_by(|one, other| one.rate().total_cmp(&other.rate()))?;
    Some(ours.ratio(best, Measurement::rate))
}

fn is_peer(line: &Line) -> bool {
    !is_mixed(line) && !must_succeed(line.participant.split(' ').next().unwrap_or_default())
}

fn is_mixed(line: &Line) -> bool {
    line.participant.contains(" + ")
}

/// The lines of turnlock in a scenario whose size varies, the smallest first.
fn sizes<'a>(results: &'a Results, scenario: &'a str) -> Vec<&'a Line> {
    let ours =
        results.of_scenario(scenario).filter(|line| line.participant == TURNLOCK && !line.runs.is_empty());
    let mut lines: Vec<&Line> = ours.collect();
    lines.sort_by_key(|line| line.size);
    lines
}

#[cfg(test)]
mod tests {
    use super::{all, table};
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
        assert!(text.contains("| W1 | pairs/s: turnlock / bare | 0.96 | ≥ 0.95 | met |"), "{text}");
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
            line("locks", Some(1_010), "turnlock", run(5_500)),
        ]);
        assert!(text.contains("client memory per held lock, kB | 0.50 | ≤ 1.00 | met |"), "{text}");
    }
}
