//! Integration tests against real stores. Each case is a libtest-mimic trial.
//!
//! A trial whose tools are missing is ignored, with the reason in its name. With `CI` set it fails instead.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod acl;
mod child;
mod client_identity;
mod clock_steps;
mod deadlock;
mod doctor;
mod fail_over;
mod file_faults;
mod file_host;
mod file_log;
mod file_store;
mod find;
mod fixture;
mod half_open;
mod hand_over;
mod interop;
mod late_delivery;
mod long_ttl;
mod network_faults;
mod outage;
mod paused;
mod primitives;
mod red_lock;
mod replicas;
mod resource;
mod revoked;
mod secrets;
mod server_clock;
mod server_errors;
mod server_faults;
mod set_up;
mod store_kind;
mod test_store;
mod tls;
mod tracing_events;
mod versions;
mod wire;

use fixture::{Fixture, Kind};
use libtest_mimic::{Arguments, Trial};
use store_kind::StoreKind;
use turnlock_testkit::RedisServer;
use turnlock_testkit::conformance::{self, LIMIT, Suite};

/// The stores that the conformance suite runs on.
const STORES: [StoreKind; 11] = [
    StoreKind::Memory,
    StoreKind::File,
    StoreKind::Redis,
    // Add a new store here.
    StoreKind::Replica,
    StoreKind::Sentinel,
    StoreKind::Cluster,
    StoreKind::Tls,
    StoreKind::Acl,
    StoreKind::Redis62,
    StoreKind::Valkey9,
    StoreKind::ValkeyCluster,
];

/// A named case that runs on the store of its fixture.
pub(crate) type Case = (&'static str, fn(Fixture) -> CaseFuture);
pub(crate) type CaseFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a list of cases from `async fn(Fixture)` functions.
macro_rules! cases {
    ($($case:ident),* $(,)?) => { &[$((stringify!($case), |fixture| Box::pin($case(fixture)))),*] };
}
pub(crate) use cases;

fn main() {
    if child::is_child() {
        return child::main();
    }
    // First, because they take longest and mostly wait.
    let mut trials = fail_over::trials();
    for case in late_delivery::LONG_CASES {
        trials.push(trial(StoreKind::Redis, Kind::Lock, *case, StoreKind::Redis.missing()));
    }
    let suites = STORES.into_iter().flat_map(suite_trials).collect();
    let arguments = conformance::arguments();
    trials.extend(spread(other_trials(&arguments), suites));
    let conclusion = turnlock_testkit::run(&arguments, trials);
    interop::close();
    StoreKind::close_all();
    conclusion.exit();
}

/// Returns `trials` with the cases of `waiting` at equal distances: they mostly wait, and others use the processors meanwhile.
fn spread(waiting: Vec<Trial>, trials: Vec<Trial>) -> Vec<Trial> {
    let distance = trials.len() / waiting.len().max(1) + 1;
    let mut waiting = waiting.into_iter();
    let mut all = Vec::new();
    for (index, trial) in trials.into_iter().enumerate() {
        if index % distance == 0 {
            all.extend(waiting.next());
        }
        all.push(trial);
    }
    all.extend(waiting);
    all
}

/// Returns all cases beside the conformance suite.
fn other_trials(arguments: &Arguments) -> Vec<Trial> {
    let mut trials = interop::trials(arguments);
    trials.extend(StoreKind::SERVERS.into_iter().flat_map(server_trials));
    trials.extend(fault_trials());
    trials.extend(outage::trials());
    trials.extend(tracing_events::trials());
    trials.extend(replicas::trials());
    for case in
        [file_faults::CASES, file_host::CASES, file_log::CASES, outage::CASES, outage::KIND_CASES].concat()
    {
        trials.push(trial(StoreKind::File, Kind::Lock, case, None));
    }
    for store in [StoreKind::File, StoreKind::Redis, StoreKind::Cluster] {
        let cases = deadlock::CASES.iter();
        trials.extend(cases.map(|case| trial_in("waits", store, Kind::Lock, *case, store.missing())));
    }
    trials.extend(acl::trials(StoreKind::Redis.missing().as_deref()));
    trials.extend(doctor::trials(StoreKind::Redis.missing().as_deref()));
    trials.extend(server_errors::trials());
    trials.extend(tls::trials());
    trials.extend(versions::trials());
    trials.push(secrets::trial());
    trials
}

/// Returns the conformance suite on one store.
fn suite_trials(store: StoreKind) -> Vec<Trial> {
    let start = move || async move { store.start_or_share().await };
    let suite = Suite::new(store.name(), start).missing(store.missing());
    // Other servers, and other ways to servers: these cases run for all kinds as `redis` and `cluster`.
    match store {
        StoreKind::Replica
        | StoreKind::Sentinel
        | StoreKind::Tls
        | StoreKind::Acl
        | StoreKind::Redis62
        | StoreKind::Valkey9
        | StoreKind::ValkeyCluster => suite.common_cases_for(&[Kind::Lock, Kind::Fair]).trials(),
        _ => suite.trials(),
    }
}

/// Returns the cases that need their own server, on one server program.
fn server_trials(store: StoreKind) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (kind, cases) in primitives::CASES {
        trials.extend(cases.iter().map(|case| trial_with_own_server(kind.name(), store, *kind, *case)));
    }
    for (group, cases) in [
        ("find", find::CASES),
        ("hand_over", hand_over::CASES),
        ("client_identity", client_identity::CASES),
        (Kind::Lock.name(), wire::CASES),
        (Kind::Lock.name(), server_faults::CASES),
        (Kind::Lock.name(), revoked::CASES),
    ] {
        trials.extend(cases.iter().map(|case| trial_with_own_server(group, store, Kind::Lock, *case)));
    }
    // The kinds that are renewed in different ways.
    for kind in [Kind::Lock, Kind::Plain, Kind::Read, Kind::Write, Kind::Permits] {
        let cases = revoked::KIND_CASES.iter();
        trials.extend(cases.map(|case| trial_with_own_server(kind.name(), store, kind, *case)));
    }
    trials
}

/// Returns the cases of faults of a server, its network or its clock, on the installed Redis.
fn fault_trials() -> Vec<Trial> {
    use Kind::{Fair, Fenced, Lock, Permits, Plain, Read, Spin, Write};
    let missing = StoreKind::Redis.missing();
    let mut trials = Vec::new();
    for kind in [Fair, Fenced, Read, Write, Plain] {
        for case in server_faults::kind_cases(kind).chain(network_faults::kind_cases(kind)) {
            trials.push(trial(StoreKind::Redis, kind, case, missing.clone()));
        }
    }
    let cases_of_kinds: [(&[Kind], &[Case]); 5] = [
        (&[Lock, Fair, Fenced, Spin, Read, Write, Plain], outage::KIND_CASES),
        (&[Lock, Fair, Fenced, Spin, Read, Write, Plain], outage::SERVER_KIND_CASES),
        (&[Lock, Fair, Fenced, Read, Write, Plain], late_delivery::CASES),
        (&[Lock, Fair, Fenced, Read, Write, Plain, Permits], paused::CASES),
        (&[Lock, Fair, Fenced, Spin, Plain, Read, Write], long_ttl::KIND_CASES),
    ];
    for (kinds, cases) in cases_of_kinds {
        for kind in kinds {
            trials.extend(cases.iter().map(|case| trial(StoreKind::Redis, *kind, *case, missing.clone())));
        }
    }
    for cases in [
        network_faults::CASES,
        outage::CASES,
        outage::NETWORK_CASES,
        child::CASES,
        tracing_events::CASES,
        red_lock::CASES,
        long_ttl::CASES,
    ] {
        trials.extend(cases.iter().map(|case| trial(StoreKind::Redis, Lock, *case, missing.clone())));
    }
    let missing_clock = missing.or_else(RedisServer::clock_shift_missing);
    for (kind, cases) in
        [&[(Lock, server_clock::CASES), (Lock, clock_steps::CASES)], primitives::CLOCK_CASES].concat()
    {
        trials.extend(cases.iter().map(|case| trial(StoreKind::Redis, kind, *case, missing_clock.clone())));
    }
    trials
}

/// Makes a trial in the group of its kind. `missing` is the reason why it cannot run.
fn trial(store: StoreKind, kind: Kind, case: Case, missing: Option<String>) -> Trial {
    trial_in(kind.name(), store, kind, case, missing)
}

/// Makes a trial in the named group.
fn trial_in(group: &str, store: StoreKind, kind: Kind, (name, case): Case, missing: Option<String>) -> Trial {
    let title = format!("{}::{group}::{name}", store.name());
    trial_of(&title, missing, move || async move { case(Fixture::new(store, kind).await).await })
}

/// Makes a trial whose fixture has its own server.
fn trial_with_own_server(group: &str, store: StoreKind, kind: Kind, (name, case): Case) -> Trial {
    let title = format!("{}::{group}::{name}", store.name());
    trial_of(&title, store.missing(), move || async move {
        case(Fixture::with_own_server(store, kind).await).await;
    })
}

/// Makes a trial with [`LIMIT`]. `missing` is the reason why it cannot run.
pub(crate) fn trial_of<C, F>(title: &str, missing: Option<String>, case: C) -> Trial
where
    C: Fn() -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    turnlock_testkit::trial(title, missing, LIMIT, case)
}
