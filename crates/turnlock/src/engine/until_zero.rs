use std::io;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::LockName;

use super::Shared;
use super::acquire::{LONGEST_NAP, Patience};
use super::question::describe;
use super::rooms::Join;
use super::troubles::Troubles;
use crate::backend::{Answer, Failure, FailureKind};
use crate::clock;
use crate::error::Error;

fn no_answer(limit: Duration) -> Failure {
    let cause = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
    Failure::refused(FailureKind::Unavailable(Arc::new(cause)))
}

/// Waits until a latch is open. `false` when patience ended first.
pub(crate) async fn until_zero(
    shared: &Arc<Shared>,
    name: &LockName,
    patience: Patience,
) -> Result<bool, Error> {
    let (seat, _) = shared.rooms.enter(name, Join::AtEnd);
    let mut troubles = Troubles::new(shared.settings.retry_for, patience, shared.settings.usual_patience());
    let mut listening = false;
    let end = patience.end();
    loop {
        shared.check_open()?;
        let asked = clock::now();
        let limit = shared.settings.usual_patience();
        // Past the caller's end a question gets the time that any question gets, and no more.
        let asking = tokio::time::timeout(end.since(asked).max(limit), shared.backend.inspect(name, limit));
        let count = match asking.await.unwrap_or_else(|_| Err(no_answer(limit))) {
            Ok(Answer { value, .. }) => value.number.unwrap_or_default(),
            Err(failure) => {
                let pause = troubles.after(failure, asked, || describe(name))?;
                tokio::time::sleep(pause.min(end.since(clock::now()))).await;
                continue;
            }
        };
        troubles.are_over();
        if count <= 0 {
            return Ok(true);
        }
        if clock::now() >= end {
            return Ok(false);
        }
        if !listening {
            // What was published before the subscription stood went unheard, so look again at once.
            listening = true;
            seat.set_listening();
            let _ =
                tokio::time::timeout(end.since(asked).min(LONGEST_NAP), shared.backend.listen(name)).await;
            continue;
        }
        let look_again = (asked + shared.settings.poll).min(end);
        while !seat.bell.take_hint() && clock::now() < look_again {
            let nap = look_again.since(clock::now()).min(LONGEST_NAP);
            let _ = tokio::time::timeout(nap, seat.bell.rings()).await;
        }
    }
}
