//! The engine on simulated time: many clients, servers and faults on one thread. A seed decides all of it.

mod nemesis;
mod plan;
mod processes;
mod server;
mod store;
mod world;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use turnlock_core::{Kind, LockName};
use turnlock_store::simulation::Simulation;

use crate::history::{Available, Event, LockInfo, LockKind, SIMULATION, What};
use crate::recorder::Recorder;
use nemesis::Nemesis;
use plan::Plan;
use processes::Processes;
use world::World;

/// The longest time of a run before it is healed.
const LONGEST_RUN: Duration = Duration::from_secs(900);

/// The time after the last client in which every lease ends, also one that a late request starts.
const LAST_LEASES: Duration = Duration::from_secs(300);

/// Runs the simulation of a seed. Returns its history.
pub(crate) fn run(seed: u64) -> anyhow::Result<Vec<Event>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        let simulation = Simulation::start();
        fastrand::seed(seed);
        let events = simulate(Plan::new(seed)).await;
        drop(simulation);
        events
    }))
}

async fn simulate(plan: Plan) -> Vec<Event> {
    let recorder = Arc::new(Recorder::new());
    let run = What::Run {
        seed: plan.seed,
        shape: SIMULATION.to_owned(),
        promises: plan.promises(),
        watchdog_ms: plan.watchdog_ms,
        locks: plan.locks.clone(),
    };
    recorder.record(0, run);
    let worlds: Vec<_> = (0..plan.deployments).map(|number| World::new(&plan, number, &recorder)).collect();
    let processes = Processes::new(&plan, &worlds, &recorder);
    for _ in 0..plan.processes {
        processes.start();
    }
    // Before the first fault, the permits of semaphores are set.
    sleep(Duration::from_secs(2)).await;
    // Two faults at a time.
    let nemeses = [0x6e, 0x65].map(|which| {
        let nemesis = Nemesis {
            worlds: worlds.clone(),
            processes: Arc::clone(&processes),
            rng: Rng::with_seed(plan.seed ^ which),
        };
        tokio::spawn(nemesis.run(plan.faults.clone(), plan.calm_ms))
    });
    // Waiters without a time limit may wait for a killed holder.
    let _ = timeout(LONGEST_RUN, processes.done()).await;
    nemeses.iter().for_each(JoinHandle::abort);
    processes.resume_all();
    worlds.iter().for_each(World::heal);
    recorder.record(0, What::Healed);
    if timeout(LONGEST_RUN, processes.done()).await.is_err() {
        processes.record_stuck();
    }
    processes.end().await;
    sleep(LAST_LEASES).await;
    let left = worlds.iter().flat_map(|world| world.held()).collect();
    recorder.record(0, What::End { left, available: available(&plan, &worlds[0]) });
    recorder.take()
}

/// The free permits of all semaphores.
fn available(plan: &Plan, world: &World) -> Vec<Available> {
    let of_lock = |(lock, info): (usize, &LockInfo)| {
        let kind = match info.kind {
            LockKind::Semaphore => Kind::Semaphore,
            LockKind::Permits => Kind::Permits,
            _ => return None,
        };
        let permits = world.available(LockName::of(kind, "", &info.name).ok()?)?;
        Some(Available { lock, permits })
    };
    plan.locks.iter().enumerate().filter_map(of_lock).collect()
}
