use std::pin::pin;

use super::{Acquired, Workload};
use crate::history::What;

impl Workload {
    /// Waits until the holder is told that the lock is lost, and records it.
    pub(super) async fn record_loss(&self, acquired: &Acquired) {
        let reason = acquired.held.lost().await.to_string();
        let valid_until = self.recorder.at(acquired.held.valid_until());
        for &op in &acquired.ops {
            self.record(What::Lost { op, reason: reason.clone(), valid_until });
        }
    }

    /// Awaits an action of the holder. A loss meanwhile is recorded at once.
    pub(super) async fn while_held<T>(
        &self,
        acquired: &Acquired,
        is_lost: &mut bool,
        action: impl Future<Output = T>,
    ) -> T {
        let mut action = pin!(action);
        tokio::select! {
            biased;
            () = self.record_loss(acquired), if !*is_lost => *is_lost = true,
            value = &mut action => return value,
        }
        action.await
    }
}
