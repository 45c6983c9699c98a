use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Trial};

use super::fixture::{Fixture, StoreUnderTest};
use super::kind::Kind;
use super::{client_identity, deadlocks, find, hand_over, lock, primitives, waits};

/// Time limit of one case, including its wait for [`Fixture::rounds`]. A case that hangs fails.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Concurrent cases per core, unless the command line sets the number of threads.
///
/// Most cases mostly wait. With more of them, wake-ups come late for lack of a processor.
const CASES_PER_CORE: usize = 16;

/// What a store may lack. The suite has no case that needs it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// The store has a [`Directory`](turnlock_store::Directory).
    Directory,
    /// The test can [delete data](StoreUnderTest::lose_data) behind the back of its clients.
    DataLoss,
    /// The test can [suppress messages](StoreUnderTest::mute_client) about releases.
    LostMessages,
    /// The store serves this kind of primitive.
    Kind(Kind),
}

/// A named case of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The last part of the name of its trial.
    pub name: &'static str,
    /// The case itself.
    pub run: fn(Fixture) -> CaseFuture,
    /// What the store must have, besides the kind of the case.
    pub needs: &'static [Feature],
}

/// A case under way.
pub type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a list of cases from `async fn(Fixture)` functions, each with the features that it needs.
macro_rules! cases {
    ($($case:ident $(needs $($feature:ident $(($kind:ident))?)+)?),* $(,)?) => {
        &[$($crate::conformance::Case {
            name: stringify!($case),
            run: |fixture| Box::pin($case(fixture)),
            needs: &[$($(
                $crate::conformance::Feature::$feature $(($crate::conformance::Kind::$kind))?
            ),+)?],
        }),*]
    };
}
pub(crate) use cases;

/// Returns the arguments of a test program, with the number of concurrent cases that suits the machine.
pub fn arguments() -> Arguments {
    let mut arguments = Arguments::from_args();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(CASES_PER_CORE * cores);
    arguments
}

/// The conformance suite on one store.
#[derive(Clone)]
pub struct Suite {
    name: String,
    start: Start,
    missing: Option<String>,
    absent: Vec<Feature>,
    common_kinds: &'static [Kind],
}

/// Starts the store of one case.
type Start = Arc<dyn Fn() -> BoxFuture<'static, Box<dyn StoreUnderTest>> + Send + Sync>;

impl Suite {
    /// Creates the suite for a store. `start` makes the store of one case, or shares one.
    ///
    /// The names of trials begin with `name`.
    pub fn new<F, S>(name: impl Into<String>, start: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = S> + Send + 'static,
        S: StoreUnderTest,
    {
        let start: Start = Arc::new(move || {
            let started = start();
            Box::pin(async { Box::new(started.await) as Box<dyn StoreUnderTest> })
        });
        Self { name: name.into(), start, missing: None, absent: Vec::new(), common_kinds: &Kind::MUTEXES }
    }

    /// Declares that the store lacks a feature. The trials that need it are not listed.
    #[must_use]
    pub fn without(mut self, feature: Feature) -> Self {
        self.absent.push(feature);
        self
    }

    /// Runs the cases that are the same for every kind of lock for these kinds only, instead of all.
    ///
    /// For a second way to a store, on which they run for all kinds.
    #[must_use]
    pub fn common_cases_for(mut self, kinds: &'static [Kind]) -> Self {
        self.common_kinds = kinds;
        self
    }

    /// Sets the reason why the store cannot run here, if any: see [`trial`](crate::trial).
    #[must_use]
    pub fn missing(mut self, reason: Option<String>) -> Self {
        self.missing = reason;
        self
    }

    /// Returns the trials, and prints which features were declared absent.
    pub fn trials(&self) -> Vec<Trial> {
        if !self.absent.is_empty() {
            eprintln!("{}: cases that need these are left out: {:?}", self.name, self.absent);
        }
        self.cases().into_iter().map(|(group, kind, case)| self.trial(group, kind, case)).collect()
    }

    /// Runs the suite as a test program, and exits.
    pub fn main(self) -> ! {
        crate::run(&arguments(), self.trials()).exit()
    }

    /// Returns the cases for this store: the group and the kind that each is for.
    fn cases(&self) -> Vec<(&'static str, Kind, Case)> {
        let mut all = Vec::new();
        let is_common = |kind: &Kind| self.common_kinds.contains(kind);
        for kind in Kind::ALL.into_iter().filter(is_common) {
            all.extend(lock::cases(kind).map(|case| (kind.name(), kind, case)));
        }
        for (kind, cases) in primitives::CASES {
            all.extend(cases.iter().map(|case| (kind.name(), *kind, *case)));
        }
        for (group, cases) in [
            ("find", find::CASES),
            ("hand_over", &[hand_over::CASES]),
            ("client_identity", &[client_identity::CASES]),
            ("waits", &[waits::CASES, deadlocks::CASES]),
        ] {
            all.extend(cases.iter().copied().flatten().map(|case| (group, Kind::Lock, *case)));
        }
        for kind in Kind::MUTEXES.into_iter().filter(is_common) {
            all.extend(primitives::mutex_cases(kind).map(|case| (kind.name(), kind, case)));
        }
        all.retain(|(group, kind, case)| {
            let directory =
                ["find", "client_identity", "waits"].contains(group).then_some(Feature::Directory);
            let of_kind = Feature::Kind(*kind);
            case.needs.iter().chain([&of_kind]).chain(&directory).all(|need| !self.absent.contains(need))
        });
        all
    }

    fn trial(&self, group: &str, kind: Kind, case: Case) -> Trial {
        let title = format!("{}::{group}::{}", self.name, case.name);
        let start = Arc::clone(&self.start);
        crate::trial(&title, self.missing.clone(), LIMIT, move || {
            let store = start();
            async move { (case.run)(Fixture::new(store.await, kind)).await }
        })
    }
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suite")
            .field("name", &self.name)
            .field("absent", &self.absent)
            .finish_non_exhaustive()
    }
}
