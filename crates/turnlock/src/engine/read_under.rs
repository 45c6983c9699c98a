use std::panic::Location;
use std::sync::Arc;

use turnlock_core::Kind;

use super::acquire::{AcquireRequest, WaitLimit, acquire};
use super::call_site::CallSite;
use super::hold::{Hold, LeaseMode};
use super::{Engine, describe};
use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// Acquires the read lock for the owner of a write hold, past the queue.
///
/// On the wire the reader gets a new owner, so that no late step of an earlier reader can affect it.
///
/// # Cancel safety
///
/// As [`acquire`].
pub(crate) async fn read_under(
    engine: &Arc<Engine>,
    write: &Arc<Hold>,
    lease_mode: LeaseMode,
    replicas: u32,
) -> Result<Guard, Error> {
    if write.name.kind() != Kind::Write {
        let reason =
            format!("downgrade of {}: only a write lock can become a read lock", describe(&write.name));
        return Err(Error::Unsupported(reason));
    }
    if let Some(reason) = write.lost() {
        return Err(Error::Lost { name: write.name.to_string(), reason });
    }
    let name = write.name.with_kind(Kind::Read);
    let under = Some(Arc::clone(write));
    let request = AcquireRequest {
        name,
        lease_mode,
        wait_limit: WaitLimit::Endless,
        permits: 1,
        replicas,
        accepts_hand_over: false,
        under,
        call_site: write.call_site.unwrap_or_else(|| CallSite::new(Location::caller())),
    };
    let lost = || Error::Lost { name: write.name.to_string(), reason: LostReason::Taken };
    acquire(engine, request).await?.ok_or_else(lost)
}
