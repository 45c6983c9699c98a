//! What each primitive guarantees beyond what every lock does.

pub mod any_semaphore;
mod blocking;
pub mod fair;
pub mod fenced;
mod latch;
mod mutex;
mod mutual_exclusion;
mod permits;
mod read_write;
mod read_write_roles;
mod regressions;
mod semaphore;

pub use mutual_exclusion::cases as mutex_cases;

use super::lock::unlock_after;
use super::{Case, Kind};

/// The cases for every store.
pub const CASES: &[(Kind, &[Case])] = &[
    (Kind::Fair, fair::CASES),
    (Kind::Fenced, fenced::CASES),
    (Kind::Read, read_write::CASES),
    (Kind::Read, unlock_after::CASES),
    (Kind::Semaphore, semaphore::CASES),
    (Kind::Permits, semaphore::CASES),
    (Kind::Permits, permits::CASES),
    (Kind::Latch, latch::CASES),
    (Kind::Latch, blocking::CASES),
    (Kind::Read, read_write_roles::CASES),
    (Kind::Lock, regressions::CASES),
];
