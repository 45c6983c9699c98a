use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use turnlock_core::{Kind, Moment};

use super::engine::Engine;
use super::state::{Caller, Hold, MAX_LINKED, Wakeup};
use crate::activity::{HeldRecord, MAX_HELD, WaitRecord, label_of};

/// A caller that waits, and what its task holds.
pub(super) struct Waiting<'a> {
    pub(super) wakeup: &'a Arc<Wakeup>,
    pub(super) caller: &'a Caller,
    /// Each with whether the waiting task itself certainly holds it.
    pub(super) held: Vec<(&'a Arc<Hold>, bool)>,
    /// Its task runs several futures at the same time, any of which may release what the task holds.
    pub(super) is_concurrent: bool,
}

impl<'a> Waiting<'a> {
    /// `holds` are those that have a link to the caller, and others.
    pub(super) fn new(wakeup: &'a Arc<Wakeup>, holds: &'a [Arc<Hold>]) -> Option<Self> {
        let caller = wakeup.caller.as_ref()?;
        let held = holds.iter().filter_map(|hold| {
            let is_exact = hold.call_site?.holds_for(&caller.call_site)?;
            hold.is_valid().then(|| (hold, is_exact && !hold.inner().may_be_shared))
        });
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|(hold, is_exact)| (!is_exact, hold.began, hold.owner.clone()));
        held.truncate(MAX_HELD);
        // What was granted during the wait was acquired by another future of the task. If not all holds are known, there
        // may be such a one.
        let is_of_task = |hold: &Hold| hold.call_site.is_some_and(|at| at.has_runner_of(&caller.call_site));
        let is_later = |hold: &Hold| hold.began.max(hold.granted) > caller.began;
        let is_concurrent =
            holds.len() >= MAX_LINKED || holds.iter().any(|hold| is_later(hold) && is_of_task(hold));
        Some(Self { wakeup, caller, held, is_concurrent })
    }

    /// Notes which of the tasks wait for several locks at a time: such a task runs several futures.
    pub(super) fn find_concurrent(waits: &mut [Self], engine: &Engine) {
        let linked = waits.iter().filter(|wait| wait.held.iter().any(|(_, is_exact)| *is_exact));
        let mut numbers: HashMap<_, _> =
            linked.filter_map(|wait| Some((wait.caller.call_site.runner()?, 0))).collect();
        if numbers.is_empty() {
            return;
        }
        engine.wait_queues.count_waits(&mut numbers);
        for wait in waits {
            let number = wait.caller.call_site.runner().and_then(|runner| numbers.get(&runner));
            wait.is_concurrent |= number.is_some_and(|number| *number > 1);
        }
    }

    /// What identifies the wait while its wake-up exists.
    pub(super) fn key(&self) -> usize {
        Arc::as_ptr(self.wakeup) as usize
    }

    /// Returns `true` if it can be part of a deadlock.
    pub(super) fn is_linked(&self) -> bool {
        !self.held.is_empty() && self.caller.name.kind() != Kind::Latch
    }

    /// What is announced of it, with the proof that it has waited.
    pub(super) fn record(&self, engine: &Engine, proven: Option<(u64, u64)>, now: Moment) -> WaitRecord {
        let Caller { call_site, began, ends, name, owner } = self.caller;
        let held = self.held.iter().map(|(hold, is_exact)| HeldRecord {
            key: hold.name.key().to_owned(),
            kind: label_of(hold.name.kind()),
            owner: hold.owner.to_string(),
            exact: *is_exact,
            fixed: hold.inner().leases.renewal.is_none(),
        });
        // A latch is awaited without a call site.
        let shows_call_site = engine.settings.announce_call_sites && name.kind() != Kind::Latch;
        WaitRecord {
            key: name.key().to_owned(),
            kind: label_of(name.kind()),
            owner: engine.client.owner(*owner).to_string(),
            task: call_site.task(),
            waited_ms: millis(now.since(*began)),
            left_ms: (*ends != Moment::NEVER).then(|| millis(ends.since(now))),
            at: shows_call_site.then(|| call_site.to_string()),
            group: call_site.is_in_group,
            holds: held.collect(),
            proven,
        }
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
