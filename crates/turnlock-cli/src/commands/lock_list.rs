//! The filters and orders of a list of locks.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use super::lock_view::{HolderView, LockView};
use crate::list_arguments::{ListArguments, SortBy};

/// Returns `true` if the lock passes all filters.
pub(super) fn is_wanted(lock: &LockView, arguments: &ListArguments, now: SystemTime) -> bool {
    let ListArguments { holder, older_than, kind, .. } = arguments;
    let is_older = |age: Duration| {
        lock.holders.iter().filter_map(|holder| now.duration_since(holder.since?).ok()).any(|held| held > age)
    };
    holder.as_ref().is_none_or(|text| is_held_by(lock, text))
        && older_than.is_none_or(is_older)
        && kind.as_deref().is_none_or(|kind| lock.kind == Some(kind))
}

/// Returns `true` if one of the names of a holder contains this text.
pub(super) fn is_held_by(lock: &LockView, text: &str) -> bool {
    lock.holders.iter().any(|HolderView { owner, host, pid, label, .. }| {
        let address = host.as_ref().zip(*pid).map(|(host, pid)| format!("{host}:{pid}"));
        let names = [address.as_ref(), label.as_ref(), Some(owner)];
        names.into_iter().flatten().any(|name| name.contains(text))
    })
}

/// Sorts locks that are in the order of their names. What is not known comes last.
pub(super) fn sort<L: Borrow<LockView>>(locks: &mut [L], by: SortBy) {
    let since = |lock: &LockView| lock.holders.iter().filter_map(|holder| holder.since).min();
    match by {
        SortBy::Name => {}
        SortBy::Age => locks.sort_by_cached_key(|lock| {
            let since = since(lock.borrow());
            (since.is_none(), since)
        }),
        SortBy::Ttl => locks.sort_by_key(|lock| (lock.borrow().ttl.is_none(), lock.borrow().ttl)),
        SortBy::Waiters => locks.sort_by_cached_key(|lock| Reverse(lock.borrow().waiting())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::lock_view::WaiterView;
    use super::super::lock_view::tests::held;
    use super::*;
    use crate::arguments::{Arguments, Command};

    fn arguments(text: &str) -> ListArguments {
        let words = ["turnlock", "ls"].into_iter().chain(text.split_whitespace());
        match Arguments::try_parse_from(words).map(|arguments| arguments.command) {
            Ok(Command::Ls(arguments)) => arguments.list,
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
