use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use turnlock_core::planted::Bug;
use turnlock_testkit::TempDir;

use super::*;

/// A planted bug is in the whole process, and a search uses all cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The number of seeds that CI runs. The same each time.
const FIXED_SEEDS: u64 = 60;

/// The number of seeds that differ from commit to commit.
const NEW_SEEDS: u64 = 20;

/// Runs these seeds, and fails with those that break a rule.
fn assert_none_fails(from: u64, seeds: u64) {
    let Sums { total, failed } = search(from, seeds);
    assert_eq!(failed, [], "to see one: ./campaign sim --seed NUMBER");
    println!("{} acquired, {} lost with {} seeds from {from}", total.acquired, total.lost, seeds);
    assert!(total.acquired > 50 * usize::try_from(seeds).expect("few"), "{}", total.acquired);
}

#[test]
fn no_seed_of_the_fixed_set_breaks_a_rule() {
    let _alone = ONE_AT_A_TIME.lock();
    fix_hash_keys();
    assert_none_fails(1, FIXED_SEEDS);
}

#[test]
fn no_seed_of_this_commit_breaks_a_rule() {
    let _alone = ONE_AT_A_TIME.lock();
    fix_hash_keys();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(repository).output();
    let commit = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    // Without a repository, as in a published package, the seeds are those of no commit.
    let from = u64::from_str_radix(commit.get(..12).unwrap_or("0"), 16).unwrap_or(0) + 1_000_000;
    assert_none_fails(from, NEW_SEEDS);
}

#[test]
fn a_seed_has_the_same_history_each_time() {
    let _alone = ONE_AT_A_TIME.lock();
    fix_hash_keys();
    // The later ones have several locks at once, a majority of servers, and explicit owners.
    for seed in [1, 2, 3, 8, 317, 618] {
        let run = || sim::run(seed).expect("a runtime").iter().map(ToString::to_string).collect::<Vec<_>>();
        let (one, two) = (run(), run());
        assert!(one.len() > 100, "{}", one.len());
        assert_eq!(one.iter().zip(&two).position(|(one, two)| one != two), None, "seed {seed}");
        assert_eq!(one.len(), two.len());
    }
}

#[test]
fn a_search_writes_the_history_of_the_smallest_seed_that_fails() {
    let _alone = ONE_AT_A_TIME.lock();
    fix_hash_keys();
    let directory = TempDir::new();
    let path = directory.path().join("new").join("history");
    Bug::plant(Some(Bug::ReusedOwner));
    let code = search_and_report(1, 2, Some(path.clone()));
    Bug::plant(None);
    assert_eq!(code.expect("it is written"), ExitCode::FAILURE);
    let events = history::read_file(&path).expect("a history");
    assert!(matches!(events[0].what, history::What::Run { seed: 1, .. }));
    assert!(!checker::check(&events).violations.is_empty());
}

#[test]
fn every_planted_bug_is_found() {
    let _alone = ONE_AT_A_TIME.lock();
    fix_hash_keys();
    let seeds: Vec<_> = Bug::OF_ENGINE.into_iter().map(|bug| (bug, seed_of(bug))).collect();
    let missed: Vec<_> = seeds.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
    // Without a bug, nothing is found. The other test runs the seeds of the fixed set.
    let others: BTreeSet<_> =
        seeds.iter().filter_map(|(_, seed)| *seed).filter(|seed| *seed > FIXED_SEEDS).collect();
    for seed in others {
        assert_eq!(judge(seed).violations, Vec::<String>::new(), "seed {seed}");
    }
}

/// Returns the seed that finds a bug by the rule that the documentation names.
fn seed_of(bug: Bug) -> Option<u64> {
    let row = planted::Row::of(bug).expect("a row of the table");
    let (seed, _) = planted::find_seed(bug, &row, 600, Duration::MAX)?;
    if row.seed != Some(seed) {
        println!("{bug:?}: the table says seed {:?}, but now it is {seed}", row.seed);
    }
    Some(seed)
}
