//! Runs turnlock under faults, records what happens, and checks it.

#![forbid(unsafe_code)]

mod checker;
mod history;
mod planted;
mod recorder;
mod report;
mod run;
mod sim;
mod workload;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::{Parser, Subcommand};
use parking_lot::Mutex;
use turnlock_core::name::fix_hash_keys;
use turnlock_testkit::NetworkNamespace;

use checker::Verdict;
use history::Event;

/// Runs turnlock under faults, records what happens, and checks it.
#[derive(Debug, Parser)]
#[command(name = "campaign", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs clients, servers and faults on simulated time. A seed decides all of it
    Sim {
        /// Runs one seed
        #[arg(long, conflicts_with = "seeds")]
        seed: Option<u64>,
        /// Runs so many seeds, on all cores
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first of them
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Writes the history of the seed, or of the smallest seed that fails, to this file: one event per line. Without it,
        /// that of a seed is printed, and that of the smallest seed that fails is in target/campaign
        #[arg(long, value_name = "FILE")]
        history: Option<PathBuf>,
    },
    /// Plants bugs, one after the other, and says which seed of the simulation, or which run, finds each
    Planted {
        /// Tries so many seeds for each bug
        #[arg(long, default_value_t = 2_000)]
        seeds: u64,
        /// Plants these only
        bugs: Vec<String>,
    },
    /// Runs worker processes on real servers under faults
    Run(run::RunOptions),
    /// A worker process of a run
    #[command(hide = true)]
    Worker,
    /// Checks a history
    Check {
        /// One event per line
        file: PathBuf,
    },
    /// Writes the report of a history: a page to read, and its figures as JSON
    Report(report::ReportOptions),
    /// Draws a part of a history as an SVG picture
    Timeline(report::TimelineOptions),
}

fn main() -> anyhow::Result<ExitCode> {
    // Maps by name have the same order in each run.
    fix_hash_keys();
    match Arguments::parse().command {
        Command::Sim { seed: Some(seed), history, .. } => simulate_one(seed, history),
        Command::Sim { seed: None, seeds, from, history } => search_and_report(from, seeds, history),
        Command::Planted { seeds, bugs } => planted::find(&bugs, seeds),
        Command::Run(options) => {
            if options.needs_namespace() {
                NetworkNamespace::exec_without_routes();
            }
            let events = run_on_servers(&options)?;
            let verdict = checker::check(&events);
            let page = report::write(&events, &verdict, report::commit().as_deref(), &options.out)?;
            println!("report: {}", page.display());
            Ok(report(&verdict))
        }
        Command::Worker => run::worker::run().map(|()| ExitCode::SUCCESS),
        Command::Check { file } => Ok(report(&checker::check(&history::read_file(&file)?))),
        Command::Report(options) => {
            println!("report: {}", report::report_file(&options)?.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Timeline(options) => report::draw_timeline(&options).map(|()| ExitCode::SUCCESS),
    }
}

/// Runs a campaign on real servers. Returns its history.
fn run_on_servers(options: &run::RunOptions) -> anyhow::Result<Vec<Event>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run::run(options))
}

/// Prints a verdict. Returns the exit code.
fn report(verdict: &Verdict) -> ExitCode {
    println!(
        "{} acquired, {} lost, {} cancelled, {} failed, {} stale writes rejected, {} overlaps where none are excluded",
        verdict.acquired, verdict.lost, verdict.cancelled, verdict.failed, verdict.rejected, verdict.overlaps
    );
    let faults: Vec<_> = verdict.faults.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
    println!("faults: {}", faults.join(", "));
    if verdict.memory_kib > 0 {
        println!("memory of a process: at most {} KiB", verdict.memory_kib);
        println!("stalls of the machine excuse {} % of the time of the processes", verdict.stalled_percent);
    }
    for violation in &verdict.violations {
        println!("VIOLATION {violation}");
    }
    if verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn simulate_one(seed: u64, to: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let events = sim::run(seed)?;
    if let Some(path) = to {
        history::write_file(&events, &path)?;
    } else {
        history::write(&events, &mut io::stdout().lock())?;
    }
    Ok(report(&checker::check(&events)))
}

/// Runs the simulation of a seed, and checks its history.
fn judge(seed: u64) -> Verdict {
    let violation = match std::panic::catch_unwind(|| sim::run(seed)) {
        Ok(Ok(events)) => return checker::check(&events),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked".to_owned(),
    };
    Verdict { violations: vec![violation], ..Verdict::default() }
}

/// The sums over many seeds.
#[derive(Debug, Default)]
struct Sums {
    total: Verdict,
    failed: Vec<(u64, String)>,
}

/// Runs many seeds, on all cores.
fn search(from: u64, seeds: u64) -> Sums {
    let next = AtomicU64::new(from);
    let sums = Mutex::new(Sums::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    let verdict = judge(seed);
                    let mut sums = sums.lock();
                    sums.failed.extend(verdict.violations.iter().map(|text| (seed, text.clone())));
                    sums.total.add(verdict);
                }
            });
        }
    });
    let mut sums = sums.into_inner();
    sums.failed.sort();
    sums
}

/// Runs many seeds, and prints the sums and the smallest seed that fails.
fn search_and_report(from: u64, seeds: u64, to: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let Sums { total, failed } = search(from, seeds);
    println!("{seeds} seeds from {from} in {:.1} s", started.elapsed().as_secs_f64());
    let code = report(&Verdict { violations: Vec::new(), ..total });
    for (seed, violation) in failed.iter().take(20) {
        println!("VIOLATION seed {seed}: {violation}");
    }
    let Some((seed, _)) = failed.first() else { return Ok(code) };
    println!("{} violations; the smallest seed: ./campaign sim --seed {seed}", failed.len());
    let path = to.unwrap_or_else(|| PathBuf::from(format!("target/campaign/seed-{seed}.jsonl")));
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // One that panics has no history.
    if let Ok(events) = std::panic::catch_unwind(|| sim::run(*seed)) {
        history::write_file(&events?, &path)?;
        println!("its history: {}", path.display());
    }
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests;
