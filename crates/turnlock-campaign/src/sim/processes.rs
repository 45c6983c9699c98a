//! The processes of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use turnlock::Client;
use turnlock_store::simulation::Process;

use super::plan::Plan;
use super::store::SimStore;
use super::world::World;
use crate::history::{HAND_OVER_WINDOW_MS, LockInfo, ProcessState, What};
use crate::recorder::Recorder;
use crate::workload::{Gate, LAST_REQUESTS, Workload};

/// The number of processes in a run, with those that replace killed ones.
const MOST_PROCESSES: u32 = 10;

/// How many of 100 holders acquire another lock meanwhile.
const NESTED: u8 = 15;

/// The longest time between two searches for deadlocks, in milliseconds.
const SEARCH_PERIOD_MS: u64 = 2_000;

/// The processes of a run.
pub(super) struct Processes {
    worlds: Vec<Arc<World>>,
    recorder: Arc<Recorder>,
    locks: Arc<[LockInfo]>,
    tasks: u32,
    turns: u32,
    replicas: u32,
    watchdog_ms: u64,
    long_holds: u8,
    announces: bool,
    gate: Option<Arc<Gate>>,
    state: Mutex<State>,
    task_ended: Notify,
    is_ending: watch::Sender<bool>,
}

struct State {
    rng: Rng,
    next: u32,
    /// By their numbers.
    live: BTreeMap<u32, Live>,
}

/// A process that was not killed.
struct Live {
    process: Process,
    /// On each deployment.
    links: Vec<usize>,
    workload: Workload,
    tasks_left: u32,
    /// A fault concerns it.
    is_disturbed: bool,
}

impl Processes {
    pub(super) fn new(plan: &Plan, worlds: &[Arc<World>], recorder: &Arc<Recorder>) -> Arc<Self> {
        let state = State { rng: Rng::with_seed(plan.seed ^ 0x70), next: 1, live: BTreeMap::new() };
        Arc::new(Self {
            worlds: worlds.to_vec(),
            recorder: Arc::clone(recorder),
            locks: plan.locks.clone().into(),
            tasks: plan.tasks,
            turns: plan.turns,
            replicas: plan.replicas,
            watchdog_ms: plan.watchdog_ms,
            long_holds: plan.long_holds,
            announces: plan.announces,
            gate: plan.has_steady_clock().then(Arc::default),
            state: Mutex::new(state),
            task_ended: Notify::new(),
            is_ending: watch::Sender::new(false),
        })
    }

    /// Starts a process with its tasks.
    pub(super) fn start(self: &Arc<Self>) {
        if self.state.lock().next > MOST_PROCESSES {
            return;
        }
        let process = Process::default();
        // The seed of its tasks.
        let mut rng = self.state.lock().rng.fork();
        let this = Arc::clone(self);
        let running = process.clone();
        drop(tokio::spawn(process.run(async move {
            let (mut links, mut clients) = (Vec::new(), Vec::new());
            for world in &this.worlds {
                let builder = Client::builder()
                    .watchdog_timeout(Duration::from_millis(this.watchdog_ms))
                    .announce_waits(this.announces)
                    .hand_over_window(Duration::from_millis(HAND_OVER_WINDOW_MS));
                let opened = builder.store(|id| {
                    let link = world.add_link(id, running.clone());
                    links.push(link);
                    Arc::new(SimStore { world: Arc::clone(world), link })
                });
                match opened {
                    Ok(client) => clients.push(client),
                    Err(error) => panic!("good settings: {error}"),
                }
            }
            let number = {
                let mut state = this.state.lock();
                state.next += 1;
                state.next - 1
            };
            let workload = Workload {
                owners: (0..2).map(|_| clients[0].owner()).collect(),
                clients,
                process: number,
                locks: Arc::clone(&this.locks),
                recorder: Arc::clone(&this.recorder),
                replicas: this.replicas,
                watchdog_ms: this.watchdog_ms,
                long_holds: this.long_holds,
                nested: if this.announces { NESTED } else { 0 },
                gate: this.gate.clone(),
                is_ending: this.is_ending.subscribe(),
            };
            this.record(number, What::Process { is: ProcessState::Started });
            // A failure shows when permits are acquired.
            let _ = workload.prepare().await;
            let live = Live {
                process: running,
                links,
                workload: workload.clone(),
                tasks_left: this.tasks,
                is_disturbed: false,
            };
            this.state.lock().live.insert(number, live);
            for _ in 0..this.tasks {
                let (this, workload, rng) = (Arc::clone(&this), workload.clone(), rng.fork());
                let turns = this.turns;
                drop(tokio::spawn(Process::current().unwrap_or_default().run(async move {
                    workload.run(turns, rng).await;
                    if let Some(live) = this.state.lock().live.get_mut(&number) {
                        live.tasks_left -= 1;
                    }
                    this.task_ended.notify_one();
                })));
            }
            if this.announces {
                this.search(number, &workload, rng).await;
            }
        })));
    }

    /// Looks for deadlocks while the tasks of a process run.
    async fn search(&self, number: u32, workload: &Workload, mut rng: Rng) {
        while self.state.lock().live.get(&number).is_some_and(|live| live.tasks_left > 0) {
            sleep(Duration::from_millis(rng.u64(..SEARCH_PERIOD_MS))).await;
            workload.record_deadlocks().await;
        }
    }

    pub(super) fn record(&self, process: u32, what: What) {
        self.recorder.record(process, what);
    }

    fn live(&self) -> Vec<u32> {
        self.state.lock().live.keys().copied().collect()
    }

    /// Selects a process that no other fault concerns.
    pub(super) fn select(&self, rng: &mut Rng) -> Option<u32> {
        let live = &mut self.state.lock().live;
        let calm: Vec<_> =
            live.iter().filter(|(_, live)| !live.is_disturbed).map(|(number, _)| *number).collect();
        let number = rng.choice(calm)?;
        live.get_mut(&number)?.is_disturbed = true;
        Some(number)
    }

    /// Ends what [`select`](Self::select) began.
    pub(super) fn calm(&self, number: u32) {
        if let Some(live) = self.state.lock().live.get_mut(&number) {
            live.is_disturbed = false;
        }
    }

    /// Stops a process for a while, or for ever.
    pub(super) fn stop(&self, number: u32, is: ProcessState) {
        let mut state = self.state.lock();
        let Some(live) = state.live.get(&number) else { return };
        live.process.stop();
        self.record(number, What::Process { is });
        if is == ProcessState::Killed {
            self.worlds.iter().zip(&live.links).for_each(|(world, link)| world.kill(*link));
            state.live.remove(&number);
            self.gate.iter().for_each(|gate| gate.forget(number));
        }
    }

    pub(super) fn resume(&self, number: u32) {
        let state = self.state.lock();
        if let Some(live) = state.live.get(&number).filter(|live| live.process.is_stopped()) {
            self.record(number, What::Process { is: ProcessState::Continued });
            live.process.resume();
        }
    }

    /// Continues stopped processes, and lets all tasks end.
    pub(super) fn resume_all(&self) {
        self.is_ending.send_replace(true);
        self.live().into_iter().for_each(|number| self.resume(number));
    }

    /// Shuts down the client of a process.
    pub(super) async fn shut_down(&self, number: u32, limit: Duration) {
        let found = {
            let state = self.state.lock();
            state.live.get(&number).map(|live| (live.process.clone(), live.workload.clone()))
        };
        let Some((process, workload)) = found else { return };
        // As a process that ends when its tasks do not.
        let shutdown = process.run(async move { workload.shut_down(limit).await });
        if timeout(limit + Duration::from_secs(1), shutdown).await.is_err() {
            self.record(number, What::Process { is: ProcessState::Stuck });
        }
        self.record(number, What::Process { is: ProcessState::ShutDown });
        self.stop(number, ProcessState::Killed);
    }

    /// Sets the number of permits again, after the server has lost it.
    pub(super) fn prepare_again(&self) {
        for live in self.state.lock().live.values() {
            let workload = live.workload.clone();
            drop(tokio::spawn(live.process.run(async move { workload.prepare().await })));
        }
    }

    /// Records the processes whose tasks have not ended.
    pub(super) fn record_stuck(&self) {
        for (number, _) in self.state.lock().live.iter().filter(|(_, live)| live.tasks_left > 0) {
            self.record(*number, What::Process { is: ProcessState::Stuck });
        }
    }

    /// Waits until all tasks of all live processes have ended.
    pub(super) async fn done(&self) {
        loop {
            if self.state.lock().live.values().all(|live| live.tasks_left == 0) {
                return;
            }
            // Checked periodically: a killed process does not notify it.
            let _ = timeout(Duration::from_secs(1), self.task_ended.notified()).await;
        }
    }

    /// Acquires every lock in every process, and shuts all of them down.
    pub(super) async fn end(&self) {
        for number in self.live() {
            let found =
                self.state.lock().live.get(&number).map(|live| (live.process.clone(), live.workload.clone()));
            let Some((process, workload)) = found else { continue };
            // The server may have lost the number of permits.
            let last = async move {
                let _ = workload.prepare().await;
                workload.acquire_each().await;
            };
            process.run(last).await;
            self.shut_down(number, LAST_REQUESTS).await;
        }
    }
}
