//! Injects the faults of a plan.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::plan::Fault;
use super::processes::Processes;
use super::world::{Denial, World, ms};
use crate::history::{ProcessState, What};

/// The longest time for which a process is stopped, in milliseconds.
const LONGEST_STOP_MS: u64 = 15_000;

/// Injects one fault after the other.
pub(super) struct Nemesis {
    pub(super) worlds: Vec<Arc<World>>,
    pub(super) processes: Arc<Processes>,
    pub(super) rng: Rng,
    /// A permit for each fault under way.
    pub(super) at_once: Arc<Semaphore>,
    /// The faults of servers and connections under way.
    pub(super) active: Arc<Mutex<HashSet<Place>>>,
}

/// Where a fault is: the deployment and, if one connection has it, its number.
pub(super) type Place = (Fault, usize, Option<usize>);

/// How long there is no fault in a quiet time, besides a lease: the effects of faults end, and waiters get their locks.
const QUIET: Duration = Duration::from_secs(10);

/// Lets no fault happen for a while, again and again, until the task is aborted.
pub(super) async fn keep_quiet(at_once: Arc<Semaphore>, lease_ms: u64, mut rng: Rng) {
    loop {
        sleep(ms(rng.u64(10_000..60_000))).await;
        // Fair: no fault begins before this.
        let _all = at_once.acquire_many(2).await;
        sleep(ms(lease_ms) + QUIET).await;
    }
}

impl Nemesis {
    /// Injects faults until the task is aborted.
    pub(super) async fn run(mut self, faults: Vec<Fault>, calm_ms: u64) {
        while let Some(fault) = self.rng.choice(&faults).copied() {
            sleep(ms(self.rng.u64(1..=calm_ms))).await;
            let at_once = Arc::clone(&self.at_once);
            let _turn = at_once.acquire().await;
            self.inject(fault).await;
        }
    }

    fn record(&self, fault: Fault, detail: &str, ends: bool) {
        self.processes.record(0, What::fault(&fault.name(), detail, ends));
    }

    /// Injects a fault, and ends it.
    async fn inject(&mut self, fault: Fault) {
        let lasts = ms(if self.rng.bool() { self.rng.u64(..300) } else { self.rng.u64(..8_000) });
        let deployment = self.rng.usize(..self.worlds.len());
        let links = self.worlds[deployment].live_links();
        let Some(link) = self.rng.choice(&links).copied() else { return };
        if matches!(fault, Fault::Stop | Fault::Kill | Fault::Shutdown) {
            return self.disturb_process(fault).await;
        }
        // The end of one of two would end both.
        let place = (fault.changed_as(), deployment, (fault == Fault::Denied).then_some(link));
        if !self.active.lock().insert(place) {
            return;
        }
        self.change(fault, lasts, deployment, (link, links)).await;
        self.active.lock().remove(&place);
    }

    /// Injects a fault of a server or of a connection, and ends it.
    ///
    /// It concerns one connection, or some of several.
    async fn change(
        &mut self,
        fault: Fault,
        lasts: Duration,
        deployment: usize,
        (link, links): (usize, Vec<usize>),
    ) {
        let world = Arc::clone(&self.worlds[deployment]);
        // Each process has one link to each deployment, with its number less one.
        let process = format!("process {}", link + 1);
        let about = if matches!(fault, Fault::Reset | Fault::Late | Fault::Denied) { &*process } else { "" };
        self.record(fault, format!("{about} {lasts:?}").trim_start(), false);
        match fault {
            Fault::Reset => world.reset(link),
            Fault::Late => {
                // Sometimes later than any lease and any retry.
                let by = if self.rng.u8(..4) == 0 { ms(self.rng.u64(60_000..80_000)) } else { lasts };
                world.delay_requests(link, by);
            }
            Fault::BlackHole => {
                world.set_black_hole(Some(lasts));
                sleep(lasts).await;
                world.set_black_hole(None);
            }
            Fault::Slow => {
                world.set_slow(true);
                sleep(lasts).await;
                world.set_slow(false);
            }
            Fault::Duplicate => {
                world.set_duplicating(true);
                sleep(lasts).await;
                world.set_duplicating(false);
            }
            Fault::LostMessages => {
                world.set_losing_messages(true);
                sleep(lasts).await;
                world.set_losing_messages(false);
            }
            Fault::Restart => restart(&world, lasts, |_| {}).await,
            Fault::DataLoss => {
                restart(&world, lasts, World::lose_data).await;
                self.processes.prepare_again();
            }
            Fault::OldSnapshot => {
                let ago = ms(self.rng.u64(..5_000));
                restart(&world, lasts, |world| world.lose_recent_data(ago)).await;
                // The snapshot may be older than the permits.
                self.processes.prepare_again();
            }
            Fault::Loading => {
                world.set_loading(true);
                sleep(lasts).await;
                world.set_loading(false);
            }
            Fault::Denied => {
                world.set_denial(link, if self.rng.bool() { Denial::All } else { Denial::SetLease });
                sleep(lasts).await;
                world.set_denial(link, Denial::None);
            }
            Fault::Demotion => {
                world.set_replica(true);
                sleep(lasts).await;
                // What the other server has become is the same as this one.
                world.set_replica(false);
            }
            Fault::SlowReplica => {
                world.freeze_replica(true);
                sleep(lasts).await;
                world.freeze_replica(false);
            }
            Fault::Promotion => world.promote(&[]),
            Fault::SplitBrain => {
                world.freeze_replica(true);
                sleep(ms(self.rng.u64(..2_000))).await;
                let stay: Vec<_> = links.into_iter().filter(|_| self.rng.bool()).collect();
                world.promote(&stay);
                sleep(lasts).await;
                for link in stay {
                    world.reset(link);
                }
            }
            Fault::ClockBack => world.step_clock(-self.rng.i64(0..20_000_000)),
            Fault::ClockForward => world.step_clock(self.rng.i64(0..20_000_000)),
            Fault::Stop | Fault::Kill | Fault::Shutdown => {}
        }
        self.record(fault, about, true);
    }

    /// Stops, kills or shuts down one process.
    async fn disturb_process(&mut self, fault: Fault) {
        let Some(number) = self.processes.select(&mut self.rng) else { return };
        self.record(fault, &format!("process {number}"), false);
        match fault {
            Fault::Stop => {
                let lasts = ms(self.rng.u64(..LONGEST_STOP_MS));
                self.processes.stop(number, ProcessState::Stopped);
                sleep(lasts).await;
                self.processes.resume(number);
            }
            Fault::Kill => {
                self.processes.stop(number, ProcessState::Killed);
                sleep(ms(self.rng.u64(..1_000))).await;
                self.processes.start();
            }
            _ => {
                self.processes.shut_down(number, ms(self.rng.u64(..10_000))).await;
                self.processes.start();
            }
        }
        self.processes.calm(number);
        self.record(fault, &format!("process {number}"), true);
    }
}

/// Restarts the server. `change` happens to its data while it is down.
async fn restart(world: &Arc<World>, lasts: Duration, change: impl FnOnce(&World)) {
    world.set_down(true);
    world.reset_all();
    change(world);
    sleep(lasts).await;
    world.set_down(false);
}
