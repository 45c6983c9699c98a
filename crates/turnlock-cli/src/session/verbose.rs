//! The messages that `run` prints with `--verbose`, in addition to those about problems.

use std::time::{Duration, SystemTime};

use super::event::Event;
use crate::commands::LockHolders;
use crate::duration::format_short;

/// The text of an event with `--verbose`.
pub(crate) fn message(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Waiting { holders } => match held_by(*holders) {
            Some(held_by) => format!("waiting, {held_by}"),
            None => "waiting".to_owned(),
        },
        Event::Acquired { token, waited_ms, .. } => {
            let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
            format!("acquired after {}{token}", millis(*waited_ms))
        }
        Event::Started { pid } => format!("started the command, pid {pid}"),
        Event::Signal { signal, forwarded: true } => format!("forwarded {signal} to the command"),
        Event::Signal { signal, forwarded: false } => format!("received {signal}"),
        Event::Exited { code: Some(code), .. } => format!("the command exited with {code}"),
        Event::Exited { signal: Some(signal), .. } => format!("{signal} ended the command"),
        Event::Released => "released".to_owned(),
        Event::UnlockDelayed { for_ms } => format!("stays held for {} (--at-least)", millis(*for_ms)),
        Event::GaveUp { .. } => return gave_up(event),
        _ => return event.message(),
    })
}

/// The text of a conflict, which is also printed on a terminal.
pub(crate) fn gave_up(event: &Event<'_>) -> Option<String> {
    let Event::GaveUp { waited_ms, holders, flag } = event else { return None };
    let not_acquired = match flag {
        Some("-n") => "not acquired (-n)".to_owned(),
        Some(flag) => format!("not acquired after {} ({flag})", millis(*waited_ms)),
        None => format!("not acquired after {}", millis(*waited_ms)),
    };
    Some(match (held_by(*holders), holders) {
        (Some(held_by), _) => format!("{not_acquired}, {held_by}"),
        (None, Some(_)) => format!("{not_acquired}, it was held and is free now"),
        (None, None) => not_acquired,
    })
}

fn held_by(holders: Option<&LockHolders>) -> Option<String> {
    holders?.text(SystemTime::now())
}

fn millis(millis: u128) -> String {
    format_short(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}
