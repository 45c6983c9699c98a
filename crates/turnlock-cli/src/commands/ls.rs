use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use turnlock::{Client, Glob};

use super::lock_list;
use super::lock_view::LockView;
use super::screen;
use super::table::Table;
use super::wait_view::DeadlockView;
use crate::arguments::{LsArguments, StoreArguments};
use crate::escape::{escape, escape_message, json_line};
use crate::list_arguments::ListArguments;

/// `turnlock ls`: lists locks and their holders.
pub(crate) async fn ls(store: &StoreArguments, arguments: LsArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder()).await?;
    if arguments.deadlocks {
        return deadlocks(&client, &arguments).await;
    }
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
        let table =
            if arguments.waiters { Table::with_waiters(&locks, now) } else { Table::new(&locks, now) };
        for line in table.lines(width) {
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

/// Exit code if there is a certain deadlock.
const DEADLOCK: u8 = 1;

/// `turnlock ls --deadlocks`: lists waiters that wait for each other.
async fn deadlocks(client: &Client, arguments: &LsArguments) -> anyhow::Result<ExitCode> {
    let names = Glob::new(&arguments.pattern);
    let (mut found, is_complete) = client.search_deadlocks().await?;
    found.retain(|deadlock| deadlock.waiters.iter().any(|waiter| names.matches(&waiter.name)));
    let mut out = anstream::stdout().lock();
    for deadlock in &found {
        if arguments.json {
            writeln!(out, "{}", json_line(&DeadlockView::new(deadlock))?)?;
        } else {
            let certainty = if deadlock.is_certain { "deadlock" } else { "possible deadlock" };
            writeln!(out, "{certainty}: {}", escape_message(&deadlock.to_string()))?;
        }
    }
    out.flush()?;
    if found.is_empty() && std::io::stdout().is_terminal() {
        writeln!(anstream::stderr(), "no deadlock")?;
    }
    if !is_complete {
        writeln!(
            anstream::stderr(),
            "turnlock: the store has more announced waits than one request reads: not all deadlocks are found"
        )?;
    }
    let is_certain = found.iter().any(|deadlock| deadlock.is_certain);
    Ok(if is_certain { ExitCode::from(DEADLOCK) } else { ExitCode::SUCCESS })
}
