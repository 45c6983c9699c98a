//! Checks that a command has exited before the next client holds its lock.
//!
//! A test machine may stall for longer than the safety margin. Such a round is inconclusive and is repeated.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use turnlock::Lock;
use turnlock_testkit::{StallMonitor, record_repeat, within};

use crate::fixture::ms;
use crate::program::can_execute;

/// When the command exited.
pub(crate) enum CommandExit {
    InTime,
    /// Too late, by no more than the machine stalled.
    Inconclusive,
}

/// Runs `round`, and repeats it a few times if it is inconclusive.
pub(crate) async fn repeat_if_inconclusive<Fut: Future<Output = CommandExit>>(
    what: &str,
    mut round: impl FnMut() -> Fut,
) {
    const MAX_REPEATS: usize = 3;
    for _ in 0..=MAX_REPEATS {
        match round().await {
            CommandExit::InTime => return,
            CommandExit::Inconclusive => record_repeat(what),
        }
    }
    panic!("{what}: inconclusive, since the machine stalled each time");
}

/// A client that waits for the lock of a command, and checks the command when it gets the lock.
pub(crate) struct Successor {
    acquired: JoinHandle<Acquired>,
    /// The earliest time by which the command must have exited.
    deadline: Instant,
    pauses: StallMonitor,
}

struct Acquired {
    /// The command had exited when the lock was acquired.
    had_exited: bool,
    at: Instant,
    /// When the command could no longer execute code.
    exited_at: Instant,
}

impl Successor {
    /// Starts to wait for the lock of a running command. `lease` is the lease of the lock, which is no longer renewed.
    pub(crate) async fn start(pid: i32, lock: Lock, lease: Duration) -> Self {
        let pauses = StallMonitor::watch();
        // The safety margin that the program subtracts from the lease.
        let margin = lease / 100 + ms(2);
        let queried = Instant::now();
        let left = lock.inspect().await.unwrap().ttl.expect("a held lock");
        let deadline = queried + left.saturating_sub(margin);
        Self { acquired: tokio::spawn(acquire(pid, lock)), deadline, pauses }
    }

    /// Waits for the lock, which is granted when the lease ends.
    ///
    /// # Errors
    ///
    /// The command could still execute code then, and for longer than the machine stalled.
    pub(crate) async fn check_exit(self) -> Result<CommandExit, String> {
        let acquired = within(ms(30_000), "the next client acquires the lock", self.acquired).await.unwrap();
        if acquired.had_exited {
            return Ok(CommandExit::InTime);
        }
        let stalled = self.pauses.between(self.deadline, acquired.exited_at).await;
        let late = acquired.exited_at - acquired.at;
        if late < stalled {
            return Ok(CommandExit::Inconclusive);
        }
        Err(format!("two holders at once for {late:?}; the machine stalled for {stalled:?}"))
    }
}

async fn acquire(pid: i32, lock: Lock) -> Acquired {
    /// Limit of the wait for the exit of the command.
    const LIMIT: Duration = Duration::from_secs(5);
    let guard = lock.lock().await.unwrap();
    let had_exited = !can_execute(pid);
    let at = Instant::now();
    while can_execute(pid) && at.elapsed() < LIMIT {
        tokio::time::sleep(ms(1)).await;
    }
    let exited_at = Instant::now();
    guard.unlock().await.unwrap();
    Acquired { had_exited, at, exited_at }
}
