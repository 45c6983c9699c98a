//! `turnlock bench`: measures the store.

mod bench_run;
mod glyphs;
mod latencies;
mod measurement;
mod report;
mod series;

use std::io::Write;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use turnlock::{Builder, Client};

use self::bench_run::{BenchRun, Part};
use self::glyphs::Glyphs;
use self::measurement::Measurement;
use super::stop_signal::StopSignal;
use crate::arguments::StoreArguments;
use crate::bench_arguments::BenchArguments;
use crate::escape::json_line;
use crate::store;

/// How long to wait at the end until all locks are released.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// The number of slices of each part. All parts of all stores take turns, so that a disturbance hits each of them.
const SLICES: u32 = 5;

/// Runs the benchmark and prints its results.
pub(crate) async fn bench(store: &StoreArguments, arguments: BenchArguments) -> anyhow::Result<ExitCode> {
    let mut stop = StopSignal::new()?;
    let mut clients = Vec::new();
    let outcome = tokio::select! {
        code = stop.received() => Err(code),
        measured = run(store, &arguments, &mut clients) => Ok(measured),
    };
    // If a signal ended the benchmark, the dropped guards are released in the background.
    for client in &clients {
        if !client.shutdown(SHUTDOWN_LIMIT).await.is_clean() {
            let names = &arguments.names;
            let text = format!(
                "not all releases were confirmed: locks whose names begin with {names:?} may stay held until their leases end"
            );
            writeln!(anstream::stderr(), "turnlock: {text}")?;
        }
    }
    let runs = match outcome {
        Err(code) => return Ok(code),
        Ok(measured) => measured?,
    };
    write(&arguments, &runs)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures the stores. Adds to `clients` what must be shut down.
async fn run(
    store: &StoreArguments,
    arguments: &BenchArguments,
    clients: &mut Vec<Client>,
) -> anyhow::Result<Vec<BenchRun>> {
    let store = shared(store);
    let mut runs = Vec::new();
    let pair = [store::connect(&store, builder()).await?, store::connect(&store, builder()).await?];
    clients.extend(pair.clone());
    runs.push(BenchRun::new(store::printable_url(&store), pair, arguments).await?);
    if let Some(url) = &arguments.compare {
        let store = shared(&StoreArguments { store: Some(url.clone()), ..StoreArguments::default() });
        let pair =
            [store::connect_alone(&store, builder()).await?, store::connect_alone(&store, builder()).await?];
        clients.extend(pair.clone());
        runs.push(BenchRun::new(store::printable_url(&store), pair, arguments).await?);
    }
    let parts = runs.iter().map(|run| run.series().count()).sum::<usize>();
    let duration = arguments.time * u32::try_from(parts).unwrap_or(1);
    with_progress_bar(duration, |bar| measure(&mut runs, arguments.time / SLICES, bar)).await?;
    Ok(runs)
}

fn builder() -> Builder {
    Client::builder().label("turnlock bench")
}

async fn measure(runs: &mut [BenchRun], slice: Duration, bar: ProgressBar) -> anyhow::Result<()> {
    for _ in 0..SLICES {
        for part in Part::ALL {
            bar.set_message(part.title());
            for run in &mut *runs {
                run.measure(part, slice).await?;
            }
        }
    }
    Ok(())
}

fn write(arguments: &BenchArguments, runs: &[BenchRun]) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    let glyphs = Glyphs::of_locale();
    match runs {
        _ if arguments.json => {
            for (index, run) in runs.iter().enumerate() {
                let first = (index > 0).then(|| &runs[0]);
                writeln!(out, "{}", json_line(&Measurement::new(run, first))?)?;
            }
        }
        [a, b] => report::write_two(&mut out, [a, b], arguments.time, glyphs)?,
        runs => {
            for run in runs {
                report::write_one(&mut out, run, arguments.time, glyphs)?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// Gives a store in memory a name, so that the two clients share it.
fn shared(arguments: &StoreArguments) -> StoreArguments {
    let mut arguments = arguments.clone();
    if store::is_memory(&arguments) {
        let url = arguments.store.as_deref().unwrap_or_default().trim();
        let (base, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        if base.trim_end_matches('/').ends_with(':') {
            arguments.store = Some(format!("memory://turnlock-bench{query}"));
        }
    }
    arguments
}

/// Redraw interval of the bar.
const TICK: Duration = Duration::from_millis(100);

/// Runs `work`, which takes about `time`, with a progress bar on standard error if that is a terminal.
///
/// The bar is removed when the work ends or is cancelled.
async fn with_progress_bar<F: Future>(time: Duration, work: impl FnOnce(ProgressBar) -> F) -> F::Output {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let style =
        ProgressStyle::with_template("{wide_bar} {msg:18}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(millis(time)).with_style(style).with_finish(ProgressFinish::AndClear);
    let start = Instant::now();
    let mut tick = tokio::time::interval(TICK);
    let mut work = pin!(work(bar.clone()));
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = tick.tick() => bar.set_position(millis(start.elapsed())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_store_is_shared_by_name() {
        let shared_url = |url: &str| {
            let arguments = StoreArguments { store: Some(url.to_owned()), ..StoreArguments::default() };
            shared(&arguments).store.unwrap()
        };
        assert_eq!(shared_url("memory://"), "memory://turnlock-bench");
        assert_eq!(shared_url("Memory:?a=b"), "memory://turnlock-bench?a=b");
        assert_eq!(shared_url("memory://mine"), "memory://mine");
        assert_eq!(shared_url("redis://host"), "redis://host");
    }
}
