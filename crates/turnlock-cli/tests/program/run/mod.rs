//! `turnlock run`.

pub(crate) mod blocked_stderr;
mod command;
mod conflict;
mod cost;
mod exclusion;
mod flock;
mod lost_lock;
mod metrics_file;
mod reporting;
mod signals;
mod slow_exec;
pub(crate) mod successor;
mod usage;

use crate::Case;
use crate::store::Store;
use crate::terminal;

/// The cases of every store that need a tool, and why it is missing, if it is.
pub(crate) fn cases_with_tools() -> [(&'static [Case], Option<String>); 6] {
    [
        (reporting::TERMINAL_CASES, terminal::missing()),
        (conflict::TERMINAL_CASES, terminal::missing()),
        (flock::CASES, flock::missing()),
        (metrics_file::PROMTOOL_CASES, metrics_file::promtool_missing()),
        (slow_exec::CASES, slow_exec::missing()),
        (cost::LINKER_CASES, cost::linker_log_missing()),
    ]
}

/// The cases of a store that need no tool.
pub(crate) fn cases(store: Store) -> impl Iterator<Item = Case> {
    let common = [
        command::CASES,
        conflict::CASES,
        exclusion::CASES,
        lost_lock::CASES,
        metrics_file::CASES,
        signals::CASES,
        reporting::CASES,
        blocked_stderr::CASES,
    ];
    let specific = match store {
        Store::Redis => {
            [usage::CASES, conflict::REDIS_CASES, lost_lock::REDIS_CASES, metrics_file::REDIS_CASES].concat()
        }
        Store::File => [lost_lock::FILE_CASES, cost::FILE_CASES].concat(),
    };
    common.concat().into_iter().chain(specific)
}
