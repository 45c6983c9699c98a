use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::standstill;

/// How often a case is run again that failed while the machine stood still.
const RUNS_AGAIN: usize = 2;

/// A case as a trial by name: it runs to its end within the limit, on a runtime of its own.
///
/// Where it cannot run for want of something, it says *ignored* and why; with `CI` set, it has failed instead. One that failed
/// while the whole machine stood still is run again, and says so: see [`standstill`].
pub fn trial<C, F>(title: &str, missing: Option<String>, limit: Duration, case: C) -> Trial
where
    C: Fn() -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let ignored = missing.is_some() && std::env::var_os("CI").is_none();
    let title = missing.as_ref().map_or(title.to_owned(), |reason| format!("{title} ({reason})"));
    let name = title.clone();
    let run = move || {
        if let Some(reason) = missing {
            return Err(reason.into());
        }
        let mut start = Instant::now();
        let mut outcome = run_once(&case, limit);
        for _ in 0..RUNS_AGAIN {
            let Some(stood_still) = standstill::longest_since(start).filter(|_| outcome.is_err()) else {
                break;
            };
            println!("the machine stood still for {stood_still:?}: {name} is run again");
            start = Instant::now();
            outcome = run_once(&case, limit);
        }
        outcome.map_err(Into::into)
    };
    Trial::test(title, run).with_ignored_flag(ignored)
}

fn run_once<F: Future<Output = ()> + Send + 'static>(
    case: &impl Fn() -> F,
    limit: Duration,
) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().map_err(|error| error.to_string())?;
    // A task of its own, so that it runs on a worker as users' code does.
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, tokio::spawn(case())).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome {
        Err(_) => Err(format!("not done within {limit:?}")),
        Ok(Err(panic)) => Err(panic.to_string()),
        Ok(Ok(())) => Ok(()),
    }
}
