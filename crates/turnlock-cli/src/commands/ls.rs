use std::cmp::Reverse;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use turnlock::Client;

use super::lock_view::{HolderView, LockView};
use super::screen;
use super::table::Table;
use crate::arguments::{LsArguments, SortBy, StoreArguments};
use crate::escape::{escape, json_line};

/// `turnlock ls`: lists locks and their holders.
pub(crate) async fn ls(store: &StoreArguments, arguments: LsArguments) -> anyhow::Result<ExitCode> {
    let client = super::connect(store, Client::builder()).await?;
    let found = client.find(&arguments.pattern, arguments.limit).await?;
    let now = SystemTime::now();
    let mut locks = LockView::load(&client, found.items).await?;
    locks.retain(|lock| is_wanted(lock, &arguments, now));
    sort(&mut locks, arguments.sort);
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
        let LsArguments { pattern, holder, older_than, kind, .. } = &arguments;
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

/// Returns `true` if the lock passes all filters.
fn is_wanted(lock: &LockView, arguments: &LsArguments, now: SystemTime) -> bool {
    let LsArguments { holder, older_than, kind, .. } = arguments;
    let is_held_by = |text: &String| lock.holders.iter().any(|holder| is_named(holder, text));
    let is_older = |age: Duration| {
        lock.holders.iter().filter_map(|holder| now.duration_since(holder.since?).ok()).any(|held| held > age)
    };
    holder.as_ref().is_none_or(is_held_by)
        && older_than.is_none_or(is_older)
        && kind.as_deref().is_none_or(|kind| lock.kind == Some(kind))
}

/// Returns `true` if one of the names of a holder contains this text.
fn is_named(HolderView { owner, host, pid, label, .. }: &HolderView, text: &str) -> bool {
    let address = host.as_ref().zip(*pid).map(|(host, pid)| format!("{host}:{pid}"));
    let names = [address.as_ref(), label.as_ref(), Some(owner)];
    names.into_iter().flatten().any(|name| name.contains(text))
}

/// Sorts locks that are in the order of their names. What is not known comes last.
fn sort(locks: &mut [LockView], by: SortBy) {
    let since = |lock: &LockView| lock.holders.iter().filter_map(|holder| holder.since).min();
    match by {
        SortBy::Name => {}
        SortBy::Age => locks.sort_by_key(|lock| (since(lock).is_none(), since(lock))),
        SortBy::Ttl => locks.sort_by_key(|lock| (lock.ttl.is_none(), lock.ttl)),
        SortBy::Waiters => locks.sort_by_key(|lock| Reverse(lock.queue.len())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::lock_view::WaiterView;
    use super::super::lock_view::tests::held;
    use super::*;
    use crate::arguments::{Arguments, Command};

    fn arguments(text: &str) -> LsArguments {
        let words = ["turnlock", "ls"].into_iter().chain(text.split_whitespace());
        match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Ls(arguments)) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn filters_select_locks() {
        // Held since 1.5 s.
        let (lock, now) = (held("orders"), SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        for (text, is_expected) in [
            ("", true),
            ("--holder web-1", true),
            ("--holder web-1:42", true),
            ("--holder deploy", true),
            ("--holder 07070707", true),
            ("--holder web-2", false),
            ("--older-than 58s", true),
            ("--older-than 59s", false),
            ("--kind lock", true),
            ("--kind fair-lock", false),
            ("--kind lock --holder web-2", false),
        ] {
            assert_eq!(is_wanted(&lock, &arguments(text), now), is_expected, "{text}");
        }
        assert!(!is_wanted(&LockView::absent("free"), &arguments("--older-than 0s"), now));
    }

    #[test]
    fn locks_are_sorted_and_the_unknown_comes_last() {
        let (mut old, mut young, free) = (held("c"), held("b"), LockView::absent("a"));
        old.holders[0].since = Some(SystemTime::UNIX_EPOCH);
        (old.ttl, young.ttl) = (Some(Duration::from_secs(9)), Some(Duration::from_secs(5)));
        young.queue = vec![WaiterView { owner: "x".into(), host: None, pid: None, label: None }];
        let sorted = |by| {
            let mut locks = [free.clone(), young.clone(), old.clone()];
            sort(&mut locks, by);
            locks.map(|lock| lock.name).concat()
        };
        assert_eq!((sorted(SortBy::Name), sorted(SortBy::Age)), ("abc".to_owned(), "cba".to_owned()));
        assert_eq!((sorted(SortBy::Ttl), sorted(SortBy::Waiters)), ("bca".to_owned(), "bac".to_owned()));
    }
}
