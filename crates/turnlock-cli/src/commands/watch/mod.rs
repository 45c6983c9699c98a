//! `turnlock watch`: a full-screen view on a terminal, else a line per change.

mod change_lines;
mod change_tracker;
mod found;
mod full_screen;
mod session;
#[cfg_attr(not(unix), path = "no_terminal_signals.rs")]
mod terminal_signals;
mod text_pane;
mod view;
mod view_lines;

use std::process::ExitCode;
use std::time::Duration;

use turnlock::{Client, Error};

use super::stop_signal::StopSignal;
use crate::arguments::{StoreArguments, WatchArguments};
use change_lines::ChangeLines;
use found::Found;
use full_screen::FullScreen;
use session::Session;

/// How long one query is retried before the outage is shown.
const RETRY_FOR: Duration = Duration::from_secs(2);

/// `turnlock watch`: shows locks as they change, until a key or a signal ends it.
pub(crate) async fn watch(store: &StoreArguments, arguments: WatchArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder().retry_for(RETRY_FOR)).await?;
    let mut stop = StopSignal::new()?;
    tokio::select! {
        code = stop.received() => Ok(code),
        ended = follow(&client, &arguments) => ended,
    }
}

async fn follow(client: &Client, arguments: &WatchArguments) -> anyhow::Result<ExitCode> {
    // An error of the first query ends the program: the store or the name may be wrong. Later outages are retried.
    let first = Found::query(client, arguments).await?;
    if !arguments.json && !arguments.plain && FullScreen::is_possible() {
        return Session::open(client, arguments, first)?.run().await;
    }
    let mut output = ChangeLines::new(arguments);
    output.print(&first)?;
    loop {
        tokio::time::sleep(arguments.interval).await;
        match Found::query(client, arguments).await {
            Ok(found) => output.print(&found)?,
            Err(error @ Error::Unavailable { .. }) => output.report_outage(&error)?,
            Err(error) => return Err(error.into()),
        }
    }
}
