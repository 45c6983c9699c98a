//! `turnlock status`: whether stores work, in one line each, as a plugin of Nagios.

mod line;
mod state;
mod store_status;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use self::state::State;
use self::store_status::StoreStatus;
use crate::arguments::StoreArguments;
use crate::commands::screen;
use crate::escape::json_line;
use crate::status_arguments::StatusArguments;

pub(crate) use self::state::UNKNOWN;

/// Checks all stores at once, and prints them in the order of the arguments.
pub(crate) async fn status(store: &StoreArguments, arguments: StatusArguments) -> anyhow::Result<ExitCode> {
    let arguments = Arc::new(arguments);
    let password_file = &store.password_file;
    let one = |url: &String| StoreArguments {
        store: Some(url.clone()),
        system: false,
        password_file: password_file.clone(),
    };
    let stores = match &arguments.urls[..] {
        [] => vec![store.clone()],
        urls => urls.iter().map(one).collect(),
    };
    let check = |store: StoreArguments| {
        let arguments = Arc::clone(&arguments);
        tokio::spawn(async move { StoreStatus::check(&store, &arguments).await })
    };
    let checks: Vec<_> = stores.into_iter().map(check).collect();
    let (has_one, mut worst) = (checks.len() == 1, State::Ok);
    let mut out = anstream::stdout().lock();
    for check in checks {
        let status = check.await?;
        worst = worst.max(status.state);
        if arguments.json {
            writeln!(out, "{}", json_line(&status)?)?;
        } else if std::io::stdout().is_terminal() {
            line::wrapped(&mut out, &status, screen::width().unwrap_or(80))?;
        } else {
            // The output of a plugin has performance data once.
            let data = if has_one { line::performance_data(&status, &arguments) } else { String::new() };
            writeln!(out, "{}{data}", line::plain(&status))?;
        }
    }
    out.flush()?;
    Ok(worst.exit_code())
}
