//! The plots: throughput and cost by the number of waiters and of held locks.

mod axis;
mod chart;
mod figure;

use crate::columns::sent_a_period;
use crate::measurement::as_float;
use crate::results::{Line, Results};
use chart::{Chart, Series};
use figure::Figure;

/// Each plot with its file name. Plots without measurements are left out.
pub(crate) fn all(results: &Results) -> Vec<(&'static str, String)> {
    let waiters = "tasks of one process that want the lock";
    let figures = [
        (
            "throughput",
            Figure::new(
                "Turns per second, by the number of tasks that take turns with one lock",
                vec![chart(results, "waiters", waiters, "turns per second", |line| Some(line.rate()))],
            ),
        ),
        (
            "longest-wait",
            Figure::new(
                "The longest wait, by the number of tasks that take turns with one lock",
                vec![chart(results, "waiters", waiters, "longest wait, ms", |line| {
                    Some(line.median_of(|run| run.max_ns)? / 1e6)
                })],
            ),
        ),
        (
            "held-locks",
            Figure::new(
                "The cost of held locks",
                vec![
                    chart(results, "locks", "held locks", "commands sent per renewal period", |line| {
                        Some(sent_a_period(line))
                    }),
                    chart(results, "locks", "held locks", "client CPU, % of a core", |line| {
                        Some(line.median(|run| run.client_cpu / run.seconds * 100.0))
                    }),
                ],
            ),
        ),
    ];
    figures
        .into_iter()
        .filter(|(_, figure)| !figure.is_empty())
        .map(|(name, f)| (name, f.to_string()))
        .collect()
}

fn chart(
    results: &Results,
    scenario: &str,
    x_axis: &'static str,
    y_axis: &'static str,
    figure: fn(&Line) -> Option<f64>,
) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for line in results.of_scenario(scenario).filter(|line| !line.runs.is_empty()) {
        let Some((size, value)) = line.size.zip(figure(line)) else { continue };
        // A logarithmic axis has no zero.
        if value <= 0.0 || !value.is_finite() {
            continue;
        }
        let point = (as_float(size), value);
        match series.iter_mut().find(|series| series.name == line.participant) {
            Some(known) => known.points.push(point),
            None => series.push(Series { name: line.participant.clone(), points: vec![point] }),
        }
    }
    Chart { x_axis, y_axis, series }
}
