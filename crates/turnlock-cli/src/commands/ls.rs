use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use turnlock::Client;

use super::lock_list;
use super::lock_view::LockView;
use super::screen;
use super::table::Table;
use crate::arguments::{LsArguments, StoreArguments};
use crate::escape::{escape, json_line};
use crate::list_arguments::ListArguments;

/// `turnlock ls`: lists locks and their holders.
pub(crate) async fn ls(store: &StoreArguments, arguments: LsArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder()).await?;
    let found = client.find(&arguments.pattern, arguments.list.limit).await?;
    let now = SystemTime::now();
    let mut locks = LockView::load(&client, found.items).await?;
    locks.retain(|lock| lock_list::is_wanted(lock, &arguments.list, now));
    lock_list::sort(&mut locks, arguments.list.sort);
    let mut out = anstream::stdout().lock();
    if arguments.json {
        for lock in &locks {
            writeln!(out, "{}", json_line(lock)?)?;
        }
    } else if !locks.is_empty() {
        let width = screen::width().filter(|_| !arguments.wide);
        for line in Table::new(&locks, now).lines(width) {
            writeln!(out, "{line}")?;
        }
    } else if std::io::stdout().is_terminal() {
        let LsArguments { pattern, list: ListArguments { holder, older_than, kind, .. }, .. } = &arguments;
        let has_filter = holder.is_some() || older_than.is_some() || kind.is_some();
        let text = match pattern.as_str() {
            "*" if !has_filter => "no lock is held".to_owned(),
            "*" => "no lock passes the filters".to_owned(),
            pattern => format!("no locks match {}", escape(pattern)),
        };
        writeln!(anstream::stderr(), "{text}")?;
    }
    out.flush()?;
    if !found.is_complete {
        writeln!(
            anstream::stderr(),
            "turnlock: the list is not complete ({} shown): use a narrower pattern, or a higher --limit",
            locks.len()
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
