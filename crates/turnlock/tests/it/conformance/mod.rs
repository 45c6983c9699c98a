//! One set of cases for every store.

mod ending;
mod exclusion;
mod holding;
mod input;
mod running;
mod threads;
mod waiting;

use crate::Case;

pub(crate) fn cases() -> impl Iterator<Item = Case> {
    [
        exclusion::CASES,
        holding::CASES,
        waiting::CASES,
        ending::CASES,
        running::CASES,
        input::CASES,
        threads::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}
