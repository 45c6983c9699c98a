//! `turnlock run`.

mod command;
mod exclusion;
mod gone_first;
mod losing;
mod signals;
mod telling;
mod unread;
mod usage;

use crate::Case;
use crate::store::Store;

/// The cases on a terminal, for every store.
pub(crate) const TERMINAL_CASES: &[Case] = telling::TERMINAL_CASES;

pub(crate) fn cases(store: Store) -> impl Iterator<Item = Case> {
    let every =
        [command::CASES, exclusion::CASES, losing::CASES, signals::CASES, telling::CASES, unread::CASES];
    let one = match store {
        Store::Redis => [usage::CASES, losing::REDIS_CASES].concat(),
        Store::File => losing::FILE_CASES.to_vec(),
    };
    every.concat().into_iter().chain(one)
}
