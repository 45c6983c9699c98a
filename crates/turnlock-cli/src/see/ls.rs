use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use turnlock::Client;

use super::picture::Picture;
use super::screen;
use super::table::Table;
use crate::arguments::{LsArguments, StoreArguments};
use crate::visible::{json, visible};

/// `turnlock ls`: what there is, and who holds it.
pub(crate) async fn ls(store: &StoreArguments, arguments: LsArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder()).await?;
    let found = client.find(&arguments.pattern, arguments.limit).await?;
    let pictures = Picture::of_all(&client, found.things).await?;
    let mut out = anstream::stdout().lock();
    if arguments.json {
        for picture in &pictures {
            writeln!(out, "{}", json(picture)?)?;
        }
    } else if !pictures.is_empty() {
        for line in Table::new(&pictures, SystemTime::now()).lines(screen::width()) {
            writeln!(out, "{line}")?;
        }
    } else if std::io::stdout().is_terminal() {
        writeln!(anstream::stderr(), "nothing matches {}", visible(&arguments.pattern))?;
    }
    out.flush()?;
    if !found.is_complete {
        writeln!(
            anstream::stderr(),
            "turnlock: these are {} and not all there are: give a narrower pattern, or a higher --limit",
            pictures.len()
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
