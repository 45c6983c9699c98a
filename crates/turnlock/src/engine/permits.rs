use std::sync::Arc;

use turnlock_core::Kind;

use super::Engine;
use super::acquire::{AcquireRequest, acquire};
use crate::error::Error;
use crate::permits::Permits;

/// The most permits with ids in one acquire: each id is sent in that request and in every renewal.
const MAX_PERMITS_PER_REQUEST: u32 = 10_000;

/// Acquires permits of either kind of semaphore. Returns `None` if the wait limit passes first.
///
/// # Cancel safety
///
/// As [`acquire`].
pub(crate) async fn acquire_permits(
    engine: &Arc<Engine>,
    request: AcquireRequest,
) -> Result<Option<Permits>, Error> {
    let permits = checked_number("permits", request.permits)?;
    if request.name.kind() == Kind::Permits && permits > MAX_PERMITS_PER_REQUEST {
        let reason = format!(
            "{permits} permits with ids are too many for one acquire; use at most {MAX_PERMITS_PER_REQUEST}"
        );
        return Err(Error::bad_argument("permits", reason));
    }
    let guard = engine.shared.on_runtime(acquire(engine, request)).await?;
    Ok(guard.map(Permits::new))
}

/// Checks a number of permits or a count. The limit is that of Redisson, which counts in 32 bits.
pub(crate) fn checked_number(argument: &'static str, number: u32) -> Result<u32, Error> {
    if number == 0 || i32::try_from(number).is_err() {
        let reason = format!("{number} is out of range; use a number from 1 to {}", i32::MAX);
        return Err(Error::bad_argument(argument, reason));
    }
    Ok(number)
}
