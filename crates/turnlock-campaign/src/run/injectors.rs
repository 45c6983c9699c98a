//! Injects faults of servers, network and workers: one or two at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fastrand::Rng;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::sleep;
use turnlock_testkit::FaultProxy;

use crate::recorder::Recorder;

use super::network;
use super::options::{RunOptions, SHORTEST_PAUSE};
use super::shape::{Fault, Injection, Shape, guarded};
use super::workers::{self, Workers};

/// How many faults of a deployment in a row may end in an error.
const LIMIT_OF_ERRORS: u32 = 5;

/// Injects faults of servers, of the network and of workers: one of each at a time.
pub(super) struct Injectors<'a> {
    recorder: &'a Recorder,
    end: Instant,
    options: &'a RunOptions,
    network: &'a Mutex<()>,
    /// Two faults at a time.
    at_once: Semaphore,
}

impl<'a> Injectors<'a> {
    pub(super) fn new(
        recorder: &'a Recorder,
        end: Instant,
        options: &'a RunOptions,
        network: &'a Mutex<()>,
    ) -> Self {
        Self { recorder, end, options, network, at_once: Semaphore::new(2) }
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
        let (of_servers, (), of_workers) = tokio::join!(
            self.run_servers(shape, &mut first),
            self.run_network(&paths, &mut second),
            self.run_workers(workers, &mut third),
        );
        (of_servers, of_workers)
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
        let mut errors = 0;
        let mut waiting = Vec::new();
        while let Some(_turn) = self.turn(rng).await {
            let Some(name) = next(&faults, &mut waiting, rng) else { break };
            let mut fault = Injection::new(name, rng, self.recorder);
            let outcome = guarded(shape.inject(&mut fault)).await;
            if let Some(reason) = fault.end(&outcome) {
                let (times, last) = skipped.entry(name).or_default();
                (*times, *last) = (*times + 1, reason);
                continue;
            }
            match outcome {
                Ok(()) => errors = 0,
                Err(error) if errors < LIMIT_OF_ERRORS => {
                    errors += 1;
                    eprintln!("{name}: {error:#}");
                    if let Err(error) = guarded(shape.heal()).await {
                        eprintln!("after {name}: {error:#}");
                    }
                }
                Err(error) => return Err(error).with_context(|| format!("{name} does not end")),
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
        while let Some(_turn) = self.turn(rng).await {
            let Some(name) = next(&faults, &mut waiting, rng) else { break };
            let _alone = self.network.lock().await;
            let mut fault = Injection::new(name, rng, self.recorder);
            network::inject(paths, &mut fault).await;
            fault.end(&Ok(()));
        }
    }

    async fn run_workers(&self, workers: &mut Workers, rng: &mut Rng) -> anyhow::Result<()> {
        let is_possible = |name: &&str| *name != "kill_worker" || !self.options.has_unleased();
        let faults: Vec<_> =
            workers::FAULTS.into_iter().filter(|name| self.is_wanted(name)).filter(is_possible).collect();
        let mut waiting = Vec::new();
        while let Some(_turn) = self.turn(rng).await {
            let Some(name) = next(&faults, &mut waiting, rng) else { break };
            let mut fault = Injection::new(name, rng, self.recorder);
            let outcome = workers.inject(&mut fault, self.recorder).await;
            fault.end(&outcome);
            outcome?;
        }
        Ok(())
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|only| only == name)
    }

    /// Waits until the next fault may begin. `None` at the end of the run.
    async fn turn(&self, rng: &mut Rng) -> Option<SemaphorePermit<'_>> {
        sleep(Duration::from_millis(rng.u64(SHORTEST_PAUSE..self.options.pause))).await;
        let permit = self.at_once.acquire().await.ok()?;
        (Instant::now() < self.end).then_some(permit)
    }
}

/// Returns the next fault: each comes once, in any order, and then all of them again.
fn next(faults: &[&'static str], waiting: &mut Vec<&'static str>, rng: &mut Rng) -> Option<&'static str> {
    if waiting.is_empty() {
        waiting.extend(faults);
        rng.shuffle(waiting);
    }
    waiting.pop()
}
