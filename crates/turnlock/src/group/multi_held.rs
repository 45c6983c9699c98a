use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use turnlock_core::Moment;
use turnlock_core::tally::{self, ReleaseOutcome, ReleaseTally};

use crate::engine::Engine;
use crate::{Error, Guard, Lock, LostReason, clock};

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

/// The held locks, as a body sees them: they cannot be released.
#[derive(Clone, Debug)]
pub struct MultiHeld {
    hold: Arc<GroupHold>,
}

/// Several holds that are valid together, while `need` of them are valid.
///
/// Members can join while the hold is open, so a late reply of a slow server counts. A member that joins a closed hold
/// is released at once.
#[derive(Debug)]
struct GroupHold {
    /// The engine whose timers are used.
    engine: Arc<Engine>,
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

impl MultiHeld {
    /// Returns a hold of none of these locks, of which `need` will be needed.
    pub(super) fn new(locks: &[Lock], need: usize, release_timeout: Duration) -> Self {
        let (engine, total) = (Arc::clone(&locks[0].named.engine), locks.len());
        let (state, joined) = (Mutex::default(), Notify::new());
        Self { hold: Arc::new(GroupHold { engine, need, total, release_timeout, state, joined }) }
    }

    /// Adds a held member. Releases it if the hold is closed or lost.
    pub(super) fn join(&self, member: usize, guard: Guard) {
        let mut state = self.hold.state.lock();
        if state.closed || state.lost.is_some() {
            drop(state);
            return drop(guard);
        }
        state.guards.push((member, guard));
        drop(state);
        self.hold.joined.notify_waiters();
    }

    /// Closes the hold, and returns its guards in the order of joining.
    pub(super) fn close(&self) -> Vec<Guard> {
        let mut state = self.hold.state.lock();
        state.closed = true;
        std::mem::take(&mut state.guards).into_iter().map(|(_, guard)| guard).collect()
    }

    /// Returns how many members are held.
    ///
    /// See [`turnlock::MultiGuard::held`](crate::MultiGuard::held).
    pub fn held(&self) -> usize {
        self.hold.state.lock().guards.iter().filter(|(_, guard)| guard.is_valid()).count()
    }

    /// Returns the fencing token of a member.
    ///
    /// See [`turnlock::MultiGuard::token`](crate::MultiGuard::token).
    pub fn token(&self, member: usize) -> Option<u64> {
        self.hold.state.lock().guards.iter().find(|(number, _)| *number == member)?.1.token()
    }

    /// Returns `true` if enough members are held.
    ///
    /// See [`turnlock::MultiGuard::is_valid`](crate::MultiGuard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.lost_member().is_none() && !self.hold.state.lock().closed
    }

    /// Returns until when enough members are held.
    ///
    /// See [`turnlock::MultiGuard::valid_until`](crate::MultiGuard::valid_until).
    pub fn valid_until(&self) -> Instant {
        clock::instant_of(if self.is_valid() { self.valid_until_moment() } else { Moment::default() })
    }

    /// As [`valid_until`](Self::valid_until), by the clock of the leases, also after that moment.
    pub(super) fn valid_until_moment(&self) -> Moment {
        let now = clock::now();
        // A member whose loss was reported before its end does not count.
        let end = |(_, guard): &(usize, Guard)| {
            let end = guard.hold().valid_until();
            (guard.is_valid() || end <= now).then_some(end)
        };
        let ends = self.hold.state.lock().guards.iter().filter_map(end).collect();
        tally::valid_until(self.hold.need, ends).unwrap_or(now)
    }

    /// Returns a lost member, if fewer than `need` are left.
    pub(super) fn lost_member(&self) -> Option<LostMember> {
        let mut state = self.hold.state.lock();
        if state.lost.is_none() && !state.closed {
            let lost = state.guards.iter().filter_map(|(member, guard)| {
                let reason = guard.hold().lost()?;
                Some(LostMember { member: *member, name: guard.name().to_owned(), reason })
            });
            let lost: Vec<_> = lost.collect();
            if state.guards.len() - lost.len() < self.hold.need {
                state.lost = lost.into_iter().next();
            }
        }
        state.lost.clone()
    }

    /// Waits until too few members are held: [`MultiGuard::lost`](crate::MultiGuard::lost).
    pub async fn lost(&self) -> LostMember {
        loop {
            let mut joined = pin!(self.hold.joined.notified());
            joined.as_mut().enable();
            if let Some(lost) = self.lost_member() {
                return lost;
            }
            let remaining = |(_, guard): &(usize, Guard)| {
                Some(Arc::clone(guard.hold())).filter(|hold| hold.lost().is_none())
            };
            let (holds, is_released): (Vec<_>, _) = {
                let state = self.hold.state.lock();
                (state.guards.iter().filter_map(remaining).collect(), state.guards.is_empty())
            };
            if is_released {
                return std::future::pending().await;
            }
            let mut ends: FuturesUnordered<_> = holds.iter().map(|hold| hold.until_lost()).collect();
            // Without any, all of them have ended since the check above.
            if !ends.is_empty() {
                select(ends.next(), joined).await;
            }
        }
    }

    /// Releases all members at the same time, and waits until as many have confirmed as are needed to hold.
    ///
    /// The engines finish the rest, and all of it if this future is dropped.
    pub(super) async fn release(&self) -> Result<(), Error> {
        self.hold.engine.on_runtime(self.release_all()).await
    }

    async fn release_all(&self) -> Result<(), Error> {
        // In reverse order of joining: the first member by key, for which others wait, is released last.
        let guards = self.close().into_iter().rev();
        let mut tally = ReleaseTally::new(self.hold.total, self.hold.need, guards.len());
        let mut releases: FuturesUnordered<_> = guards.map(Guard::unlock).collect();
        let mut is_late = false;
        let mut late = pin!(tokio::time::sleep(self.hold.release_timeout));
        let mut gravest: Option<Error> = None;
        loop {
            match tally.outcome(is_late) {
                Some(ReleaseOutcome::Free) => return Ok(()),
                Some(ReleaseOutcome::Lost | ReleaseOutcome::InDoubt) => return gravest.map_or(Ok(()), Err),
                None => {}
            }
            let outcome = tokio::select! {
                biased;
                Some(outcome) = releases.next() => outcome,
                () = &mut late, if !is_late => {
                    is_late = true;
                    continue;
                }
            };
            match &outcome {
                Ok(()) => tally.freed += 1,
                Err(Error::Lost { .. }) => tally.gone += 1,
                Err(_) => tally.failed += 1,
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;
    use crate::{Client, MultiLock};

    #[tokio::test]
    async fn a_loss_is_reported_to_all_who_ask_while_the_leases_end() {
        let client = Client::connect("memory://").await.expect("a store");
        for round in 0..60 {
            // One member: several that have the same end are rare on this store.
            let member = client.lock(&format!("member-{round}")).with_lease(Duration::from_millis(50));
            let lock = MultiLock::new([member]).expect("a valid member");
            let guard = lock.lock().await.expect("free");
            let rest = guard.valid_until_moment().since(clock::now());
            tokio::time::sleep(rest.saturating_sub(Duration::from_millis(2))).await;
            // One after the other, so that one of them asks at the very end.
            let mut waiting = Vec::new();
            loop {
                let mut lost = Box::pin(guard.lost());
                if lost.as_mut().now_or_never().is_some() {
                    break;
                }
                waiting.push(lost);
            }
            let all = tokio::time::timeout(Duration::from_secs(20), join_all(waiting)).await;
            assert!(all.is_ok(), "a future waits for ever, in round {round}");
        }
    }
}
