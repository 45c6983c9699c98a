use std::sync::Arc;

use turnlock_core::Kind;

use super::acquire::{Ask, Patience, acquire};
use super::hold::{Hold, Term};
use super::{Engine, describe};
use crate::error::{Error, LostReason};
use crate::guard::Guard;

/// Takes the read lock for the owner of a write hold. Does not queue behind those who wait.
///
/// On the wire the reader has an owner of its own, so that no late step of an earlier reader can meet it.
///
/// Cancel-safe as [`acquire`].
pub(crate) async fn read_under(
    engine: &Arc<Engine>,
    write: &Arc<Hold>,
    term: Term,
    replicas: u32,
) -> Result<Guard, Error> {
    if write.name.kind() != Kind::Write {
        let reason = format!("{} is no write lock: only that can become a read lock", describe(&write.name));
        return Err(Error::Unsupported(reason));
    }
    if let Some(reason) = write.lost() {
        return Err(Error::Lost { name: write.name.to_string(), reason });
    }
    let name = write.name.of_other_kind(Kind::Read);
    let under = Some(Arc::clone(write));
    let ask =
        Ask { name, term, patience: Patience::Endless, permits: 1, replicas, is_anybodys: false, under };
    let lost = || Error::Lost { name: write.name.to_string(), reason: LostReason::Taken };
    acquire(engine, ask).await?.ok_or_else(lost)
}
