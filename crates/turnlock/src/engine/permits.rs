use std::sync::Arc;

use turnlock_core::Kind;

use super::Engine;
use super::acquire::{Ask, acquire};
use crate::error::Error;
use crate::permits::Permits;

/// How many permits with ids can be taken at once: each is said by itself, in this request and in every renewal.
const MOST_AT_ONCE: u32 = 10_000;

/// Takes permits of either kind of semaphore. `None` when patience ended first.
///
/// Cancel-safe as [`acquire`].
pub(crate) async fn acquire_permits(engine: &Arc<Engine>, ask: Ask) -> Result<Option<Permits>, Error> {
    let permits = checked_number(ask.permits)?;
    if ask.name.kind() == Kind::Permits && permits > MOST_AT_ONCE {
        let reason = format!(
            "{permits} permits with ids are too many to take at once: take {MOST_AT_ONCE} at the most"
        );
        return Err(Error::bad_setting("permits", reason));
    }
    let guard = engine.shared.on_runtime(acquire(engine, ask)).await?;
    Ok(guard.map(Permits::new))
}

/// A number of permits, or a count, that makes sense to all who share it: Java counts in 32 bits.
pub(crate) fn checked_number(number: u32) -> Result<u32, Error> {
    if number == 0 || i32::try_from(number).is_err() {
        let reason = format!("{number} is no number of permits or counts: give one from 1 to {}", i32::MAX);
        return Err(Error::bad_setting("number", reason));
    }
    Ok(number)
}
