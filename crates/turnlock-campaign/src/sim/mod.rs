//! The engine on simulated time: many clients, servers and faults on one thread. A seed decides all of it.

mod nemesis;
mod plan;
mod processes;
mod server;
mod store;
mod world;

use std::cell::Cell;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};
use turnlock_core::{Kind, LockName};
use turnlock_store::simulation::Simulation;

use crate::history::{Available, Event, LockInfo, LockKind, ProcessState, SIMULATION, What};
use crate::recorder::Recorder;
use nemesis::Nemesis;
use plan::Plan;
use processes::Processes;
use world::World;

/// What inject faults, by what their seeds differ in.
const NEMESES: [u64; 2] = [0x6e, 0x65];

/// The longest time of a run before it is healed.
const LONGEST_RUN: Duration = Duration::from_secs(900);

thread_local! {
    /// Whether anything has panicked in the simulation of this thread.
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs the simulation of a seed. Returns its history.
pub(crate) fn run(seed: u64) -> anyhow::Result<Vec<Event>> {
    record(seed, simulate(Plan::new(seed)))
}

/// Runs a simulation. Returns its history, at whose end is a panic, if there was one.
///
/// A task that panics ends alone, and the engine goes on after a panic of its background work.
fn record(seed: u64, simulated: impl Future<Output = Vec<Event>>) -> anyhow::Result<Vec<Event>> {
    watch_panics();
    HAS_PANICKED.set(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let mut events = runtime.block_on(async {
        let simulation = Simulation::start();
        fastrand::seed(seed);
        let events = simulated.await;
        drop(simulation);
        events
    });
    // With it, the last tasks are dropped.
    drop(runtime);
    if HAS_PANICKED.get() {
        let t = events.last().map_or(0, |event| event.t);
        events.push(Event { t, process: 0, what: What::Process { is: ProcessState::Panicked } });
    }
    Ok(events)
}

/// Notices all panics from now on, also those that are caught.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            HAS_PANICKED.set(true);
            print(panic);
        }));
    });
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
    let at_once = Arc::new(Semaphore::new(NEMESES.len()));
    let active = Arc::default();
    let mut nemeses = Vec::from(NEMESES.map(|which| {
        let nemesis = Nemesis {
            worlds: worlds.clone(),
            processes: Arc::clone(&processes),
            rng: Rng::with_seed(plan.seed ^ which),
            at_once: Arc::clone(&at_once),
            active: Arc::clone(&active),
        };
        tokio::spawn(nemesis.run(plan.faults.clone(), plan.calm_ms))
    }));
    if plan.has_quiet {
        let rng = Rng::with_seed(plan.seed ^ 0x7175);
        nemeses.push(tokio::spawn(nemesis::keep_quiet(at_once, plan.watchdog_ms, rng)));
    }
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
    // A late request may start a lease.
    for world in &worlds {
        sleep_until(world.last_arrival()).await;
    }
    sleep(plan.longest_lease()).await;
    let left = worlds.iter().flat_map(|world| world.left(plan.leaves_waiters())).collect();
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use turnlock_core::name::fix_hash_keys;

    use super::*;

    #[test]
    fn a_fault_of_a_server_is_under_way_once() {
        fix_hash_keys();
        let mut faults = 0;
        for seed in (1..=12).filter(|seed| Plan::new(*seed).deployments == 1) {
            let mut active = HashSet::new();
            for event in run(seed).expect("a history") {
                let What::Fault { fault, detail, ends } = event.what else { continue };
                // Several processes may be stopped.
                if detail.starts_with("process") {
                    continue;
                }
                faults += usize::from(!ends);
                assert!(
                    if ends { active.remove(&fault) } else { active.insert(fault) },
                    "seed {seed}: {}",
                    event.t
                );
            }
        }
        assert!(faults > 100, "{faults}");
    }

    #[test]
    fn a_panic_of_a_task_is_recorded() {
        let events = |panics: bool| {
            let simulated = async move {
                let task = tokio::spawn(async move { assert!(!panics, "on purpose") });
                assert_eq!(task.await.is_err(), panics);
                Vec::new()
            };
            record(1, simulated).expect("a history")
        };
        assert_eq!(events(false), []);
        let panicked = What::Process { is: ProcessState::Panicked };
        assert_eq!(events(true), [Event { t: 0, process: 0, what: panicked }]);
        assert_eq!(events(false), [], "the next run");
    }
}
