//! Commands that look, and the few that set right what they saw.

mod acl;
mod bench;
mod change_log;
mod completions;
mod doctor;
mod ls;
mod man;
mod owner_name;
mod picture;
mod screen;
mod show;
mod span;
mod stop_signal;
mod table;
mod unlock;
mod view;
mod watch;

use turnlock::{Builder, Client, Error};

use crate::arguments::StoreArguments;
use crate::store;

pub(crate) use acl::{acl, primitive_parser};
pub(crate) use bench::bench;
pub(crate) use completions::completions;
pub(crate) use doctor::doctor;
pub(crate) use ls::ls;
pub(crate) use man::man;
pub(crate) use show::show;
pub(crate) use unlock::unlock;
pub(crate) use watch::watch;

/// Connects to a store on which there can be something of others.
async fn connect(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    if store::is_memory(arguments) {
        let reason = "locks in memory are those of one process, and this one has just begun: there is nothing to see. Name \
                      the store where your locks are, with --store or TURNLOCK_STORE";
        return Err(Error::Unsupported(reason.to_owned()).into());
    }
    store::connect(arguments, builder).await
}
