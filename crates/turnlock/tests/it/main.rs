//! The tests of turnlock against real stores: every case is a trial by name, so that one that cannot run here says
//! *ignored* and why. With `CI` set, what cannot run has failed instead.

#![allow(clippy::unwrap_used, reason = "a test that finds nothing to unwrap has failed")]

mod acl;
mod by_name;
mod cancellation;
mod child;
mod clock_steps;
mod conformance;
mod doctor;
mod fail_over;
mod family;
mod faults;
mod file_faults;
mod file_machine;
mod file_store;
mod find;
mod ground;
mod half_open;
mod hand_over;
mod held;
mod interop;
mod late_delivery;
mod long_ttl;
mod network_faults;
mod outage;
mod paused;
mod red_lock;
mod replicas;
mod revoked;
mod rig;
mod secrets;
mod server_clock;
mod set_up;
mod store;
mod tls;
mod told;
mod versions;
mod who;
mod wire;

use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use rig::{Kind, Rig};
use store::Store;
use turnlock_testkit::RedisServer;

/// How long one case may take, with its wait for others that keep processors busy: a hang is a failure, not a wait.
const LIMIT: Duration = Duration::from_secs(300);

/// What the cases for every store run on.
const STORES: [Store; 11] = [
    Store::Memory,
    Store::File,
    Store::Redis,
    // A new store is one line here.
    Store::Replica,
    Store::Sentinel,
    Store::Cluster,
    Store::Tls,
    Store::Acl,
    Store::Redis62,
    Store::Valkey9,
    Store::ValkeyCluster,
];

/// A case, on whatever store it is given.
pub(crate) type Case = (&'static str, fn(Rig) -> CaseFuture);
pub(crate) type CaseFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names an `async fn(Rig)` as a case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |rig| Box::pin($case(rig)))),*] };
}
pub(crate) use cases;

fn main() {
    if child::is_child() {
        return child::main();
    }
    // These first: they wait most of the time, and longest.
    let mut trials = fail_over::trials();
    for case in late_delivery::LONG_CASES {
        trials.push(trial(Store::Redis, Kind::Lock, *case, Store::Redis.missing()));
    }
    trials.extend(STORES.into_iter().flat_map(store_trials));
    trials.extend(Store::SERVERS.into_iter().flat_map(server_trials));
    trials.extend(fault_trials());
    trials.extend(outage::trials());
    trials.extend(replicas::trials());
    for case in [file_faults::CASES, file_machine::CASES, outage::CASES, outage::KIND_CASES].concat() {
        trials.push(trial(Store::File, Kind::Lock, case, None));
    }
    trials.extend(acl::trials(Store::Redis.missing().as_deref()));
    trials.extend(doctor::trials(Store::Redis.missing().as_deref()));
    trials.extend(by_name::trials());
    trials.extend(tls::trials());
    trials.extend(versions::trials());
    trials.push(secrets::trial());
    let mut arguments = Arguments::from_args();
    // Most cases wait most of the time; with more than that, wake-ups are late for want of a processor.
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(CASES_A_CORE * cores);
    trials.extend(interop::trials(&arguments));
    let conclusion = turnlock_testkit::run(&arguments, trials);
    interop::close();
    Store::close_all();
    conclusion.exit();
}

/// The conformance suite on one store.
fn store_trials(store: Store) -> Vec<Trial> {
    let missing = store.missing();
    let mut trials = Vec::new();
    for kind in Kind::ALL {
        for case in conformance::cases(kind).chain(cancellation::cases(kind)) {
            trials.push(trial(store, kind, case, missing.clone()));
        }
    }
    for (kind, cases) in family::CASES {
        trials.extend(cases.iter().map(|case| trial(store, *kind, *case, missing.clone())));
    }
    for (about, cases) in
        [("find", &find::CASES.concat()[..]), ("hand_over", hand_over::CASES), ("who", who::CASES)]
    {
        trials.extend(cases.iter().map(|case| trial_about(about, store, Kind::Lock, *case, missing.clone())));
    }
    for kind in Kind::MUTEXES {
        trials.extend(family::mutex_cases(kind).map(|case| trial(store, kind, case, missing.clone())));
    }
    trials
}

/// The cases that need a server to themselves, on one version of the server.
fn server_trials(store: Store) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kind, cases) in family::REDIS_CASES {
        trials.extend(cases.iter().map(|case| trial_alone(kind.name(), store, *kind, *case)));
    }
    for (about, cases) in [
        ("find", find::REDIS_CASES),
        ("hand_over", hand_over::REDIS_CASES),
        ("who", who::REDIS_CASES),
        (Kind::Lock.name(), wire::CASES),
        (Kind::Lock.name(), faults::CASES),
        (Kind::Lock.name(), revoked::CASES),
    ] {
        trials.extend(cases.iter().map(|case| trial_alone(about, store, Kind::Lock, *case)));
    }
    // Those that are renewed in ways of their own.
    for kind in [Kind::Lock, Kind::Plain, Kind::Read, Kind::Write, Kind::Permits] {
        let cases = revoked::KIND_CASES.iter();
        trials.extend(cases.map(|case| trial_alone(kind.name(), store, kind, *case)));
    }
    trials
}

/// The cases in which a server, its network or its clock fails, on the installed Redis.
fn fault_trials() -> Vec<Trial> {
    use Kind::{Fair, Fenced, Lock, Permits, Plain, Read, Spin, Write};
    let missing = Store::Redis.missing();
    let mut trials = Vec::new();
    for kind in [Fair, Fenced, Read, Write, Plain] {
        for case in faults::kind_cases(kind).chain(network_faults::kind_cases(kind)) {
            trials.push(trial(Store::Redis, kind, case, missing.clone()));
        }
    }
    let of_kinds: [(&[Kind], &[Case]); 5] = [
        (&[Lock, Fair, Fenced, Spin, Read, Write, Plain], outage::KIND_CASES),
        (&[Lock, Fair, Fenced, Spin, Read, Write, Plain], outage::SERVER_KIND_CASES),
        (&[Lock, Fair, Fenced, Read, Write, Plain], late_delivery::CASES),
        (&[Lock, Fair, Fenced, Read, Write, Plain, Permits], paused::CASES),
        (&[Lock, Fair, Fenced, Spin, Plain, Read, Write], long_ttl::KIND_CASES),
    ];
    for (kinds, cases) in of_kinds {
        for kind in kinds {
            trials.extend(cases.iter().map(|case| trial(Store::Redis, *kind, *case, missing.clone())));
        }
    }
    for cases in [
        network_faults::CASES,
        outage::CASES,
        outage::NETWORK_CASES,
        child::CASES,
        told::CASES,
        red_lock::CASES,
        long_ttl::CASES,
    ] {
        trials.extend(cases.iter().map(|case| trial(Store::Redis, Lock, *case, missing.clone())));
    }
    let no_clock = missing.or_else(RedisServer::clock_shift_missing);
    for (kind, cases) in
        [&[(Lock, server_clock::CASES), (Lock, clock_steps::CASES)], family::CLOCK_CASES].concat()
    {
        trials.extend(cases.iter().map(|case| trial(Store::Redis, kind, *case, no_clock.clone())));
    }
    trials
}

/// A case on a store, or why it cannot be.
fn trial(store: Store, kind: Kind, case: Case, missing: Option<String>) -> Trial {
    trial_about(kind.name(), store, kind, case, missing)
}

/// The same for a case that is about something else than its kind.
fn trial_about(about: &str, store: Store, kind: Kind, (name, case): Case, missing: Option<String>) -> Trial {
    let title = format!("{}::{about}::{name}", store.name());
    trial_of(&title, missing, move || async move { case(Rig::new(store, kind).await).await })
}

/// A case with a server to itself.
fn trial_alone(about: &str, store: Store, kind: Kind, (name, case): Case) -> Trial {
    let title = format!("{}::{about}::{name}", store.name());
    trial_of(&title, store.missing(), move || async move { case(Rig::alone(store, kind).await).await })
}

/// A trial that runs to its end within the limit, or why it cannot be.
pub(crate) fn trial_of<C, F>(title: &str, missing: Option<String>, case: C) -> Trial
where
    C: Fn() -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    turnlock_testkit::trial(title, missing, LIMIT, case)
}

/// How many cases run at a time, unless the command line says so.
const CASES_A_CORE: usize = 6;
