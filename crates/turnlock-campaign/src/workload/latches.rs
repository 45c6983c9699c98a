use fastrand::Rng;
use tokio::time::sleep;
use turnlock::{Error, Latch};

use super::{ShutDown, Workload, ms};
use crate::history::{LONGEST_EFFECT_MS, LatchAction, What};

impl Workload {
    fn latch(&self, lock: usize) -> Latch {
        self.client().latch(&self.locks[lock].name)
    }

    /// Sets a latch, counts it down, or waits for it.
    pub(super) async fn use_latch(&self, lock: usize, rng: &mut Rng) -> Result<(), ShutDown> {
        let action = match rng.u8(..4) {
            0 => LatchAction::Set { count: rng.u32(1..4) },
            1 | 2 => LatchAction::CountDown,
            _ => LatchAction::Wait { ms: rng.u64(..2 * self.watchdog_ms) },
        };
        self.act(lock, action).await
    }

    /// Counts a latch down to zero, and waits for it.
    pub(super) async fn open_latch(&self, lock: usize) {
        let latch = self.latch(lock);
        // Bounded: the other processes have ended.
        for _ in 0..100 {
            match latch.count().await {
                Ok(0) => break,
                Ok(_) => drop(self.act(lock, LatchAction::CountDown).await),
                Err(_) => sleep(ms(100)).await,
            }
        }
        let _ = self.act(lock, LatchAction::Wait { ms: LONGEST_EFFECT_MS }).await;
    }

    /// Performs an operation, and records it.
    async fn act(&self, lock: usize, action: LatchAction) -> Result<(), ShutDown> {
        let (op, latch) = (self.recorder.next_op(), self.latch(lock));
        self.record(What::Latch { op, lock, action });
        let outcome = match action {
            LatchAction::Set { count } => latch.try_set_count(count).await,
            LatchAction::CountDown => latch.count_down().await.map(|_| true),
            LatchAction::Wait { ms: time } => latch.wait_for(ms(time)).await,
        };
        let is_shut_down = matches!(outcome, Err(Error::ShuttingDown));
        self.record(What::LatchDone { op, outcome: outcome.ok() });
        if is_shut_down { Err(ShutDown) } else { Ok(()) }
    }
}
