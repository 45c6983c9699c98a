use std::path::Path;

use crate::arguments::Arguments;
use crate::busy_loops::BusyLoops;
use crate::harness::Harness;
use crate::measurement::Measurement;
use crate::registry::Registry;
use crate::results::{Line, Results};
use crate::scenario::{Scenario, Setup};
use crate::server::Server;
use crate::variant::Variant;
use crate::worker_process::MeasureError;
use crate::{report, scenarios};

/// A participant whose measurement takes longer than this is measured once, in seconds.
const SLOW: f64 = 15.0;

/// A run of the benchmark.
pub(crate) struct BenchRun {
    harness: Harness,
    results: Results,
    done: usize,
    planned: usize,
}

/// A row of a table: processes of one variant, or of several variants together.
struct Row<'a> {
    title: String,
    processes: Vec<&'a Variant>,
    must_succeed: bool,
}

impl BenchRun {
    /// Builds the participants, measures them, and writes the results. Fails if turnlock or the bare scripts fail.
    pub(crate) async fn run(arguments: &Arguments) -> Result<(), String> {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the directory of the benchmark");
        let wanted = scenarios::all(arguments.quick)
            .into_iter()
            .filter(|scenario| arguments.wants_scenario(scenario.id));
        let scenarios: Vec<Scenario> = wanted.collect();
        if scenarios.is_empty() {
            let known: Vec<&str> = scenarios::HEADINGS.iter().map(|(id, _)| *id).collect();
            return Err(format!("unknown scenario; known: {}", known.join(", ")));
        }
        let registry = Registry::discover(&bench.join("participants"), arguments).await?;
        let server = Server::start().await?;
        let busy_loops = if arguments.no_busy_loops { BusyLoops::default() } else { BusyLoops::start() };
        let results = Results {
            machine: machine(&server).await,
            quick: arguments.quick,
            absent: registry.absent.clone(),
            ..Results::default()
        };
        let plan: Vec<(&Scenario, Vec<Row<'_>>)> =
            scenarios.iter().map(|scenario| (scenario, rows(scenario, &registry))).collect();
        let rounds_of = |(scenario, rows): &(&Scenario, Vec<Row<'_>>)| {
            rows.iter().map(|row| scenario.rounds_for(row.must_succeed)).sum::<usize>()
        };
        let planned = plan.iter().map(rounds_of).sum();
        let mut bench_run = Self {
            harness: Harness { server, busy_loops, quick: arguments.quick },
            results,
            done: 0,
            planned,
        };
        for (scenario, rows) in &plan {
            bench_run.measure(scenario, rows).await;
        }
        report::write(&bench_run.results, arguments, bench)?;
        bench_run.check(&registry)
    }

    /// Measures one scenario: all rows in turn, round by round.
    async fn measure(&mut self, scenario: &Scenario, rows: &[Row<'_>]) {
        let lease_ms = match &scenario.setup {
            Setup::Processes { settings, .. } | Setup::Mixed { settings, .. } => settings.lease_ms,
            Setup::WakeUp { .. } => 0,
        };
        let first = self.results.lines.len();
        self.results.lines.extend(rows.iter().map(|row| Line {
            scenario: scenario.id.to_owned(),
            size: scenario.size,
            participant: row.title.clone(),
            lease_ms,
            runs: Vec::new(),
            failure: None,
        }));
        for round in 0..scenario.rounds.max(scenario.rounds_of_others) {
            for (row, line) in rows.iter().zip(first..) {
                if round >= scenario.rounds_for(row.must_succeed) {
                    continue;
                }
                self.done += 1;
                let line = &mut self.results.lines[line];
                let is_slow = !row.must_succeed && line.runs.iter().any(|run| run.whole_seconds > SLOW);
                if is_slow || line.failure.is_some() {
                    continue;
                }
                eprint!("[{}/{}] {} {}", self.done, self.planned, scenario.title(), row.title);
                match measure_once(&self.harness, scenario, row).await {
                    Ok(run) => {
                        eprintln!(": {}", report::summary(scenario, &run));
                        line.runs.push(run);
                    }
                    Err(MeasureError::Unsupported(why)) => {
                        eprintln!(" unsupported: {why}");
                        line.failure = Some(format!("unsupported: {why}"));
                    }
                    Err(MeasureError::Failed(why)) => {
                        eprintln!(" failed: {why}");
                        line.failure = Some(format!("failed: {why}"));
                    }
                }
            }
        }
    }

    /// Fails if turnlock or the bare scripts did not do what they must.
    fn check(&self, registry: &Registry) -> Result<(), String> {
        let mut faults: Vec<String> = registry
            .absent
            .iter()
            .filter(|(name, _)| crate::variant::must_succeed(name))
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        for line in &self.results.lines {
            let must_succeed = registry.find(&line.participant).is_none_or(Variant::must_succeed);
            if let Some(fault) = line.fault().filter(|_| must_succeed) {
                faults.push(format!("{} {}: {fault}", line.scenario, line.participant));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(format!("the run has failures:\n{}", faults.join("\n"))) }
    }
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

async fn measure_once(
    harness: &Harness,
    scenario: &Scenario,
    row: &Row<'_>,
) -> Result<Measurement, MeasureError> {
    match &scenario.setup {
        Setup::Processes { settings, .. } | Setup::Mixed { settings, .. } => {
            harness.measure(&row.processes, settings).await
        }
        Setup::WakeUp { rounds } => harness.measure_wake_up(row.processes[0], *rounds).await,
    }
}

/// A description of the machine and the server.
async fn machine(server: &Server) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, Redis {}, no persistence, on the loopback interface", server.version().await)
}
