//! The result files, and the progress output.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::arguments::Arguments;
use crate::markdown::number;
use crate::measurement::{Measurement, as_float};
use crate::results::Results;
use crate::scenario::{Scenario, Setup};
use crate::scenarios::HEADINGS;
use crate::targets::Target;
use crate::{columns, plot, targets};

/// The share of a core that unrelated processes may use without affecting the results.
const OTHERS_CPU_LIMIT: f64 = 0.15;

/// Writes tables, figures and plots, and prints the tables.
pub(crate) fn write(results: &Results, arguments: &Arguments, bench: &Path) -> Result<(), String> {
    let targets = targets::all(results);
    let text = text(results, &targets);
    println!("{text}");
    let (dir, plots) = match &arguments.out {
        Some(dir) => (dir.clone(), dir.clone()),
        None if arguments.is_complete() => (bench.join("results"), bench.join("../docs/speed")),
        None => (bench.join("target/results"), bench.join("target/results")),
    };
    let json = serde_json::to_string_pretty(&ResultsFile { results, targets: &targets });
    let json = json.map_err(|error| error.to_string())?;
    save(&dir.join("results.md"), &text)?;
    save(&dir.join("results.json"), &(json + "\n"))?;
    plot::all(results).iter().try_for_each(|(name, svg)| save(&plots.join(name).with_extension("svg"), svg))
}

/// Writes tables and plots again from a results file, into its directory by default.
pub(crate) fn redraw(file: &Path, arguments: &Arguments) -> Result<(), String> {
    let describe = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| describe(&error))?;
    let results: Results = serde_json::from_str(&text).map_err(|error| describe(&error))?;
    let dir = arguments.out.clone().or_else(|| Some(file.parent()?.to_owned()));
    write(&results, &Arguments { out: dir, ..arguments.clone() }, Path::new("."))
}

/// The contents of `results.json`.
#[derive(Serialize)]
struct ResultsFile<'a> {
    #[serde(flatten)]
    results: &'a Results,
    targets: &'a [Target],
}

fn save(path: &PathBuf, text: &str) -> Result<(), String> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// All tables.
fn text(results: &Results, targets: &[Target]) -> String {
    let mut text = format!("# The benchmark's last run\n\n{}.\n", results.machine);
    if results.quick {
        text += "\nA quick run: the figures are rough.\n";
    }
    if let Some(others) = results.others_cpu().filter(|others| *others > OTHERS_CPU_LIMIT) {
        let others = number(others * 100.0);
        let _ =
            writeln!(text, "\nUnrelated processes used {others} % of a core: the figures are not reliable.");
    }
    for (name, why) in &results.absent {
        let _ = writeln!(text, "\n{name} was left out: {why}");
    }
    if let Some(table) = targets::table(targets) {
        let _ = write!(text, "\n## Targets\n\n{table}");
    }
    for (scenario, heading) in HEADINGS {
        if let Some(table) = columns::table(results, scenario) {
            let _ = write!(text, "\n## {heading}\n\n{table}");
        }
    }
    text
}

/// A short summary of one measurement, for the progress output.
pub(crate) fn summary(scenario: &Scenario, run: &Measurement) -> String {
    let millis = |nanos: Option<u64>| number(nanos.map_or(f64::NAN, |nanos| as_float(nanos) / 1e6));
    let mut text = match (&scenario.setup, scenario.id) {
        (Setup::WakeUp { .. }, _) => format!("p50 {} ms, p99 {} ms", millis(run.p50_ns), millis(run.p99_ns)),
        (_, "W5") => format!("drained in {} ms", number(run.seconds * 1e3)),
        (_, "W7" | "locks") => format!(
            "{} commands sent, client CPU {} %",
            run.sent,
            number(run.client_cpu / run.seconds * 100.0)
        ),
        _ => format!("{}/s", number(run.rate())),
    };
    if run.errors > 0 {
        let _ = write!(text, ", {} errors, the first: {}", run.errors, run.first_error);
    }
    text
}
