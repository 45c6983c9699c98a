//! A command is gone before another can have its lock, unless the machine stood still for so long.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use turnlock::Lock;
use turnlock_testkit::{Pauses, void, within};

use crate::program::can_act;
use crate::rig::ms;

/// The command.
pub(super) enum Gone {
    InTime,
    /// Too late, by no more than the machine stood still.
    MachineStoodStill,
}

/// Does something again that shows nothing, a few times.
pub(super) async fn is_shown<Fut: Future<Output = Gone>>(what: &str, mut round: impl FnMut() -> Fut) {
    const MOST_VOID: usize = 3;
    for _ in 0..=MOST_VOID {
        match round().await {
            Gone::InTime => return,
            Gone::MachineStoodStill => void(what),
        }
    }
    panic!("{what} shows nothing: the machine stood still each time");
}

/// One who waits for the lock of a command, and looks at the command on getting it.
pub(super) struct Successor {
    turn: JoinHandle<Turn>,
    /// When the command has to be gone, at the earliest.
    due: Instant,
    pauses: Pauses,
}

struct Turn {
    is_alone: bool,
    began: Instant,
    /// When the command could do nothing any more.
    alone_since: Instant,
}

impl Successor {
    /// Begins to wait for the lock of a command that runs. The lease is that of the lock, and is not renewed any more.
    pub(super) async fn of(pid: i32, lock: Lock, lease: Duration) -> Self {
        let pauses = Pauses::watch();
        // What the program takes off the lease.
        let margin = lease / 100 + ms(2);
        let asked = Instant::now();
        let left = lock.inspect().await.unwrap().ttl.expect("it is held");
        let due = asked + left.saturating_sub(margin);
        Self { turn: tokio::spawn(take_turn(pid, lock)), due, pauses }
    }

    /// Waits for the turn, which may come when the lease is over. An error if the command could still do something then, and for
    /// longer than the machine stood still.
    pub(super) async fn sees_it_gone(self) -> Result<Gone, String> {
        let turn = within(ms(30_000), "the lock is handed on", self.turn).await.unwrap();
        if turn.is_alone {
            return Ok(Gone::InTime);
        }
        let stood_still = self.pauses.between(self.due, turn.alone_since).await;
        let late = turn.alone_since - turn.began;
        if late < stood_still {
            return Ok(Gone::MachineStoodStill);
        }
        Err(format!("two at once, for {late:?}; the machine stood still for {stood_still:?}"))
    }
}

async fn take_turn(pid: i32, lock: Lock) -> Turn {
    /// Then it is late enough.
    const LATE: Duration = Duration::from_secs(5);
    let guard = lock.lock().await.unwrap();
    let is_alone = !can_act(pid);
    let began = Instant::now();
    while can_act(pid) && began.elapsed() < LATE {
        tokio::time::sleep(ms(1)).await;
    }
    let alone_since = Instant::now();
    guard.unlock().await.unwrap();
    Turn { is_alone, began, alone_since }
}
