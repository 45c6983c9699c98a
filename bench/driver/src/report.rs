//! The result files, the summary, and the progress output.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::arguments::Arguments;
use crate::markdown::number;
use crate::measurement::{Measurement, as_float};
use crate::results::Results;
use crate::scenario::{Scenario, Setup};
use crate::scenarios::HEADINGS;
use crate::targets::Target;
use crate::{columns, plot, summary, targets};

/// The share of a core that unrelated processes may use without affecting the results.
const OTHERS_CPU_LIMIT: f64 = 0.15;

/// Writes tables, figures and plots, and prints the summary.
pub(crate) fn write(results: &Results, arguments: &Arguments, bench: &Path) -> Result<(), String> {
    let targets = targets::all(results);
    let conditions = conditions(results);
    println!("{}\n{}", summary::text(results, summary::terminal_width()), targets::summary(&targets));
    println!("{conditions}");
    let (dir, plots) = arguments.directories(bench);
    let json = serde_json::to_string_pretty(&ResultsFile { results, targets: &targets });
    let json = json.map_err(|error| error.to_string())?;
    save(&dir.join("results.md"), &text(results, &conditions, &targets))?;
    save(&dir.join("results.json"), &(json + "\n"))?;
    plot::all(results).iter().try_for_each(|(name, svg)| save(&plots.join(name).with_extension("svg"), svg))
}

/// Writes tables and plots again from a results file, into its directory by default.
pub(crate) fn redraw(file: &Path, arguments: &Arguments) -> Result<(), String> {
    let results = Results::load(file)?;
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

fn save(path: &Path, text: &str) -> Result<(), String> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// The machine, the versions, the load, and what is not as it should be.
fn conditions(results: &Results) -> String {
    let mut text = format!("- Machine: {}\n", results.machine);
    let versions: Vec<String> = results.versions.iter().map(|(name, of)| format!("{name} {of}")).collect();
    if !versions.is_empty() {
        let _ = writeln!(text, "- Versions: {}", versions.join("; "));
    }
    let [before, after] = &results.load;
    if !before.is_empty() {
        let _ = writeln!(text, "- Load averages (1, 5, 15 min): {before} before the run, {after} after it");
    }
    if let Some((median, most)) = results.others_cpu() {
        let (median_percent, most) = (number(median * 100.0), number(most * 100.0));
        let _ = write!(
            text,
            "- Unrelated processes, % of a core: {median_percent} at the median, {most} at most"
        );
        text += if median > OTHERS_CPU_LIMIT { ". **The figures are not reliable.**\n" } else { "\n" };
    }
    if results.selection.quick {
        text += "- A quick run: the figures are rough.\n";
    }
    for (name, why) in &results.absent {
        let _ = writeln!(text, "- {name} was left out: {why}");
    }
    text
}

/// All tables.
fn text(results: &Results, conditions: &str, targets: &[Target]) -> String {
    let mut text = format!("# The benchmark's last run\n\n{conditions}");
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

/// One measurement, for the progress output.
pub(crate) fn progress(scenario: &Scenario, run: &Measurement) -> String {
    let millis = |nanos: Option<u64>| number(nanos.map_or(f64::NAN, |nanos| as_float(nanos) / 1e6));
    let mut text = match (&scenario.setup, scenario.id) {
        (Setup::WakeUp { .. }, _) => format!("p50 {} ms, p99 {} ms", millis(run.p50_ns), millis(run.p99_ns)),
        (_, "W5" | "herds") => format!("{} served in {} ms", run.turns, number(run.seconds * 1e3)),
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
    if run.gave_up > 0 {
        let _ = write!(text, ", {} gave up", run.gave_up);
    }
    text
}
