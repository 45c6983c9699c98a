//! Clients on simulated time, for tests: what they do depends on a seed only.
//!
//! A simulation runs on one thread, on a tokio runtime whose clock is paused. There, every clock of this crate follows
//! tokio's, and random numbers follow the seed. Simulated [processes](Process) share the thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use turnlock_core::Moment;

/// Whether a thread has ever run a simulation. Without one, a check costs a load.
static WAS_USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The start of the simulation on this thread.
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    static CURRENT: RefCell<Option<Process>> = const { RefCell::new(None) };
}

/// The local clock at the start: an hour, so that moments before the start can be represented.
const FIRST_MOMENT: Moment = Moment::from_micros(3_600_000_000);

/// The wall clock at the start, in microseconds since 1970.
const FIRST_WALL_MICROS: u64 = 1_800_000_000_000_000;

/// A simulation on the current thread, until it is dropped.
#[derive(Debug)]
pub struct Simulation(());

impl Simulation {
    /// Starts a simulation. It ends before the runtime does.
    ///
    /// # Panics
    ///
    /// Without a current runtime whose clock is paused, or if a simulation runs on this thread already.
    pub fn start() -> Self {
        assert!(is_paused(), "tokio's clock must be paused");
        WAS_USED.store(true, Ordering::Relaxed);
        assert!(START.replace(Some(Instant::now())).is_none(), "one simulation at a time on a thread");
        Self(())
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        START.set(None);
    }
}

/// Returns `true` if this thread runs a simulation.
pub fn is_running() -> bool {
    WAS_USED.load(Ordering::Relaxed) && START.get().is_some()
}

/// Returns how long the simulation has run. `None` without one.
fn elapsed() -> Option<Duration> {
    if !WAS_USED.load(Ordering::Relaxed) {
        return None;
    }
    START.get().map(|start| start.elapsed())
}

pub(crate) fn now() -> Option<Moment> {
    elapsed().map(|elapsed| FIRST_MOMENT + elapsed)
}

pub(crate) fn wall_micros() -> Option<u64> {
    elapsed().map(|elapsed| FIRST_WALL_MICROS + u64::try_from(elapsed.as_micros()).unwrap_or(0))
}

/// A paused clock does not move while the system's does.
#[expect(clippy::disallowed_methods, reason = "compares both clocks")]
pub(crate) fn is_paused() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let (paused, running) = (Instant::now(), std::time::Instant::now());
    while std::time::Instant::now() == running {
        std::hint::spin_loop();
    }
    Instant::now() == paused
}

/// A simulated process, whose tasks are stopped and continued together.
///
/// Time passes while it is stopped, as for a process that got `SIGSTOP`. One that is never continued is as good as
/// killed.
#[derive(Clone, Default)]
pub struct Process(Arc<State>);

#[derive(Default)]
struct State {
    is_stopped: AtomicBool,
    /// Tasks that were woken while the process was stopped.
    woken: Mutex<Vec<Waker>>,
}

impl Process {
    /// The process of the task that is being polled.
    pub fn current() -> Option<Self> {
        if WAS_USED.load(Ordering::Relaxed) { CURRENT.with_borrow(Clone::clone) } else { None }
    }

    /// Polls no task of the process until it is [continued](Self::resume).
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Continues a stopped process.
    pub fn resume(&self) {
        self.0.is_stopped.store(false, Ordering::Relaxed);
        let woken = std::mem::take(&mut *self.0.woken.lock());
        woken.into_iter().for_each(Waker::wake);
    }

    /// Returns `true` while the process is stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed)
    }

    /// Runs `future` as a task of this process. The tasks that it spawns by [`spawn`] belong to the process too.
    pub fn run<F: Future>(&self, future: F) -> InProcess<F> {
        InProcess { process: self.clone(), future: Box::pin(future) }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("is_stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}

/// A future that is not polled while its process is stopped.
#[derive(Debug)]
pub struct InProcess<F> {
    process: Process,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for InProcess<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.process.is_stopped() {
            self.process.0.woken.lock().push(context.waker().clone());
            return Poll::Pending;
        }
        let _before = Before(CURRENT.replace(Some(self.process.clone())));
        self.future.as_mut().poll(context)
    }
}

/// Makes a process the current one again, also after a panic.
struct Before(Option<Process>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.replace(self.0.take());
    }
}

/// Spawns a task on `runtime`. In a simulation, it belongs to the process of the caller.
pub fn spawn(runtime: &Handle, future: impl Future<Output = ()> + Send + 'static) {
    match Process::current() {
        None => drop(runtime.spawn(future)),
        Some(process) => drop(runtime.spawn(process.run(future))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Runs `test` in a simulation.
    fn simulate(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let simulation = Simulation::start();
            test.await;
            drop(simulation);
        });
    }

    #[test]
    fn a_stopped_process_runs_none_of_its_tasks() {
        simulate(async {
            let (process, ticks) = (Process::default(), Arc::new(AtomicUsize::new(0)));
            let counted = Arc::clone(&ticks);
            // A task that is spawned by a task of the process.
            drop(tokio::spawn(process.run(async move {
                spawn(&Handle::current(), async move {
                    loop {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })));
            let after = async |seconds| {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                ticks.load(Ordering::Relaxed)
            };
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(after(3).await, 3);
            process.stop();
            assert_eq!(after(10).await, 3);
            process.resume();
            assert_eq!(after(2).await, 5);
        });
    }
}
