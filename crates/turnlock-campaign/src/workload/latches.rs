use fastrand::Rng;
use futures_util::FutureExt;
use tokio::time::sleep;
use turnlock::{Error, Latch};
use turnlock_core::error_chain;

use super::cancel::{Cancel, unless_cancelled};
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
        let cancel = Cancel::draw(self.watchdog_ms, rng);
        self.act(lock, action, cancel).await
    }

    /// Counts a latch down to zero, and waits for it.
    pub(super) async fn open_latch(&self, lock: usize) {
        // Bounded: the other processes have ended.
        for _ in 0..100 {
            if self.count_down(lock).await {
                break;
            }
        }
        let counting = async {
            loop {
                sleep(ms(1_000)).await;
                self.count_down(lock).await;
            }
        };
        tokio::select! {
            biased;
            _ = self.act(lock, LatchAction::Wait { ms: LONGEST_EFFECT_MS }, None) => {}
            // An operation that sets it may arrive late.
            () = counting => {}
        }
    }

    /// Counts a latch down. Returns `true` if it is open.
    async fn count_down(&self, lock: usize) -> bool {
        match self.latch(lock).count().await {
            Ok(0) => return true,
            Ok(_) => drop(self.act(lock, LatchAction::CountDown, None).await),
            Err(error) => {
                self.record_failure("the count of a latch", &error_chain(&error));
                sleep(ms(100)).await;
            }
        }
        false
    }

    /// Performs an operation, unless it is cancelled, and records it.
    async fn act(&self, lock: usize, action: LatchAction, cancel: Option<Cancel>) -> Result<(), ShutDown> {
        let (op, latch) = (self.recorder.next_op(), self.latch(lock));
        self.record(What::Latch { op, lock, action });
        let acting = async {
            match action {
                LatchAction::Set { count } => latch.try_set_count(count).await,
                LatchAction::CountDown => latch.count_down().await.map(|_| true),
                LatchAction::Wait { ms: time } => latch.wait_for(ms(time)).await,
            }
        };
        let outcome = unless_cancelled(acting.boxed(), cancel).await;
        let is_shut_down = matches!(outcome, Some(Err(Error::ShuttingDown)));
        let (outcome, error) = match outcome {
            Some(Err(error)) if !is_shut_down => (None, Some(error_chain(&error))),
            outcome => (outcome.and_then(Result::ok), None),
        };
        self.record(What::LatchDone { op, outcome, error });
        if is_shut_down { Err(ShutDown) } else { Ok(()) }
    }
}
