//! The forms that fields of `--json` have in common.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use turnlock::Kind;

use crate::timestamp::rfc_3339;

/// The name of a kind in JSON and tables. The two sides of a read-write lock are one lock.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Spin => "spin-lock",
        Kind::Fenced => "fenced-lock",
        Kind::Fair => "fair-lock",
        Kind::Read | Kind::Write => "read-write-lock",
        Kind::Plain => "plain-lock",
        Kind::Semaphore => "semaphore",
        Kind::Permits => "permit-semaphore",
        Kind::Latch => "latch",
        _ => "unknown",
    }
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
pub(super) fn millis<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let millis = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    millis.serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
pub(super) fn timestamp<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(rfc_3339).serialize(serializer)
}
