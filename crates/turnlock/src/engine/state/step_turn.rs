use std::sync::Arc;

use super::hold::Hold;

/// The right to send a step of a hold, until this is dropped.
#[derive(Debug)]
pub(crate) struct StepTurn(Arc<Hold>);

impl StepTurn {
    /// Waits until no other step of the hold is under way.
    pub(crate) async fn of(hold: &Arc<Hold>) -> Self {
        // The semaphore is never closed.
        if let Ok(turn) = hold.steps.acquire().await {
            turn.forget();
        }
        Self(Arc::clone(hold))
    }

    /// Returns `None` if another step of the hold is under way.
    pub(crate) fn try_of(hold: &Arc<Hold>) -> Option<Self> {
        hold.steps.try_acquire().ok()?.forget();
        Some(Self(Arc::clone(hold)))
    }
}

impl Drop for StepTurn {
    fn drop(&mut self) {
        self.0.steps.add_permits(1);
    }
}
