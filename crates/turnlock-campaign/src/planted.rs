//! Plants bugs, to see that they are found.

use std::ffi::OsString;
use std::process::ExitCode;
use std::thread;

use clap::Parser as _;
use turnlock_core::planted::Bug;
use turnlock_testkit::TempDir;

use crate::{Arguments, Command, checker, run_on_servers, search};

/// How often a run on real servers may miss a bug.
const ATTEMPTS: u64 = 15;

/// What a violation says if holds overlap.
const OVERLAP: &str = " with others ";

/// The run that finds a bug of one store, and what the violation says.
fn run_of(bug: Bug) -> Option<(&'static str, &'static str)> {
    Some(match bug {
        Bug::StaysOnReplica => ("--shape single --only demotion --minutes 0.2 --pause 1000", "do not end"),
        Bug::WaitElsewhere => (
            "--shape sentinel --only fail_over_stale,stop_worker --kinds lock,fair --locks 8 --long-holds 60 --minutes 0.5 --pause 300",
            OVERLAP,
        ),
        Bug::PresenceIgnored => ("--shape file --only stop_worker --minutes 0.1", OVERLAP),
        _ => return None,
    })
}

/// Plants bugs, all or those with these names, and prints what finds each. Fails if one is not found.
pub(crate) fn find(names: &[String], seeds: u64) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        cfg!(debug_assertions),
        "this build has no switch for bugs: build it with debug assertions"
    );
    let unknown: Vec<_> = names.iter().filter(|name| Bug::named(name).is_none()).collect();
    anyhow::ensure!(unknown.is_empty(), "no such bug: {unknown:?}; docs/reliability.md has a list");
    let is_wanted = |bug: &Bug| names.is_empty() || names.contains(&format!("{bug:?}"));
    let mut missed = 0;
    println!("| bug | found by | violation |\n|---|---|---|");
    for bug in Bug::OF_ENGINE.into_iter().chain(Bug::OF_STORES).filter(is_wanted) {
        let found = match run_of(bug) {
            None => first_seed(bug, seeds).map(|(seed, violation)| (format!("seed {seed}"), violation)),
            Some((run, violation)) => find_on_servers(bug, run, violation)?,
        };
        missed += usize::from(found.is_none());
        let (by, violation) = found.unwrap_or_else(|| ("–".to_owned(), "not found".to_owned()));
        println!("| `{bug:?}` | {by} | {violation} |");
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the first seed that finds a bug, and what it finds.
pub(crate) fn first_seed(bug: Bug, seeds: u64) -> Option<(u64, String)> {
    Bug::plant(Some(bug));
    // As many at once as there are cores.
    let step = thread::available_parallelism().map_or(1, usize::from) as u64;
    let found = (1..=seeds)
        .step_by(usize::try_from(step).unwrap_or(1))
        .find_map(|from| search(from, step).failed.into_iter().next());
    Bug::plant(None);
    found
}

/// Runs workers with a bug. Returns the run that finds it, and what it finds.
///
/// A seed does not decide what happens on real servers, so there are several attempts.
fn find_on_servers(bug: Bug, run: &str, expected: &str) -> anyhow::Result<Option<(String, String)>> {
    for seed in 1..=ATTEMPTS {
        let out = TempDir::new();
        let run = format!("run {run} --seed {seed}");
        let words = ["campaign"].into_iter().chain(run.split(' ')).map(OsString::from);
        let words = words.chain(["--plant".into(), format!("{bug:?}").into()]);
        let words = words.chain(["--out".into(), out.path().into()]);
        let Command::Run(options) = Arguments::try_parse_from(words)?.command else {
            anyhow::bail!("not a run: {run}");
        };
        let violations = match run_on_servers(&options) {
            Ok(events) => checker::check(&events).violations,
            // The servers may not recover, and then holds that overlap are in the error.
            Err(error) => vec![format!("{error:#}")],
        };
        if let Some(violation) = violations.iter().find(|violation| violation.contains(expected)) {
            return Ok(Some((format!("`{run}`"), violation.clone())));
        }
        eprintln!("{run}: not found: {violations:?}");
    }
    Ok(None)
}
