//! `turnlock run`.

mod blocked_stderr;
mod command;
mod exclusion;
mod lost_lock;
mod reporting;
mod signals;
mod successor;
mod usage;

use crate::Case;
use crate::store::Store;

/// The cases on a terminal, for every store.
pub(crate) const TERMINAL_CASES: &[Case] = reporting::TERMINAL_CASES;

/// The cases of a store that need no terminal.
pub(crate) fn cases(store: Store) -> impl Iterator<Item = Case> {
    let common = [
        command::CASES,
        exclusion::CASES,
        lost_lock::CASES,
        signals::CASES,
        reporting::CASES,
        blocked_stderr::CASES,
    ];
    let specific = match store {
        Store::Redis => [usage::CASES, lost_lock::REDIS_CASES].concat(),
        Store::File => lost_lock::FILE_CASES.to_vec(),
    };
    common.concat().into_iter().chain(specific)
}
