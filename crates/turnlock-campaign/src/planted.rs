//! Plants bugs, to see that they are found.

use std::ffi::OsString;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser as _;
use turnlock_core::planted::Bug;
use turnlock_testkit::TempDir;

use crate::{Arguments, Command, checker, history, run_on_servers, search};

/// How often a run on real servers may miss a bug.
const ATTEMPTS: u64 = 5;

/// How long seeds, or runs on real servers, are tried for a bug. One that has begun comes to its end.
const LIMIT: Duration = Duration::from_secs(120);

/// How long tasks may take to end in a run on real servers: some wait for ever because of a bug.
const LAST_TURNS: &str = "20";

/// The rule that a run without a bug may break if the machine is busy.
const STUCK: &str = "tasks that do not end";

/// What the documentation tells of a bug.
pub(crate) struct Row {
    /// The seed that finds it, if the simulation does.
    pub(crate) seed: Option<u64>,
    /// The rule that it breaks. Violations begin with it.
    pub(crate) rule: &'static str,
}

impl Row {
    pub(crate) fn of(bug: Bug) -> Option<Self> {
        let page = include_str!("../../../docs/reliability.md");
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("| `{bug:?}` | ")))?;
        let columns: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        let [seed, _, rule] = columns[..] else { return None };
        Some(Self { seed: seed.parse().ok(), rule })
    }
}

/// The run that finds a bug of one store.
fn run_of(bug: Bug) -> Option<&'static str> {
    Some(match bug {
        // Time for one demotion. After two of them, the connections that stay are at the primary again.
        Bug::StaysOnReplica => "--shape single --only demotion --minutes 0.006 --pause 300",
        Bug::WaitElsewhere => {
            "--shape sentinel --server valkey-9 --only partition_clients_last --kinds lock --tasks 8 --long-holds 100 --nested 0 --minutes 0.1 --pause 300"
        }
        Bug::PresenceIgnored => "--shape file --only stop_worker --minutes 0.1",
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
    println!("| bug | found by | time | violation |\n|---|---|--:|---|");
    for bug in Bug::OF_ENGINE.into_iter().chain(Bug::OF_STORES).filter(is_wanted) {
        let row = Row::of(bug).with_context(|| format!("docs/reliability.md has no {bug:?}"))?;
        let started = Instant::now();
        let found = match run_of(bug) {
            None => find_seed(bug, &row, seeds, LIMIT)
                .map(|(seed, violation)| (format!("seed {seed}"), violation)),
            Some(run) => find_on_servers(bug, row.rule, run)?,
        };
        missed += usize::from(found.is_none());
        let (by, violation) = found.unwrap_or_else(|| ("–".to_owned(), "not found".to_owned()));
        println!("| `{bug:?}` | {by} | {:.1} s | {violation} |", started.elapsed().as_secs_f64());
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a seed that finds a bug by the rule of its row, and what it finds.
///
/// That is the seed of the row, or the first one if a change of the engine has changed the histories.
pub(crate) fn find_seed(bug: Bug, row: &Row, seeds: u64, limit: Duration) -> Option<(u64, String)> {
    let started = Instant::now();
    let find = |from, count| {
        search(from, count).failed.into_iter().find(|(_, violation)| violation.starts_with(row.rule))
    };
    // As many at once as there are cores.
    let step = thread::available_parallelism().map_or(1, usize::from);
    Bug::plant(Some(bug));
    let found = row.seed.and_then(|seed| find(seed, 1)).or_else(|| {
        let starts = (1..=seeds).step_by(step).take_while(|_| started.elapsed() < limit);
        starts.into_iter().find_map(|from| find(from, step as u64))
    });
    Bug::plant(None);
    found
}

/// Runs workers with a bug. Returns the run that finds it by a rule, and what it finds.
///
/// A seed does not decide what happens on real servers, so there are several attempts.
fn find_on_servers(bug: Bug, rule: &str, run: &str) -> anyhow::Result<Option<(String, String)>> {
    let started = Instant::now();
    for seed in (1..=ATTEMPTS).take_while(|_| started.elapsed() < LIMIT) {
        let run = format!("run {run} --seed {seed}");
        let violations = violations_of(&run, Some(bug))?;
        let found = violations.iter().find(|violation| violation.starts_with(rule));
        match found {
            Some(_) if rule == STUCK && !violations_of(&run, None)?.is_empty() => {
                eprintln!("{run}: not without the bug either");
            }
            Some(violation) => return Ok(Some((format!("`{run}`"), violation.clone()))),
            None => eprintln!("{run}: not found: {violations:?}"),
        }
    }
    Ok(None)
}

/// Returns the error of a run on real servers, if it has one, and what breaks a rule in it.
fn violations_of(run: &str, bug: Option<Bug>) -> anyhow::Result<Vec<String>> {
    let out = TempDir::new();
    let words = ["campaign"].into_iter().chain(run.split(' ')).map(OsString::from);
    let words = words.chain(["--last-turns", LAST_TURNS].map(OsString::from));
    let words = words.chain(bug.into_iter().flat_map(|bug| ["--plant".into(), format!("{bug:?}").into()]));
    let words = words.chain(["--out".into(), out.path().into()]);
    let Command::Run(options) = Arguments::try_parse_from(words)?.command else {
        anyhow::bail!("not a run: {run}");
    };
    Ok(match run_on_servers(&options) {
        Ok(events) => checker::check(&events).violations,
        // If the servers do not recover, the history is written all the same.
        Err(error) => {
            let events = history::read_file(&out.path().join("history.jsonl")).unwrap_or_default();
            let violations = checker::check_unfinished(&events).violations;
            [format!("{error:#}")].into_iter().chain(violations).collect()
        }
    })
}
