//! What `turnlock run` and `turnlock hold` share: a lock from connecting to its release, and what is reported of it.

pub(crate) mod countdown;
pub(crate) mod event;
pub(crate) mod held_lock;
mod kind_conflict;
pub(crate) mod lock_session;
mod lock_target;
pub(crate) mod release;
pub(crate) mod reporter;
pub(crate) mod run_lease;
pub(crate) mod signals;
mod stderr_writer;
pub(crate) mod usage;
mod verbose;
mod waiting_line;
