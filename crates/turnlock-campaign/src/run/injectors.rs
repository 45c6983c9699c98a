//! Injects faults of servers, network and workers: one or two at a time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fastrand::Rng;
use tokio::sync::{Mutex, RwLock, RwLockReadGuard, Semaphore, SemaphorePermit};
use tokio::time::sleep;
use turnlock_testkit::FaultProxy;

use crate::history::What;
use crate::recorder::Recorder;

use super::network;
use super::options::{RunOptions, SHORTEST_PAUSE, WATCHDOG_MS};
use super::shape::{Fault, Injection, Shape, guarded};
use super::workers::{self, Workers};

/// How many faults of a deployment in a row may end in an error.
const LIMIT_OF_ERRORS: u32 = 5;

/// Faults that lose permits without a lease: with their holder, or with a release that the server denies.
const LOSING_PERMITS: [&str; 2] = ["kill_worker", "acl_commands"];

/// When there is the first quiet time of a run at the latest, and how long it is to the next one.
const FIRST_QUIET: Duration = Duration::from_secs(10);
const BETWEEN_QUIETS: Duration = Duration::from_secs(50);

/// How long there is no fault of the store then: the effects of faults end, and requests and renewals follow.
const QUIET: Duration = Duration::from_millis(WATCHDOG_MS + 5_000);

/// Injects faults of servers, of the network and of workers: one of each at a time.
pub(super) struct Injectors<'a> {
    recorder: &'a Recorder,
    end: Instant,
    first_quiet: Duration,
    options: &'a RunOptions,
    network: &'a Mutex<()>,
    /// Two faults at a time.
    at_once: Semaphore,
    /// Shared by faults of the store. One who has it alone knows that there is none.
    store: RwLock<()>,
}

impl<'a> Injectors<'a> {
    pub(super) fn new(
        recorder: &'a Recorder,
        lasts: Duration,
        options: &'a RunOptions,
        network: &'a Mutex<()>,
    ) -> Self {
        let (end, first_quiet) = (Instant::now() + lasts, first_quiet(lasts));
        let (at_once, store) = (Semaphore::new(2), RwLock::default());
        Self { recorder, end, first_quiet, options, network, at_once, store }
    }

    /// Injects faults until the end. Prints which ones cannot be injected. Returns the errors of servers and of workers.
    pub(super) async fn run(
        &self,
        shape: &mut dyn Shape,
        workers: &mut Workers,
        rng: &mut Rng,
    ) -> (anyhow::Result<()>, anyhow::Result<()>) {
        let paths = shape.network();
        let [mut first, mut second, mut third] = [rng.fork(), rng.fork(), rng.fork()];
        let injecting = async {
            let (of_servers, (), of_workers) = tokio::join!(
                self.run_servers(shape, &mut first),
                self.run_network(&paths, &mut second),
                self.run_workers(workers, &mut third),
            );
            (of_servers, of_workers)
        };
        tokio::select! {
            outcome = injecting => outcome,
            never = self.keep_quiet() => match never {},
        }
    }

    /// Lets no fault of the store happen for a while, again and again: what fails then has no cause.
    async fn keep_quiet(&self) -> Infallible {
        let mut pause = self.first_quiet;
        loop {
            sleep(pause).await;
            let _alone = self.store.write().await;
            sleep(QUIET).await;
            pause = BETWEEN_QUIETS;
        }
    }

    async fn run_servers(&self, shape: &mut dyn Shape, rng: &mut Rng) -> anyhow::Result<()> {
        let (faults, missing): (Vec<_>, _) =
            shape.faults().into_iter().partition(|fault: &Fault| fault.missing.is_none());
        for Fault { name, missing } in missing {
            println!("not injected: {name}: {}", missing.unwrap_or_default());
        }
        let mut skipped: BTreeMap<_, (u32, String)> = BTreeMap::new();
        let faults: Vec<_> =
            faults.iter().map(|fault| fault.name).filter(|name| self.is_wanted(name)).collect();
        // Faults that last until the deployment is whole again.
        let (mut errors, mut without_end) = (0, Vec::new());
        let mut waiting = Vec::new();
        // A machine that is busy may let the time of a short run pass before its first fault.
        let mut end = None;
        while let Some(_turn) = self.turn_of_store(rng, end).await {
            end = Some(self.end);
            let Some(name) = next(&faults, &mut waiting, rng) else { break };
            let mut fault = Injection::new(name, rng, self.recorder);
            let outcome = guarded(shape.inject(&mut fault)).await;
            match &outcome {
                _ if !fault.has_begun() => {}
                Ok(()) => {
                    errors = 0;
                    for name in without_end.drain(..) {
                        self.recorder.record(0, What::fault(name, "", true));
                    }
                }
                Err(error) if errors < LIMIT_OF_ERRORS => {
                    errors += 1;
                    eprintln!("{name}: {error:#}");
                    if let Err(error) = guarded(shape.heal()).await {
                        eprintln!("after {name}: {error:#}");
                        without_end.push(name);
                        continue;
                    }
                }
                Err(_) => return outcome.with_context(|| format!("{name} does not end")),
            }
            if let Some(reason) = fault.end(&outcome) {
                let (times, last) = skipped.entry(name).or_default();
                (*times, *last) = (*times + 1, reason);
            }
        }
        for (name, (times, reason)) in skipped {
            println!("not injected {times} times: {name}: {reason}");
        }
        Ok(())
    }

    async fn run_network(&self, paths: &[Arc<FaultProxy>], rng: &mut Rng) {
        let faults: Vec<_> = network::FAULTS.into_iter().filter(|name| self.is_wanted(name)).collect();
        let mut waiting = Vec::new();
        if paths.is_empty() {
            return;
        }
        while let Some(_turn) = self.turn_of_store(rng, Some(self.end)).await {
            let Some(name) = next(&faults, &mut waiting, rng) else { break };
            let _alone = self.network.lock().await;
            let mut fault = Injection::new(name, rng, self.recorder);
            network::inject(paths, &mut fault).await;
            fault.end(&Ok(()));
        }
    }

    async fn run_workers(&self, workers: &mut Workers, rng: &mut Rng) -> anyhow::Result<()> {
        let faults: Vec<_> = workers::FAULTS.into_iter().filter(|name| self.is_wanted(name)).collect();
        let mut waiting = Vec::new();
        while let Some(_turn) = self.turn(rng, Some(self.end)).await {
            let Some(name) = next(&faults, &mut waiting, rng) else { break };
            let mut fault = Injection::new(name, rng, self.recorder);
            let outcome = workers.inject(&mut fault, self.recorder).await;
            fault.end(&outcome);
            outcome?;
        }
        Ok(())
    }

    fn is_wanted(&self, name: &str) -> bool {
        if LOSING_PERMITS.contains(&name) && self.options.has_unleased() {
            return false;
        }
        self.options.only.is_empty() || self.options.only.iter().any(|only| only == name)
    }

    /// Waits until the next fault of the store may begin. `None` if that is after `end`.
    async fn turn_of_store(
        &self,
        rng: &mut Rng,
        end: Option<Instant>,
    ) -> Option<(SemaphorePermit<'_>, RwLockReadGuard<'_, ()>)> {
        let turn = self.turn(rng, end).await?;
        if let Ok(shared) = self.store.try_read() {
            return Some((turn, shared));
        }
        // Workers are stopped and killed all the same.
        drop(turn);
        let shared = self.store.read().await;
        Some((self.turn(rng, end).await?, shared))
    }

    /// Waits until the next fault may begin. `None` if that is after `end`.
    async fn turn(&self, rng: &mut Rng, end: Option<Instant>) -> Option<SemaphorePermit<'_>> {
        sleep(Duration::from_millis(rng.u64(SHORTEST_PAUSE..self.options.pause))).await;
        let permit = self.at_once.acquire().await.ok()?;
        end.is_none_or(|end| Instant::now() < end).then_some(permit)
    }
}

/// Returns when there is the first quiet time of a run of this length. One that is shorter has none.
fn first_quiet(lasts: Duration) -> Duration {
    if lasts < QUIET { FIRST_QUIET } else { FIRST_QUIET.min(lasts / 3) }
}

/// Returns the next fault: each comes once, in any order, and then all of them again.
fn next(faults: &[&'static str], waiting: &mut Vec<&'static str>, rng: &mut Rng) -> Option<&'static str> {
    if waiting.is_empty() {
        waiting.extend(faults);
        rng.shuffle(waiting);
    }
    waiting.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_time_for_it_has_a_quiet_time() {
        let seconds = Duration::from_secs;
        assert_eq!([12, 18, 60, 600].map(|lasts| first_quiet(seconds(lasts))), [4, 6, 10, 10].map(seconds));
        assert!(first_quiet(seconds(6)) > seconds(6));
    }
}
