//! The columns of the table of each scenario.

use crate::markdown::{Table, count, number};
use crate::measurement::{Measurement, as_float};
use crate::results::{Line, Results};

type Column = (&'static str, fn(&Line) -> String);

const ERRORS: Column = ("errors", errors);
const SPREAD: Column = ("spread", |line| match line.spread() {
    Some(spread) => format!("{:.0} % of {}", spread * 100.0, line.runs.len()),
    None => "1 run".to_owned(),
});
const OTHERS: Column = ("others' CPU", |line| format!("{:.0} %", line.median(|run| run.others_cpu) * 100.0));
const RATE: Column = ("turns/s", |line| number(line.rate()));
const SENT: Column = ("sent per turn", |line| per_turn(line, |run| as_float(run.sent)));
const EXECUTED: Column = ("executed per turn", |line| per_turn(line, |run| as_float(run.executed)));
const CLIENT_CPU: Column = ("client CPU µs per turn", |line| per_turn(line, |run| run.client_cpu * 1e6));
const SERVER_CPU: Column = ("server CPU µs per turn", |line| per_turn(line, |run| run.server_cpu * 1e6));
const P50_MS: Column = ("p50 ms", |line| millis(line, |run| run.p50_ns));
const P99_MS: Column = ("p99 ms", |line| millis(line, |run| run.p99_ns));
const MAX_MS: Column = ("longest ms", |line| millis(line, |run| run.max_ns));
const PER_TASK: Column = ("turns of a task", |line| {
    line.runs.first().map_or_else(String::new, |run| format!("{}–{}", run.fewest_turns, run.most_turns))
});
const PER_PROCESS: Column = ("turns of each process", per_process);
const EXCLUSION: Column = ("exclusion", |line| match line.lost_updates() {
    Some(0) => "kept".to_owned(),
    Some(lost) => format!("BROKEN, {lost} updates lost"),
    None => "–".to_owned(),
});

const PAIRS: &[Column] = &[
    ("pairs/s", RATE.1),
    ("p50 µs", |line| micros(line, |run| run.p50_ns)),
    ("p99 µs", |line| micros(line, |run| run.p99_ns)),
    ("sent per pair", SENT.1),
    ("executed per pair", EXECUTED.1),
    ("client CPU µs per pair", CLIENT_CPU.1),
    ("server CPU µs per pair", SERVER_CPU.1),
    ERRORS,
    SPREAD,
    OTHERS,
];
const CONTEND: &[Column] = &[
    RATE,
    P50_MS,
    P99_MS,
    MAX_MS,
    PER_TASK,
    PER_PROCESS,
    SENT,
    EXECUTED,
    CLIENT_CPU,
    SERVER_CPU,
    EXCLUSION,
    ERRORS,
    SPREAD,
    OTHERS,
];
const HERD: &[Column] = &[
    ("drained in ms", |line| number(line.median(|run| run.seconds * 1e3))),
    P50_MS,
    ("had their turn", |line| count(line.median(|run| as_float(run.turns)))),
    SENT,
    EXECUTED,
    CLIENT_CPU,
    SERVER_CPU,
    ERRORS,
    SPREAD,
    OTHERS,
];
const WAKE_UP: &[Column] = &[
    ("rounds", |line| count(line.median(|run| as_float(run.turns)))),
    P50_MS,
    P99_MS,
    MAX_MS,
    ("sent per round", SENT.1),
    ERRORS,
    SPREAD,
    OTHERS,
];
const HOLD: &[Column] = &[
    ("sent per period", |line| number(sent_a_period(line))),
    ("executed/s", |line| number(line.median(|run| as_float(run.executed) / run.seconds))),
    ("client CPU %", |line| number(line.median(|run| run.client_cpu / run.seconds * 100.0))),
    ("server CPU %", |line| number(line.median(|run| run.server_cpu / run.seconds * 100.0))),
    ("client memory MB", |line| number(line.median(|run| as_float(run.memory_kb) / 1e3))),
    ("locks lost", |line| count(line.median_of(|run| run.locks_lost).unwrap_or(0.0))),
    ERRORS,
    OTHERS,
];
const WAITERS: &[Column] = &[
    RATE,
    P50_MS,
    MAX_MS,
    SENT,
    EXECUTED,
    CLIENT_CPU,
    SERVER_CPU,
    ("most client memory MB", |line| number(line.median(|run| as_float(run.peak_memory_kb) / 1e3))),
    EXCLUSION,
    ERRORS,
];

fn columns(scenario: &str) -> &'static [Column] {
    match scenario {
        "W1" | "W2" | "cluster" => PAIRS,
        "W5" | "herds" => HERD,
        "W6" => WAKE_UP,
        "W7" | "locks" => HOLD,
        "waiters" => WAITERS,
        _ => CONTEND,
    }
}

/// The headings of the size of a scenario that grows, and of its memory column.
fn size_headings(scenario: &str) -> Option<(&'static str, Option<&'static str>)> {
    match scenario {
        "waiters" => Some(("waiters", Some("client memory per waiter kB"))),
        "locks" => Some(("locks", Some("client memory per lock kB"))),
        "herds" => Some(("waiters", None)),
        _ => None,
    }
}

/// The table of a scenario, one row for each variant; `None` if it was not measured.
pub(crate) fn table(results: &Results, scenario: &str) -> Option<Table> {
    results.of_scenario(scenario).next()?;
    let (columns, size) = (columns(scenario), size_headings(scenario));
    let memory = size.and_then(|(_, memory)| memory);
    let mut heads = vec!["participant"];
    heads.extend(size.map(|(size, _)| size));
    heads.extend(columns.iter().map(|(head, _)| *head));
    heads.extend(memory);
    let mut table = Table::new(heads);
    for line in results.of_scenario(scenario) {
        let mut cells = vec![line.participant.clone()];
        cells.extend(line.size.map(|size| count(as_float(size))));
        if line.runs.is_empty() {
            cells.push(line.failure.clone().unwrap_or_default());
        } else {
            cells.extend(columns.iter().map(|(_, cell)| cell(line)));
            cells.extend(memory.map(|_| number(results.memory_per_item(line).unwrap_or(f64::NAN))));
        }
        table.row(cells);
    }
    Some(table)
}

/// The number of commands that were sent in a third of the lease.
pub(crate) fn sent_a_period(line: &Line) -> f64 {
    let period = as_float(line.lease_ms) / 3e3;
    line.median(|run| as_float(run.sent) / run.seconds * period)
}

fn per_turn(line: &Line, figure: fn(&Measurement) -> f64) -> String {
    number(line.median(|run| run.per_turn(figure(run))))
}

fn millis(line: &Line, figure: fn(&Measurement) -> Option<u64>) -> String {
    number(line.median_of(figure).map_or(f64::NAN, |nanos| nanos / 1e6))
}

fn micros(line: &Line, figure: fn(&Measurement) -> Option<u64>) -> String {
    number(line.median_of(figure).map_or(f64::NAN, |nanos| nanos / 1e3))
}

fn per_process(line: &Line) -> String {
    let Some(run) = line.runs.first() else { return String::new() };
    let turns: Vec<String> = run.per_process.iter().map(|process| process.turns.to_string()).collect();
    turns.join(", ")
}

fn errors(line: &Line) -> String {
    let first = line.runs.iter().map(|run| &run.first_error).find(|error| !error.is_empty());
    let mut text = line.errors().to_string();
    if let Some(first) = first {
        text = format!("{text} ({})", first.chars().take(60).collect::<String>());
    }
    match line.gave_up() {
        0 => text,
        gave_up => format!("{text}, {gave_up} gave up"),
    }
}
