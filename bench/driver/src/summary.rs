//! The summary of a run for a terminal: a bar for each row, and its ratio to the limit and to the best peer.

use std::fmt::Write;

use crate::markdown::{count, number};
use crate::measurement::as_float;
use crate::results::{Line, Results};
use crate::scenarios::HEADINGS;

/// The width of the output where it is not a terminal.
const DEFAULT_WIDTH: usize = 100;
/// The narrowest bar.
const MIN_BAR: usize = 8;

/// The figure that a scenario is about.
struct Figure {
    unit: &'static str,
    more_is_better: bool,
    of: fn(&Line) -> Option<f64>,
}

fn figure(scenario: &str) -> Figure {
    let rate = |unit| Figure { unit, more_is_better: true, of: |line| Some(line.rate()) };
    match scenario {
        "W1" | "W2" | "cluster" => rate("pairs/s"),
        "W5" => Figure {
            unit: "ms",
            more_is_better: false,
            of: |line| is_served(line).then(|| line.median(|run| run.seconds * 1e3)),
        },
        "herds" => Figure {
            unit: "µs for each waiter",
            more_is_better: false,
            of: |line| is_served(line).then(|| line.median(|run| run.per_turn(run.seconds * 1e6))),
        },
        "W6" => Figure {
            unit: "ms at the median",
            more_is_better: false,
            of: |line| Some(line.median_of(|run| run.p50_ns)? / 1e6),
        },
        "W7" | "locks" => Figure {
            unit: "% of a core, client and server",
            more_is_better: false,
            of: |line| {
                Some(line.median(|run| (run.client_cpu + run.server_cpu) / run.seconds.max(1e-9) * 100.0))
            },
        },
        _ => rate("turns/s"),
    }
}

/// Returns `true` if all were served: otherwise a herd has no time.
fn is_served(line: &Line) -> bool {
    line.runs.iter().all(|run| run.errors == 0 && run.gave_up == 0)
}

/// The width of the terminal.
pub(crate) fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(DEFAULT_WIDTH)
}

/// All scenarios with measurements, each with a bar for every row.
pub(crate) fn text(results: &Results, width: usize) -> String {
    let mut text = String::new();
    for (scenario, heading) in HEADINGS {
        let mut lines: Vec<&Line> = results.of_scenario(scenario).collect();
        if lines.is_empty() {
            continue;
        }
        // The sizes of a row together show how its figure grows. The sort is stable.
        if lines.iter().any(|line| line.size.is_some()) {
            let order: Vec<&str> = lines.iter().map(|line| line.participant.as_str()).collect();
            lines.sort_by_key(|line| order.iter().position(|title| *title == line.participant));
        }
        write_scenario(&mut text, heading, &figure(scenario), &lines, width);
    }
    text
}

fn write_scenario(text: &mut String, heading: &str, figure: &Figure, lines: &[&Line], width: usize) {
    let more = if figure.more_is_better { "more" } else { "less" };
    let _ = writeln!(text, "\n{heading}\n  {}; {more} is better", figure.unit);
    let value = |line: &Line| if line.runs.is_empty() { None } else { (figure.of)(line) };
    let most = lines.iter().filter_map(|line| value(line)).fold(f64::MIN_POSITIVE, f64::max);
    let titles: Vec<String> = lines.iter().map(|line| title(line)).collect();
    let values: Vec<String> = lines.iter().map(|line| value(line).map_or(String::new(), number)).collect();
    let notes: Vec<String> = lines.iter().map(|line| note(figure, lines, line)).collect();
    let longest = |texts: &[String]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let (titles_width, values_width) = (longest(&titles), longest(&values));
    let rest = width.saturating_sub(titles_width + values_width + longest(&notes) + 8);
    for (((line, title), figure), note) in lines.iter().zip(&titles).zip(&values).zip(&notes) {
        let bar = bar(value(line).unwrap_or(0.0) / most, rest.max(MIN_BAR));
        let row = format!("  {title:titles_width$}  {bar}  {figure:>values_width$}  {note}");
        let _ = writeln!(text, "{}", row.trim_end());
    }
}

fn title(line: &Line) -> String {
    line.size.map_or_else(
        || line.participant.clone(),
        |size| format!("{} × {}", line.participant, count(as_float(size))),
    )
}

/// The ratios of a line, or what went wrong.
fn note(figure: &Figure, lines: &[&Line], line: &Line) -> String {
    if line.runs.is_empty() {
        return line.failure.clone().unwrap_or_default().chars().take(40).collect();
    }
    let Some(own) = (figure.of)(line) else {
        let served = line.median(|run| as_float(run.turns));
        return format!("{} served, {} errors", count(served), line.errors());
    };
    let same_size = || lines.iter().filter(|other| other.size == line.size && !other.runs.is_empty());
    let limit = same_size().find(|other| other.participant == "bare").copied();
    let mut references: Vec<&Line> = limit.into_iter().collect();
    if line.participant.starts_with("turnlock") {
        references.extend(best_peer(figure, same_size().copied(), line));
    }
    let ratios = references
        .into_iter()
        .filter(|other| other.participant != line.participant)
        .filter_map(|other| Some(format!("{} × {}", ratio(own / (figure.of)(other)?), other.participant)));
    ratios.collect::<Vec<_>>().join(", ")
}

/// The best other library with the same kind of lock; without one, with its default kind.
fn best_peer<'a>(figure: &Figure, lines: impl Iterator<Item = &'a Line>, ours: &Line) -> Option<&'a Line> {
    let peers = lines.filter(|line| line.is_peer() && [ours.kind(), ""].contains(&line.kind()));
    let rank = |line: &Line| {
        let value = (figure.of)(line)?;
        Some((line.kind() == ours.kind(), if figure.more_is_better { value } else { -value }))
    };
    let ranked = peers.filter_map(|line| Some((rank(line)?, line)));
    let best = ranked.max_by(|((same, value), _), ((other_same, other), _)| {
        same.cmp(other_same).then(value.total_cmp(other))
    });
    best.map(|(_, line)| line)
}

fn ratio(value: f64) -> String {
    if value < 0.01 { format!("{value:.4}") } else { number(value) }
}

/// A bar of `width` characters, filled in steps of an eighth; not empty for a share above 0.
fn bar(share: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let cells = as_float(width as u64 * 8);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the width")]
    let eighths = (share.clamp(0.0, 1.0) * cells).ceil() as usize;
    let filled = "█".repeat(eighths / 8) + PARTS[eighths % 8];
    format!("{filled:width$}")
}

#[cfg(test)]
mod tests {
    use super::{bar, text};
    use crate::measurement::Measurement;
    use crate::results::{Line, Results};

    fn line(scenario: &str, participant: &str, size: Option<u64>, run: Option<Measurement>) -> Line {
        Line {
            scenario: scenario.to_owned(),
            size,
            participant: participant.to_owned(),
            lease_ms: 9_000,
            runs: run.into_iter().collect(),
            failure: Some("failed: no reply".to_owned()),
        }
    }

    fn at(turns: u64) -> Measurement {
        Measurement { turns, seconds: 1.0, ..Measurement::default() }
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.0001, 4), "▏   ");
        assert_eq!(bar(0.0, 4), "    ");
        assert_eq!(bar(9.0, 2), "██");
    }

    #[test]
    fn a_scenario_has_a_bar_for_each_row_within_the_width() {
        let results = Results {
            lines: vec![
                line("W2", "bare", None, Some(at(1_000))),
                line("W2", "turnlock", None, Some(at(2_000))),
                line("W2", "rslock", None, Some(at(500))),
                line("W2", "redsync", None, None),
            ],
            ..Results::default()
        };
        let text = text(&results, 80);
        let shown: Vec<&str> = text.lines().collect();
        let ends = [
            "",
            "W2: free locks, 64 tasks with one each",
            "  pairs/s; more is better",
            " 1,000",
            " 2,000  2.00 × bare, 4.00 × rslock",
            "   500  0.50 × bare",
            " failed: no reply",
        ];
        assert_eq!(shown.len(), ends.len(), "{text}");
        for (shown, end) in shown.iter().zip(ends) {
            assert!(shown.ends_with(end) && shown.chars().count() <= 80, "{text}");
        }
        let blocks = |row: usize| shown[row].matches('█').count();
        assert!(blocks(4) > 10 && blocks(3) == blocks(4) / 2 && blocks(5) == blocks(4) / 4, "{text}");
    }

    #[test]
    fn rows_are_compared_at_the_same_size_and_kind() {
        let herd = |seconds, errors| Some(Measurement { seconds, errors, ..at(5) });
        let results = Results {
            lines: vec![
                line("herds", "turnlock read", Some(10), herd(0.01, 0)),
                line("herds", "turnlock read", Some(1_000), herd(0.02, 0)),
                line("herds", "turnlock write", Some(1_000), herd(0.02, 0)),
                line("herds", "redisson read", Some(1_000), herd(0.2, 0)),
                line("herds", "redisson latch", Some(1_000), herd(0.002, 0)),
                line("herds", "redisson write", Some(1_000), herd(3.0, 1)),
            ],
            ..Results::default()
        };
        let text = text(&results, 100);
        // Redisson served not all of its writers, and its latch is no write lock.
        assert!(text.contains(" 4,000  0.10 × redisson read"), "{text}");
        assert_eq!(text.matches("× redisson").count(), 1, "{text}");
        assert!(text.contains("5 served, 1 errors"), "{text}");
    }
}
