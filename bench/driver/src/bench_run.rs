use std::fs;
use std::path::Path;

use tokio::sync::OnceCell;

use crate::arguments::Arguments;
use crate::busy_loops::BusyLoops;
use crate::cells::Row;
use crate::harness::Harness;
use crate::registry::Registry;
use crate::results::Results;
use crate::scenario::{Scenario, Setup};
use crate::server::Server;
use crate::variant::{Variant, must_succeed};
use crate::{cells, environment, report, scenarios};

/// Builds the participants, measures them, and writes the results. Fails if turnlock or the bare scripts fail.
pub(crate) async fn run(arguments: &Arguments) -> Result<(), String> {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the directory of the benchmark");
    let file = arguments.unfinished(bench);
    let unfinished = unfinished(arguments, &file)?;
    let selection = unfinished.as_ref().map_or(&arguments.selection, |results| &results.selection).clone();
    let arguments = &Arguments { selection: selection.clone(), ..arguments.clone() };

    let wanted = scenarios::all(selection.quick, selection.million)
        .into_iter()
        .filter(|scenario| selection.wants_scenario(scenario.id));
    let scenarios: Vec<Scenario> = wanted.collect();
    if scenarios.is_empty() {
        let known: Vec<&str> = scenarios::HEADINGS.iter().map(|(id, _)| *id).collect();
        return Err(format!("unknown scenario; known: {}", known.join(", ")));
    }
    let registry = Registry::discover(&bench.join("participants"), &selection, !arguments.no_build).await?;
    let server = Server::start().await?;
    let new = Results {
        machine: environment::machine(),
        versions: versions(&registry, &server).await,
        load: [environment::load(), String::new()],
        selection,
        absent: registry.absent.clone(),
        ..Results::default()
    };
    let mut results = match unfinished {
        Some(results) if (&results.machine, &results.versions) != (&new.machine, &new.versions) => {
            return Err("the unfinished run is of another machine or other versions: --restart".to_owned());
        }
        Some(results) => results,
        None => new,
    };
    let plan: Vec<(Scenario, Vec<Row<'_>>)> = scenarios
        .into_iter()
        .map(|scenario| {
            let rows = rows(&scenario, &registry);
            (scenario, rows)
        })
        .collect();
    let busy_loops = if arguments.no_busy_loops { BusyLoops::default() } else { BusyLoops::start() };
    let harness = Harness { server, cluster: OnceCell::new(), busy_loops, quick: arguments.selection.quick };
    let measure = async |scenario: &Scenario, row: &Row<'_>| match &scenario.setup {
        Setup::Processes { settings, .. } | Setup::Mixed { settings, .. } => {
            harness.measure(&row.processes, settings, scenario.on_cluster).await
        }
        Setup::WakeUp { rounds } => harness.measure_wake_up(row.processes[0], *rounds).await,
    };
    cells::measure(&plan, &mut results, |results| results.save(&file), measure).await?;
    results.load[1] = environment::load();
    report::write(&results, arguments, bench)?;
    fs::remove_file(&file).or_else(|error| match error.kind() {
        // Nothing was to be measured.
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(format!("{}: {error}", file.display())),
    })?;
    check(&results, &registry)
}

/// The results of the run to continue. Fails if there is one and the arguments do not choose what to do with it.
fn unfinished(arguments: &Arguments, file: &Path) -> Result<Option<Results>, String> {
    if arguments.restart || (!arguments.resume && !file.exists()) {
        return Ok(None);
    }
    let results = Results::load(file).map_err(|error| format!("there is no run to continue: {error}"))?;
    if arguments.resume {
        return Ok(Some(results));
    }
    let cells: usize = results.lines.iter().map(|line| line.runs.len()).sum();
    Err(format!(
        "there is an unfinished run with {cells} measurements: --resume continues it, --restart discards it ({})",
        file.display()
    ))
}

/// The versions of all that is measured.
async fn versions(registry: &Registry, server: &Server) -> Vec<(String, String)> {
    let mut versions =
        vec![("rustc".to_owned(), environment::rustc()), ("server".to_owned(), server.version().await)];
    versions.extend(registry.versions.clone());
    versions
}

/// The rows of a scenario.
fn rows<'a>(scenario: &Scenario, registry: &'a Registry) -> Vec<Row<'a>> {
    match &scenario.setup {
        Setup::Mixed { variants, .. } => {
            let together: Option<Vec<_>> = variants
                .iter()
                .map(|(title, count)| registry.find(title).map(|variant| (variant, *count)))
                .collect();
            let Some(together) = together else { return Vec::new() };
            let title = variants.iter().map(|(title, count)| format!("{count} {title}")).collect::<Vec<_>>();
            let processes = together.into_iter().flat_map(|(variant, count)| vec![variant; count]).collect();
            vec![Row { title: title.join(" + "), processes, must_succeed: true }]
        }
        setup => {
            let processes = if let Setup::Processes { processes, .. } = setup { *processes } else { 1 };
            let variants = registry.variants.iter().filter(|variant| scenario.includes(variant));
            variants
                .map(|variant| Row {
                    title: variant.title(),
                    processes: vec![variant; processes],
                    must_succeed: variant.must_succeed(),
                })
                .collect()
        }
    }
}

/// Fails if turnlock or the bare scripts did not do what they must.
fn check(results: &Results, registry: &Registry) -> Result<(), String> {
    let absent = registry.absent.iter().filter(|(name, _)| must_succeed(name));
    let mut faults: Vec<String> = absent.map(|(name, why)| format!("{name}: {why}")).collect();
    for line in &results.lines {
        let must_succeed = registry.find(&line.participant).is_none_or(Variant::must_succeed);
        if let Some(fault) = line.fault().filter(|_| must_succeed) {
            faults.push(format!("{} {}: {fault}", line.scenario, line.participant));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("the run has failures:\n{}", faults.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use turnlock_testkit::TempDir;

    use super::{Arguments, Results, unfinished};
    use crate::arguments::Selection;

    #[test]
    fn an_unfinished_run_is_continued_or_discarded_only_on_request() {
        let dir = TempDir::new();
        let file = dir.path().join("unfinished.json");
        let call = |option: &str| {
            let arguments = Arguments::parse_from(["bench/run"].into_iter().chain(option.split_whitespace()));
            unfinished(&arguments, &file).map(|results| results.map(|results| results.selection))
        };
        assert_eq!(call(""), Ok(None));
        assert!(call("--resume").is_err());
        let selection = Selection { scenarios: vec!["W5".to_owned()], ..Selection::default() };
        let results = Results { selection: selection.clone(), ..Results::default() };
        results.save(&file).expect("a writable directory");
        assert!(call("--quick").is_err_and(|error| error.contains("--resume continues it")));
        assert_eq!(call("--resume"), Ok(Some(selection)));
        assert_eq!(call("--restart"), Ok(None));
    }
}
