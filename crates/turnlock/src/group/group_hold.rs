use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use turnlock_core::tally::{self, ReleaseOutcome, ReleaseTally};

use crate::engine::{Engine, Hold};
use crate::{Error, Guard, LostReason, clock};

/// The member whose loss ended a [`MultiGuard`](crate::MultiGuard).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostMember {
    /// Its index among the locks as given.
    pub member: usize,
    /// Its name.
    pub name: String,
    /// Why it was lost.
    pub reason: LostReason,
}

impl LostMember {
    pub(super) fn into_error(self) -> Error {
        Error::Lost { name: self.name, reason: self.reason }
    }
}

/// Several holds that are valid together, while `need` of them are valid.
///
/// Members can join while the hold is open, so a late reply of a slow server counts. A member that joins a closed hold
/// is released at once.
#[derive(Debug)]
pub(crate) struct GroupHold {
    /// The engine whose timers are used.
    pub(crate) engine: Arc<Engine>,
    need: usize,
    total: usize,
    /// How long a release waits for slow members when enough others have confirmed.
    release_timeout: Duration,
    state: Mutex<State>,
    joined: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its index among the members.
    guards: Vec<(usize, Guard)>,
    closed: bool,
    /// Once reported as lost, the hold stays lost.
    lost: Option<LostMember>,
}

impl GroupHold {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        need: usize,
        total: usize,
        release_timeout: Duration,
    ) -> Arc<Self> {
        let (engine, state, joined) = (Arc::clone(engine), Mutex::default(), Notify::new());
        Arc::new(Self { engine, need, total, release_timeout, state, joined })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a held member. Releases it if the hold is closed or lost.
    pub(crate) fn join(&self, member: usize, guard: Guard) {
        let mut state = self.state();
        if state.closed || state.lost.is_some() {
            drop(state);
            return drop(guard);
        }
        state.guards.push((member, guard));
        drop(state);
        self.joined.notify_waiters();
    }

    /// Closes the hold, and returns its guards in the order of joining.
    pub(crate) fn close(&self) -> Vec<Guard> {
        let mut state = self.state();
        state.closed = true;
        std::mem::take(&mut state.guards).into_iter().map(|(_, guard)| guard).collect()
    }

    /// Returns how many members are valid.
    pub(crate) fn held(&self) -> usize {
        self.state().guards.iter().filter(|(_, guard)| guard.is_valid()).count()
    }

    /// Returns the fencing token of a member, if it is held and has one.
    pub(crate) fn token(&self, member: usize) -> Option<u64> {
        self.state().guards.iter().find(|(number, _)| *number == member)?.1.token()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.lost().is_none() && !self.state().closed
    }

    /// Returns until when enough members are valid.
    pub(crate) fn valid_until(&self) -> Instant {
        let valid = |(_, guard): &(usize, Guard)| guard.is_valid().then(|| guard.hold().valid_until());
        let ends = || self.state().guards.iter().filter_map(valid).collect();
        let end = if self.is_valid() { tally::valid_until(self.need, ends()) } else { None };
        Instant::now() + end.map_or(Duration::ZERO, |end| end.since(clock::now()))
    }

    /// Returns a lost member, if fewer than `need` are left.
    pub(crate) fn lost(&self) -> Option<LostMember> {
        let mut state = self.state();
        if state.lost.is_none() && !state.closed {
            let lost = state.guards.iter().filter_map(|(member, guard)| {
                let reason = guard.hold().lost()?;
                Some(LostMember { member: *member, name: guard.name().to_owned(), reason })
            });
            let lost: Vec<_> = lost.collect();
            if state.guards.len() - lost.len() < self.need {
                state.lost = lost.into_iter().next();
            }
        }
        state.lost.clone()
    }

    /// Waits until the hold is lost. Stays pending if it is released first.
    pub(crate) async fn until_lost(&self) -> LostMember {
        loop {
            let mut joined = pin!(self.joined.notified());
            joined.as_mut().enable();
            if let Some(lost) = self.lost() {
                return lost;
            }
            let mut ends: FuturesUnordered<_> = self
                .remaining_holds()
                .into_iter()
                .map(|hold| async move { hold.until_lost().await })
                .collect();
            if ends.is_empty() {
                // Released.
                return std::future::pending().await;
            }
            select(ends.next(), joined).await;
        }
    }

    fn remaining_holds(&self) -> Vec<Arc<Hold>> {
        let state = self.state();
        let holds = state.guards.iter().map(|(_, guard)| guard.hold());
        holds.filter(|hold| hold.lost().is_none()).map(Arc::clone).collect()
    }

    /// Releases all members at the same time, and waits until as many have confirmed as are needed to hold.
    ///
    /// The engines finish the rest, and all of it if this future is dropped.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        // In reverse order of joining: the first member by key, for which others wait, is released last.
        let guards = self.close().into_iter().rev();
        let mut tally = ReleaseTally::new(self.total, self.need, guards.len());
        let mut releases: FuturesUnordered<_> = guards.map(Guard::unlock).collect();
        let mut is_late = false;
        let mut late = pin!(tokio::time::sleep(self.release_timeout));
        let mut gravest: Option<Error> = None;
        loop {
            match tally.outcome(is_late) {
                Some(ReleaseOutcome::Free) => return Ok(()),
                Some(ReleaseOutcome::Lost | ReleaseOutcome::InDoubt) => return gravest.map_or(Ok(()), Err),
                None => {}
            }
            let outcome = tokio::select! {
                Some(outcome) = releases.next() => outcome,
                () = &mut late, if !is_late => {
                    is_late = true;
                    continue;
                }
            };
            match &outcome {
                Ok(()) => tally.freed(),
                Err(Error::Lost { .. }) => tally.gone(),
                Err(_) => tally.failed(),
            }
            if let Err(error) = outcome
                && gravest.as_ref().is_none_or(|known| gravity(known) < gravity(&error))
            {
                gravest = Some(error);
            }
        }
    }
}

/// Orders errors: after a loss, the work may have run twice.
fn gravity(error: &Error) -> u8 {
    match error {
        Error::Lost { .. } => 2,
        Error::InDoubt { .. } | Error::Unavailable { .. } => 0,
        _ => 1,
    }
}
