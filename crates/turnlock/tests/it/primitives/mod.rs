//! What each primitive guarantees beyond the conformance suite.

mod any_semaphore;
mod blocking;
mod fair;
mod fenced;
mod latch;
mod latch_faults;
mod mutex;
mod mutual_exclusion;
mod permits;
mod queue_faults;
mod read_write;
mod read_write_roles;
mod regressions;
mod semaphore;
mod semaphore_faults;

pub(crate) use mutual_exclusion::cases as mutex_cases;

use crate::Case;
use crate::conformance::unlock_after;
use crate::fixture::Kind;

/// The cases for every store.
pub(crate) const CASES: &[(Kind, &[Case])] = &[
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

/// The cases that need a server.
pub(crate) const REDIS_CASES: &[(Kind, &[Case])] = &[
    (Kind::Fair, queue_faults::FAIR_CASES),
    (Kind::Read, queue_faults::READ_WRITE_CASES),
    (Kind::Fair, fair::REDIS_CASES),
    (Kind::Fenced, fenced::REDIS_CASES),
    (Kind::Semaphore, semaphore_faults::CASES),
    (Kind::Permits, semaphore_faults::CASES),
    (Kind::Latch, latch_faults::CASES),
    (Kind::Permits, permits::REDIS_CASES),
    (Kind::Read, read_write_roles::REDIS_CASES),
    (Kind::Lock, regressions::REDIS_CASES),
];

/// The cases that need a server whose clock can be set.
pub(crate) const CLOCK_CASES: &[(Kind, &[Case])] = &[(Kind::Fenced, fenced::CLOCK_CASES)];
