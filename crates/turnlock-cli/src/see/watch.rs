use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use turnlock::{Client, Error};

use super::picture::Picture;
use super::stop_signal::StopSignal;
use super::view::View;
use crate::arguments::{StoreArguments, WatchArguments};

/// How long one look may go on asking a store that does not answer, before that is shown.
const PATIENCE: Duration = Duration::from_secs(2);

/// `turnlock watch`: locks as they change hands, until a signal ends it.
pub(crate) async fn watch(store: &StoreArguments, arguments: WatchArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder().retry_for(PATIENCE)).await?;
    let mut stop = StopSignal::new()?;
    tokio::select! {
        code = stop.received() => Ok(code),
        ended = follow(&client, &arguments) => match ended? {},
    }
}

async fn follow(client: &Client, arguments: &WatchArguments) -> anyhow::Result<Infallible> {
    // A store or a name that is no good is told now; what happens to a good one later is not the end.
    let (seen, is_complete) = look(client, arguments).await?;
    let mut view = View::open(arguments.json)?;
    view.show(seen, is_complete)?;
    loop {
        tokio::time::sleep(arguments.interval).await;
        match look(client, arguments).await {
            Ok((seen, is_complete)) => view.show(seen, is_complete)?,
            Err(error @ Error::Unavailable { .. }) => view.trouble(&error)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// What there is, and whether that is all.
async fn look(client: &Client, arguments: &WatchArguments) -> Result<(Vec<Picture>, bool), Error> {
    let (things, is_complete) = if let Some(name) = &arguments.name {
        (client.look_up(name).await?.into_iter().collect(), true)
    } else {
        let found = client.find("*", arguments.limit).await?;
        (found.things, found.is_complete)
    };
    Ok((Picture::of_all(client, things).await?, is_complete))
}
