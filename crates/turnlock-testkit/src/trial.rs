use std::time::Duration;

use libtest_mimic::{Arguments, Conclusion, Trial};

use crate::reruns::{Failure, RERUNS, Reruns};
use crate::{TimedOut, stalls};

/// Creates a named trial of a case, which runs on its own runtime within `limit`.
///
/// If something it needs is `missing`, the trial is ignored and its title has the reason; with `CI` set, it
/// fails instead. A case that fails with [`TimedOut`] while the whole machine stalls is run again; any other
/// failure is final.
pub fn trial<C, F>(title: &str, missing: Option<String>, limit: Duration, case: C) -> Trial
where
    C: Fn() -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let ignored = missing.is_some() && std::env::var_os("CI").is_none();
    let title = missing.as_ref().map_or(title.to_owned(), |reason| format!("{title} ({reason})"));
    let name = title.clone();
    let run = move || match missing {
        Some(reason) => Err(reason.into()),
        None => run_with(&RERUNS, &name, limit, &case).map_err(Into::into),
    };
    Trial::test(title, run).with_ignored_flag(ignored)
}

/// Runs the trials of a test program, then prints which of them were run again.
pub fn run(arguments: &Arguments, trials: Vec<Trial>) -> Conclusion {
    stalls::watch();
    let conclusion = libtest_mimic::run(arguments, trials);
    print!("{}", RERUNS.report());
    conclusion
}

/// Records a part of a case that is repeated because the machine stalled.
///
/// It is printed at the end of the run. The case must limit the number of repeats.
pub fn record_repeat(what: impl Into<String>) {
    RERUNS.record_repeat(what.into());
}

fn run_with<F: Future<Output = ()> + Send + 'static>(
    reruns: &Reruns,
    name: &str,
    limit: Duration,
    case: &impl Fn() -> F,
) -> Result<(), String> {
    reruns.run(name, || run_once(case, limit))
}

fn run_once<F: Future<Output = ()> + Send + 'static>(
    case: &impl Fn() -> F,
    limit: Duration,
) -> Result<(), Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Final(error.to_string()))?;
    // Spawned, so that it runs on a worker thread as users' code does.
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, tokio::spawn(case())).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match outcome {
        Err(_) => Err(Failure::Final(format!("not complete within {limit:?}"))),
        Ok(Err(error)) => Err(failure(error)),
        Ok(Ok(())) => Ok(()),
    }
}

fn failure(error: tokio::task::JoinError) -> Failure {
    let message = error.to_string();
    let Ok(panic) = error.try_into_panic() else { return Failure::Final(message) };
    panic.downcast::<TimedOut>().map_or(Failure::Final(message), |timed_out| Failure::TimedOut(*timed_out))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{eventually, within};

    const LIMIT: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(20);

    /// Re-runs on a machine that stalls all the time.
    fn always_stalled() -> Reruns {
        Reruns::new(3, |_| LIMIT)
    }

    /// Returns how often the case ran, and its outcome.
    fn runs<F: Future<Output = ()> + Send + 'static>(
        reruns: &Reruns,
        case: impl Fn(usize) -> F,
    ) -> (usize, Result<(), String>) {
        let count = AtomicUsize::new(0);
        let case = || case(count.fetch_add(1, Ordering::Relaxed));
        let outcome = run_with(reruns, "case", LIMIT, &case);
        (count.into_inner(), outcome)
    }

    #[test]
    fn a_safety_failure_is_final_even_if_the_machine_stalled() {
        let reruns = always_stalled();
        let unsafe_case = |_| async { std::panic::resume_unwind(Box::new("two holders at once")) };
        let (count, outcome) = runs(&reruns, unsafe_case);
        assert_eq!(count, 1);
        assert!(outcome.unwrap_err().contains("two holders at once"));
        assert_eq!(reruns.report(), "");
    }

    #[test]
    fn a_case_that_does_not_complete_is_final() {
        let reruns = always_stalled();
        let count = AtomicUsize::new(0);
        let case = || {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        };
        let outcome = run_with(&reruns, "case", SHORT, &case);
        assert_eq!((count.into_inner(), outcome), (1, Err("not complete within 20ms".to_owned())));
    }

    #[test]
    fn a_case_that_timed_out_while_the_machine_stalled_is_run_again() {
        let reruns = always_stalled();
        let (count, outcome) = runs(&reruns, async |run| match run {
            0 => within(SHORT, "a reply", std::future::pending()).await,
            1 => eventually("a condition", SHORT, async || false).await,
            _ => {}
        });
        assert_eq!((count, outcome), (3, Ok(())));
        let expected = "run again because the machine stalled: 2 of at most 3: case, case\n";
        assert_eq!(reruns.report(), expected);
    }

    #[test]
    fn a_time_out_without_a_stall_is_final() {
        // Less than a quarter of the limit.
        let reruns = Reruns::new(3, |_| Duration::from_millis(4));
        let (count, outcome) =
            runs(&reruns, async |_| within(SHORT, "a reply", std::future::pending()).await);
        assert_eq!(count, 1);
        assert!(outcome.unwrap_err().starts_with("a reply: not complete within 20ms (called at"));
    }

    #[test]
    fn re_runs_have_one_limit_for_all_cases() {
        let reruns = always_stalled();
        let slow = async |_| within(SHORT, "a reply", std::future::pending()).await;
        assert_eq!(runs(&reruns, slow).0, 4);
        let (count, outcome) = runs(&reruns, slow);
        assert!(count == 1 && outcome.is_err());
    }
}
