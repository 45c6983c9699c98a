//! What a shape of store must do for a campaign, and the fault under way.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;
use turnlock_testkit::{FaultProxy, Minority, NetworkNamespace, TimedOut};

use crate::history::What;
use crate::recorder::Recorder;

/// Which faults are injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// Those under which two holders at once are excluded
    Promised,
    /// Also those after which two holders are possible: lost data, fail-over without acknowledgement, clocks set ahead
    All,
}

/// A store under faults.
///
/// Faults have names. [`inject`](Self::inject) ends the fault that it began, so that the next one finds a whole deployment.
pub(super) trait Shape {
    /// The URL of each deployment: several for locks on a majority of them.
    fn urls(&self) -> Vec<String>;

    /// The replicas that must acknowledge a grant.
    fn replicas(&self) -> u32 {
        0
    }

    /// The faults of its servers or files.
    fn faults(&self) -> Vec<Fault>;

    /// The connections of clients. Faults of the network are injected there at the same time as those of the servers.
    fn network(&self) -> Vec<Arc<FaultProxy>> {
        Vec::new()
    }

    /// The processes whose clients are with the minority when the network is divided.
    fn minority(&self) -> Option<Minority> {
        None
    }

    /// The namespace of every third process, with the URL that leads to the store from there.
    fn namespace(&self) -> Option<(Arc<NetworkNamespace>, String)> {
        None
    }

    /// Injects one fault, and ends it.
    fn inject<'a>(&'a mut self, fault: &'a mut Injection<'_>) -> BoxFuture<'a, anyhow::Result<()>>;

    /// Ends what a fault may have left.
    fn heal(&mut self) -> BoxFuture<'_, anyhow::Result<()>>;

    /// What is still held or queued on the store.
    fn left(&self) -> BoxFuture<'_, anyhow::Result<Vec<String>>>;
}

/// Awaits what may panic: the servers of the testkit report errors that way.
pub(super) async fn guarded<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    AssertUnwindSafe(future).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.or_else(|| panic.downcast_ref::<TimedOut>().map(ToString::to_string));
        Err(anyhow::anyhow!(text.unwrap_or_else(|| "a panic".to_owned())))
    })
}

/// A kind of fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// Why it cannot be injected on this machine.
    pub(super) missing: Option<String>,
}

impl Fault {
    /// Faults that can be injected anywhere.
    pub(super) fn all(names: &[&'static str]) -> Vec<Self> {
        names.iter().map(|name| Self { name, missing: None }).collect()
    }
}

/// One fault, from its choice to its end.
pub(super) struct Injection<'a> {
    pub(super) name: &'static str,
    /// How long it lasts.
    pub(super) lasts: Duration,
    pub(super) rng: &'a mut Rng,
    recorder: &'a Recorder,
    has_begun: bool,
}

impl<'a> Injection<'a> {
    pub(super) fn new(name: &'static str, rng: &'a mut Rng, recorder: &'a Recorder) -> Self {
        let lasts = Duration::from_millis(if rng.bool() { rng.u64(10..500) } else { rng.u64(500..5_000) });
        Self { name, lasts, rng, recorder, has_begun: false }
    }

    /// Records that the fault begins. One that does not begin is not counted.
    pub(super) fn begin(&mut self, detail: &str) {
        self.has_begun = true;
        self.recorder.record(0, What::fault(self.name, &format!("{detail} {:?}", self.lasts), false));
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Lets the fault last.
    pub(super) async fn last(&self) {
        sleep(self.lasts).await;
    }

    /// Records the end. Returns why the fault did not begin.
    pub(super) fn end(self, outcome: &anyhow::Result<()>) -> Option<String> {
        let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
        if !self.has_begun {
            return Some(error.unwrap_or_else(|| "it did not begin".to_owned()));
        }
        self.recorder.record(0, What::fault(self.name, error.as_deref().unwrap_or_default(), true));
        None
    }
}
