//! What each primitive guarantees on Redis, beyond the conformance suite.

mod fair;
mod fenced;
mod herds;
mod latch_faults;
mod queue_faults;
mod regressions;
mod semaphore_faults;

use crate::Case;
use crate::fixture::Kind;

/// The cases that need a server.
pub(crate) const CASES: &[(Kind, &[Case])] = &[
    (Kind::Fair, queue_faults::FAIR_CASES),
    (Kind::Read, queue_faults::READ_WRITE_CASES),
    (Kind::Fair, fair::CASES),
    (Kind::Fenced, fenced::CASES),
    (Kind::Semaphore, semaphore_faults::CASES),
    (Kind::Permits, semaphore_faults::CASES),
    (Kind::Latch, latch_faults::CASES),
    (Kind::Permits, semaphore_faults::PERMIT_CASES),
    (Kind::Lock, regressions::CASES),
    (Kind::Read, herds::READ_WRITE_CASES),
    (Kind::Semaphore, herds::SEMAPHORE_CASES),
    (Kind::Permits, herds::PERMIT_CASES),
    (Kind::Latch, herds::LATCH_CASES),
];

/// The cases that need a server whose clock can be set.
pub(crate) const CLOCK_CASES: &[(Kind, &[Case])] = &[(Kind::Fenced, fenced::CLOCK_CASES)];
