use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use turnlock_core::Moment;
use turnlock_core::tally::{self, Parted, Parting};

use crate::clock;
use crate::engine::{Engine, Hold};
use crate::error::Error;
use crate::guard::Guard;
use crate::multi_guard::LostMember;

/// Several holds that stand and fall together: as long as `need` of them are believed in.
///
/// Members may join as long as the group is open, so the answer of a slow server is of use although nobody waited for it.
/// Once it is closed, who comes is given back at once.
#[derive(Debug)]
pub(crate) struct Group {
    /// Whose timers are used.
    pub(crate) engine: Arc<Engine>,
    need: usize,
    total: usize,
    /// How long giving back waits for the slow, where enough others have confirmed.
    farewell: Duration,
    state: Mutex<State>,
    joined: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its number among the members.
    guards: Vec<(usize, Guard)>,
    closed: bool,
    /// What was told to be lost does not come back.
    lost: Option<LostMember>,
}

impl Group {
    pub(crate) fn new(engine: &Arc<Engine>, need: usize, total: usize, farewell: Duration) -> Arc<Self> {
        let engine = Arc::clone(engine);
        Arc::new(Self { engine, need, total, farewell, state: Mutex::default(), joined: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more member is held. Where it comes too late, it is given back.
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

    /// Ends the group, and hands out what it holds, in the order of joining.
    pub(crate) fn close(&self) -> Vec<Guard> {
        let mut state = self.state();
        state.closed = true;
        std::mem::take(&mut state.guards).into_iter().map(|(_, guard)| guard).collect()
    }

    /// How many members are believed in.
    pub(crate) fn held(&self) -> usize {
        self.state().guards.iter().filter(|(_, guard)| guard.is_valid()).count()
    }

    /// The fencing token of a member, where that is held and has one.
    pub(crate) fn token(&self, member: usize) -> Option<u64> {
        self.state().guards.iter().find(|(number, _)| *number == member)?.1.token()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.lost().is_none() && !self.state().closed
    }

    /// Until when enough members are believed in.
    pub(crate) fn believed_until(&self) -> Moment {
        if !self.is_valid() {
            return clock::now();
        }
        let valid = |(_, guard): &(usize, Guard)| guard.is_valid().then(|| guard.hold().believed_until());
        let ends = self.state().guards.iter().filter_map(valid).collect();
        tally::believed_until(self.need, ends).unwrap_or_else(clock::now)
    }

    /// Which member was lost, if so many were that too few are left.
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

    /// Waits until the group is lost. Never ready when it is given back first.
    pub(crate) async fn until_lost(&self) -> LostMember {
        loop {
            let mut joined = pin!(self.joined.notified());
            joined.as_mut().enable();
            if let Some(lost) = self.lost() {
                return lost;
            }
            let mut ends: FuturesUnordered<_> =
                self.standing().into_iter().map(|hold| async move { hold.until_lost().await }).collect();
            if ends.is_empty() {
                // Given back.
                return std::future::pending().await;
            }
            select(ends.next(), joined).await;
        }
    }

    fn standing(&self) -> Vec<Arc<Hold>> {
        let state = self.state();
        let holds = state.guards.iter().map(|(_, guard)| guard.hold());
        holds.filter(|hold| hold.lost().is_none()).map(Arc::clone).collect()
    }

    /// Gives back all members at once, and waits until so many have confirmed as are needed to hold. Those that are late
    /// are left to their engines, as all are when this future is dropped.
    pub(crate) async fn give_back(&self) -> Result<(), Error> {
        // The last to join goes first: see `MultiLock` for whom this helps.
        let guards = self.close().into_iter().rev();
        let mut parting = Parting::new(self.total, self.need, guards.len());
        let mut releases: FuturesUnordered<_> = guards.map(Guard::unlock).collect();
        let mut in_a_hurry = false;
        let mut late = pin!(tokio::time::sleep(self.farewell));
        let mut gravest: Option<Error> = None;
        loop {
            match parting.outcome(in_a_hurry) {
                Some(Parted::Free) => return Ok(()),
                Some(Parted::Lost | Parted::InDoubt) => return gravest.map_or(Ok(()), Err),
                None => {}
            }
            let outcome = tokio::select! {
                Some(outcome) = releases.next() => outcome,
                () = &mut late, if !in_a_hurry => {
                    in_a_hurry = true;
                    continue;
                }
            };
            match &outcome {
                Ok(()) => parting.freed(),
                Err(Error::Lost { .. }) => parting.gone(),
                Err(_) => parting.failed(),
            }
            if let Err(error) = outcome
                && gravest.as_ref().is_none_or(|known| gravity(known) < gravity(&error))
            {
                gravest = Some(error);
            }
        }
    }
}

/// How much it matters to the one who gives back: what was lost may have been done twice.
fn gravity(error: &Error) -> u8 {
    match error {
        Error::Lost { .. } => 2,
        Error::InDoubt { .. } | Error::Unavailable { .. } => 0,
        _ => 1,
    }
}
