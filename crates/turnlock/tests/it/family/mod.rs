//! What the other members of the family promise beyond the conformance suite, a file for each of them.

mod fair;
mod fenced;
mod latch;
mod latch_faults;
mod mutex;
mod mutexes;
mod permits;
mod queue_faults;
mod read_and_write;
mod read_write;
mod second_thoughts;
mod semaphore;
mod semaphore_faults;
mod slots;
mod threads;

pub(crate) use mutexes::cases as mutex_cases;

use crate::Case;
use crate::conformance::keeping;
use crate::rig::Kind;

/// The cases for every store.
pub(crate) const CASES: &[(Kind, &[Case])] = &[
    (Kind::Fair, fair::CASES),
    (Kind::Fenced, fenced::CASES),
    (Kind::Read, read_write::CASES),
    (Kind::Read, keeping::CASES),
    (Kind::Semaphore, semaphore::CASES),
    (Kind::Permits, semaphore::CASES),
    (Kind::Permits, permits::CASES),
    (Kind::Latch, latch::CASES),
    (Kind::Latch, threads::CASES),
    (Kind::Read, read_and_write::CASES),
    (Kind::Lock, second_thoughts::CASES),
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
    (Kind::Read, read_and_write::REDIS_CASES),
    (Kind::Lock, second_thoughts::REDIS_CASES),
];

/// The cases that need a server with a clock of its own.
pub(crate) const CLOCK_CASES: &[(Kind, &[Case])] = &[(Kind::Fenced, fenced::CLOCK_CASES)];
