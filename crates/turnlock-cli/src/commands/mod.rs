//! All commands except `run` and `hold`: `ls`, `show`, `watch`, `dashboard`, `unlock`, `doctor`, `status`, `acl`, `bench`, `completions`, `man`.

mod acl;
mod bench;
#[cfg(feature = "dashboard")]
mod dashboard;
mod doctor;
mod fields;
mod lock_holders;
mod lock_list;
mod lock_view;
mod ls;
mod man;
mod owner_name;
mod screen;
mod server_view;
mod show;
mod status;
mod stop_signal;
mod table;
mod unlock;
mod wait_view;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use turnlock::{Builder, Client, Error};

use crate::arguments::{CompletionsArguments, StoreArguments};
use crate::{completion, store};

pub(crate) use acl::acl;
pub(crate) use bench::bench;
#[cfg(feature = "dashboard")]
pub(crate) use dashboard::dashboard;
pub(crate) use doctor::doctor;
pub(crate) use lock_holders::LockHolders;
pub(crate) use ls::ls;
pub(crate) use man::man;
pub(crate) use show::show;
pub(crate) use status::{UNKNOWN as STATUS_UNKNOWN, status};
pub(crate) use unlock::unlock;
pub(crate) use watch::watch;

/// Connects to a store that other processes use. Rejects `memory://`.
async fn connect(arguments: &StoreArguments, builder: Builder) -> anyhow::Result<Client> {
    reject_memory(arguments)?;
    store::connect(arguments, builder).await
}

fn reject_memory(arguments: &StoreArguments) -> Result<(), Error> {
    if store::is_memory(arguments) {
        let reason = "memory:// is private to one process, so there are no locks to inspect: set --store or TURNLOCK_STORE to \
                      the store of your locks";
        return Err(Error::Unsupported(reason.to_owned()));
    }
    Ok(())
}

/// `turnlock completions`: prints the completion script of a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(&completion::script(arguments.shell))?;
    Ok(ExitCode::SUCCESS)
}
