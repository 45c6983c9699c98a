use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use turnlock::{Client, Error};

use super::lock_view::LockView;
use super::stop_signal::{StopSignal, SuspendSignal};
use super::watch_output::WatchOutput;
use crate::arguments::{StoreArguments, WatchArguments};

/// How long one query is retried before the outage is shown.
const RETRY_FOR: Duration = Duration::from_secs(2);

/// `turnlock watch`: prints locks as they change, until a signal ends it.
pub(crate) async fn watch(store: &StoreArguments, arguments: WatchArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder().retry_for(RETRY_FOR)).await?;
    let mut stop = StopSignal::new()?;
    tokio::select! {
        code = stop.received() => Ok(code),
        ended = follow(&client, &arguments) => match ended? {},
    }
}

async fn follow(client: &Client, arguments: &WatchArguments) -> anyhow::Result<Infallible> {
    // An error of the first query ends the program: the store or the name may be wrong. Later outages are retried.
    let (locks, is_complete) = query(client, arguments).await?;
    let mut output = WatchOutput::open(arguments.json)?;
    let mut suspend = SuspendSignal::new()?;
    output.show(locks, is_complete)?;
    loop {
        let next = async {
            tokio::time::sleep(arguments.interval).await;
            query(client, arguments).await
        };
        let found = tokio::select! {
            found = next => found,
            () = suspend.received() => {
                output.suspend(SuspendSignal::stop)?;
                continue;
            }
        };
        match found {
            Ok((locks, is_complete)) => output.show(locks, is_complete)?,
            Err(error @ Error::Unavailable { .. }) => output.show_unavailable(&error)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Queries the locks. The flag is `true` if the list is complete.
async fn query(client: &Client, arguments: &WatchArguments) -> Result<(Vec<LockView>, bool), Error> {
    let (inspections, is_complete) = if let Some(name) = &arguments.name {
        (client.inspect(name).await?.into_iter().collect(), true)
    } else {
        let found = client.find("*", arguments.limit).await?;
        (found.items, found.is_complete)
    };
    Ok((LockView::load(client, inspections).await?, is_complete))
}
