//! Java processes with Redisson, on the same locks as the workers.
//!
//! Redisson does not tell a holder when its lease ends. All its leases are fixed here, and a hold ends at the latest one lease
//! after its acquire was called. A lock whose reply was lost stays held in Redisson; a fixed lease ends that too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use turnlock_store::clock;
use turnlock_testkit::{PeerError, PeerThread, Redisson};

use crate::history::{LockInfo, LockKind, Mode, ProcessState, ReleaseBy, Wait, What};
use crate::recorder::Recorder;

const VERSION: &str = "4.7.0";

/// How long Redisson may retry its last requests.
const LAST_CALLS: Duration = Duration::from_secs(60);

/// The Java processes of a run.
pub(super) struct JavaWorkers {
    processes: Vec<(u32, Redisson)>,
    tasks: Vec<JoinHandle<()>>,
    is_ending: Arc<AtomicBool>,
    recorder: Arc<Recorder>,
}

impl JavaWorkers {
    /// Starts processes, numbered from 1, with some threads each.
    pub(super) async fn start(
        (processes, threads): (u32, u32),
        url: &str,
        locks: &[LockInfo],
        recorder: &Arc<Recorder>,
        rng: &mut Rng,
    ) -> anyhow::Result<Self> {
        let mut this = Self {
            processes: Vec::new(),
            tasks: Vec::new(),
            is_ending: Arc::default(),
            recorder: Arc::clone(recorder),
        };
        if processes == 0 {
            return Ok(this);
        }
        if let Some(reason) = tokio::task::spawn_blocking(|| Redisson::missing(VERSION)).await? {
            anyhow::bail!("Redisson {VERSION} cannot run here: {reason}");
        }
        let locks: Arc<[_]> = locks.into();
        for process in 1..=processes {
            let driver = Redisson::start_with(VERSION, url, Duration::from_secs(3), 0).await;
            recorder.record(process, What::Process { is: ProcessState::RedissonStarted });
            for number in 0..threads {
                let thread = JavaThread {
                    process,
                    thread: driver.thread(&format!("t{number}")),
                    locks: Arc::clone(&locks),
                    recorder: Arc::clone(recorder),
                };
                let is_ending = Arc::clone(&this.is_ending);
                this.tasks.push(tokio::spawn(thread.run(is_ending, rng.fork())));
            }
            this.processes.push((process, driver));
        }
        Ok(this)
    }

    /// Lets all threads end their turns.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        self.is_ending.store(true, Ordering::Relaxed);
        for task in self.tasks.drain(..) {
            timeout(LAST_CALLS, task).await.context("a call of Redisson does not end")??;
        }
        for (number, mut driver) in self.processes.drain(..) {
            driver.kill().await;
            self.recorder.record(number, What::Process { is: ProcessState::ShutDown });
        }
        Ok(())
    }
}

/// A Java thread that takes turns.
struct JavaThread {
    process: u32,
    thread: PeerThread,
    locks: Arc<[LockInfo]>,
    recorder: Arc<Recorder>,
}

impl JavaThread {
    async fn run(self, is_ending: Arc<AtomicBool>, mut rng: Rng) {
        while !is_ending.load(Ordering::Relaxed) {
            match self.turn(&mut rng).await {
                Err(error) if error.name == PeerError::ENDED => return,
                _ => sleep(Duration::from_millis(rng.u64(..30))).await,
            }
        }
    }

    /// Acquires one of the locks, holds it, and releases it.
    async fn turn(&self, rng: &mut Rng) -> Result<(), PeerError> {
        let lock = rng.usize(..self.locks.len());
        let info = &self.locks[lock];
        let Some((object, mode)) = object(info.kind, rng) else { return Ok(()) };
        let lease = rng.u64(1_000..=3_000);
        // A waiter of a fair lock that fails stays in the queue for minutes.
        let wait = if info.kind == LockKind::Fair || rng.bool() { 0 } else { rng.u64(..lease / 2) };
        let (op, began) = (self.recorder.next_op(), self.recorder.at(clock::now()));
        let waits = if wait == 0 { Wait::No } else { Wait::For { ms: wait } };
        let (lease_ms, owner_number) = (Some(lease), None);
        self.record(What::Acquire { op, lock, mode, permits: 1, wait: waits, lease_ms, owner_number });
        let name = &info.name;
        let method = match info.kind {
            LockKind::Fenced => "tryLockAndGetToken",
            LockKind::Permits => "tryAcquire",
            _ => "tryLock",
        };
        let reply = match self.call(&format!("{object} {name} {method} {wait} {lease}")).await {
            Ok(reply) => reply,
            // The wait was over before it had subscribed.
            Err(error) if error.message.starts_with("Unable to acquire subscription lock") => {
                self.record(What::Busy { op });
                return Ok(());
            }
            Err(error) => {
                self.record(What::Failed { op, error: error.to_string() });
                return Err(error);
            }
        };
        if reply == "false" || reply == "null" {
            self.record(What::Busy { op });
            return Ok(());
        }
        let valid_until = began + lease * 1_000;
        let token = (info.kind == LockKind::Fenced).then(|| reply.parse().ok()).flatten();
        let owner = format!("redisson {} {}", self.process, reply);
        self.record(What::Granted { op, owner, token, valid_until });
        let hold_for = if rng.u8(..8) > 0 { rng.u64(..20) } else { rng.u64(..lease + lease / 4) };
        sleep(Duration::from_millis(hold_for)).await;
        self.record(What::Release { op, by: ReleaseBy::Unlock, valid_until });
        let release = match info.kind {
            LockKind::Permits => format!("{object} {name} release {reply}"),
            _ => format!("{object} {name} unlock"),
        };
        let outcome = self.call(&release).await;
        self.record(What::Released { op, error: outcome.as_ref().err().map(ToString::to_string) });
        outcome.map(drop)
    }

    async fn call(&self, request: &str) -> Result<String, PeerError> {
        self.thread.begin(request).await
    }

    fn record(&self, what: What) {
        self.recorder.record(self.process, what);
    }
}

/// What Redisson calls a kind, and how it is shared. `None` for kinds that it lacks.
fn object(kind: LockKind, rng: &mut Rng) -> Option<(&'static str, Mode)> {
    let name = match kind {
        LockKind::Lock => "lock",
        LockKind::Fair => "fair",
        LockKind::Fenced => "fenced",
        LockKind::Spin => "spin",
        LockKind::Permits => "permits",
        LockKind::ReadWrite if rng.u8(..5) > 1 => return Some(("read", Mode::Shared)),
        LockKind::ReadWrite => "write",
        LockKind::Plain | LockKind::Semaphore | LockKind::Latch | LockKind::RedLock => return None,
    };
    Some((name, Mode::Exclusive))
}
