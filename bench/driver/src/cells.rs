//! The cells of a run: one round of one row of a scenario each.

use crate::measurement::Measurement;
use crate::report;
use crate::results::{Line, Results};
use crate::scenario::{Scenario, Setup};
use crate::variant::Variant;
use crate::worker_process::MeasureError;

/// A participant whose measurement takes longer than this is measured once, in seconds.
const SLOW: f64 = 15.0;

/// A row of a table: processes of one variant, or of several variants together.
pub(crate) struct Row<'a> {
    pub(crate) title: String,
    pub(crate) processes: Vec<&'a Variant>,
    pub(crate) must_succeed: bool,
}

/// Measures the cells that the results do not have yet, and saves after each.
///
/// Each round measures all rows of a scenario in turn.
pub(crate) async fn measure(
    plan: &[(Scenario, Vec<Row<'_>>)],
    results: &mut Results,
    save: impl Fn(&Results) -> Result<(), String>,
    measure_cell: impl AsyncFn(&Scenario, &Row<'_>) -> Result<Measurement, MeasureError>,
) -> Result<(), String> {
    let planned = count(plan);
    let mut done = 0;
    for (scenario, rows) in plan {
        for round in 0..scenario.rounds.max(scenario.rounds_of_others) {
            for row in rows.iter().filter(|row| round < scenario.rounds_for(row.must_succeed)) {
                done += 1;
                let line = line(results, scenario, row);
                let is_slow = !row.must_succeed && line.runs.iter().any(|run| run.whole_seconds > SLOW);
                if line.runs.len() > round || is_slow || line.failure.is_some() {
                    continue;
                }
                eprint!("[{done}/{planned}] {} {}", scenario.title(), row.title);
                match measure_cell(scenario, row).await {
                    Ok(run) => {
                        eprintln!(": {}", report::progress(scenario, &run));
                        line.runs.push(run);
                    }
                    Err(error) => {
                        eprintln!(" {error}");
                        line.failure = Some(error.to_string());
                    }
                }
                save(results)?;
            }
        }
    }
    Ok(())
}

/// The number of cells of a plan.
pub(crate) fn count(plan: &[(Scenario, Vec<Row<'_>>)]) -> usize {
    plan.iter()
        .flat_map(|(scenario, rows)| rows.iter().map(|row| scenario.rounds_for(row.must_succeed)))
        .sum()
}

/// The line of a row, which is added if it is new.
fn line<'a>(results: &'a mut Results, scenario: &Scenario, row: &Row<'_>) -> &'a mut Line {
    let known = results.lines.iter().position(|line| {
        line.scenario == scenario.id && line.size == scenario.size && line.participant == row.title
    });
    let position = known.unwrap_or_else(|| {
        let lease_ms = match &scenario.setup {
            Setup::Processes { settings, .. } | Setup::Mixed { settings, .. } => settings.lease_ms,
            Setup::WakeUp { .. } => 0,
        };
        results.lines.push(Line {
            scenario: scenario.id.to_owned(),
            size: scenario.size,
            participant: row.title.clone(),
            lease_ms,
            runs: Vec::new(),
            failure: None,
        });
        results.lines.len() - 1
    });
    &mut results.lines[position]
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use turnlock_testkit::TempDir;

    use super::{Row, measure};
    use crate::measurement::Measurement;
    use crate::results::Results;
    use crate::scenario::{Scenario, Setup};
    use crate::worker_process::MeasureError;

    fn plan() -> Vec<(Scenario, Vec<Row<'static>>)> {
        let row = |title: &str| Row { title: title.to_owned(), processes: vec![], must_succeed: true };
        let scenario = |id, size| Scenario {
            id,
            size,
            setup: Setup::WakeUp { rounds: 1 },
            rounds: 2,
            rounds_of_others: 1,
            only: &[],
            on_cluster: false,
        };
        vec![
            (scenario("W1", None), vec![row("turnlock"), row("bare"), row("broken")]),
            (scenario("waiters", Some(10)), vec![row("turnlock")]),
            (scenario("waiters", Some(100)), vec![row("turnlock")]),
        ]
    }

    /// Runs the plan on the results in the file until `limit` cells are measured, and returns their names.
    async fn run(file: &std::path::Path, limit: usize) -> (Vec<String>, Result<(), String>) {
        let measured = RefCell::new(Vec::new());
        let mut results = Results::load(file).unwrap_or_default();
        let save = |results: &Results| {
            results.save(file)?;
            if measured.borrow().len() < limit { Ok(()) } else { Err("interrupted".to_owned()) }
        };
        let plan = plan();
        let outcome = measure(&plan, &mut results, save, async |scenario: &Scenario, row: &Row<'_>| {
            measured.borrow_mut().push(format!("{} {}", scenario.title(), row.title));
            match row.title.as_str() {
                "broken" => Err(MeasureError::Failed("no reply".to_owned())),
                _ => Ok(Measurement { turns: 7, seconds: 1.0, ..Measurement::default() }),
            }
        });
        let outcome = outcome.await;
        (measured.into_inner(), outcome)
    }

    #[tokio::test]
    async fn an_interrupted_run_is_continued_and_no_cell_is_measured_twice() {
        let dir = TempDir::new();
        let (whole, outcome) = run(&dir.path().join("whole.json"), usize::MAX).await;
        assert_eq!(outcome, Ok(()));
        let expected = [
            "W1 turnlock",
            "W1 bare",
            // Failed, so not repeated.
            "W1 broken",
            "W1 turnlock",
            "W1 bare",
            "10 waiters turnlock",
            "10 waiters turnlock",
            "100 waiters turnlock",
            "100 waiters turnlock",
        ];
        assert_eq!(whole, expected);
        for limit in 1..whole.len() {
            let file = dir.path().join(format!("{limit}.json"));
            let (first, outcome) = run(&file, limit).await;
            assert_eq!(outcome, Err("interrupted".to_owned()));
            let (second, outcome) = run(&file, usize::MAX).await;
            assert_eq!(outcome, Ok(()));
            assert_eq!([first, second].concat(), whole, "interrupted after {limit} cells");
            let finished = Results::load(&file).expect("a results file");
            assert_eq!(finished.lines.iter().map(|line| line.runs.len()).sum::<usize>(), whole.len() - 1);
        }
    }
}
