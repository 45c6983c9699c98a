use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use turnlock_core::LockName;
use turnlock_core::model::Step;

use super::{Call, Delivered, World, ms};
use crate::sim::plan::MOST_AHEAD;

/// The requests of a client that the server denies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Denial {
    None,
    All,
    /// Those that set a lease, as of a user who may not call `PEXPIRE`.
    SetLease,
}

impl Denial {
    pub(super) fn covers(self, steps: &[Step]) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::SetLease => steps.iter().any(|step| matches!(step, Step::SetLease { .. })),
        }
    }
}

/// What happens to the servers and the network.
impl World {
    /// Breaks the connection of a link. Its subscriptions return after a moment.
    pub(in crate::sim) fn reset(self: &Arc<Self>, link: usize) {
        let broken = {
            let mut state = self.0.lock();
            let Some(connection) = state.links[link].connection.take() else { return };
            state.links[link].is_listening = false;
            let is_broken = |call: &Call| call.link == link && call.connection == connection;
            let ids: Vec<_> =
                state.calls.iter().filter(|(_, call)| is_broken(call)).map(|(id, _)| *id).collect();
            ids.into_iter().filter_map(|id| state.calls.remove(&id)).collect::<Vec<_>>()
        };
        for call in broken {
            let _ = call.reply.send(Delivered::Broken);
        }
        let (world, process) = (Arc::clone(self), self.0.lock().links[link].process.clone());
        tokio::spawn(process.run(async move { world.listen_again(link).await }));
    }

    /// Subscribes again after a connection broke.
    async fn listen_again(self: Arc<Self>, link: usize) {
        loop {
            let pause = ms(self.0.lock().rng.u64(1..300));
            sleep(pause).await;
            let signals = {
                let mut state = self.0.lock();
                if state.links[link].is_dead {
                    return;
                }
                if state.master.is_down {
                    continue;
                }
                let link = &mut state.links[link];
                link.is_listening = true;
                link.signals.clone()
            };
            if let Some(signals) = signals.and_then(|signals| signals.upgrade()) {
                signals.connection_changed();
            }
            return;
        }
    }

    /// Ends all faults that last. Clients connect again.
    pub(in crate::sim) fn heal(self: &Arc<Self>) {
        self.set_black_hole(None);
        self.set_slow(false);
        self.set_duplicating(false);
        self.set_losing_messages(false);
        self.set_loading(false);
        self.live_links().into_iter().for_each(|link| self.set_denial(link, Denial::None));
        self.set_replica(false);
        self.freeze_replica(false);
        self.set_down(false);
        self.reset_all();
    }

    /// The numbers of the links of live clients.
    pub(in crate::sim) fn live_links(&self) -> Vec<usize> {
        let state = self.0.lock();
        (0..state.links.len()).filter(|link| !state.links[*link].is_dead).collect()
    }

    /// Breaks all connections.
    pub(in crate::sim) fn reset_all(self: &Arc<Self>) {
        self.live_links().into_iter().for_each(|link| self.reset(link));
    }

    /// Nothing of this client arrives any more.
    pub(in crate::sim) fn kill(&self, link: usize) {
        let mut state = self.0.lock();
        let link = &mut state.links[link];
        (link.is_dead, link.connection, link.signals) = (true, None, None);
        link.subscriptions.clear();
    }

    /// Requests of this client arrive later by `by`, in order.
    pub(in crate::sim) fn delay_requests(&self, link: usize, by: Duration) {
        self.0.lock().links[link].last_arrival = Instant::now() + by;
    }

    pub(in crate::sim) fn set_black_hole(&self, lasts: Option<Duration>) {
        self.0.lock().black_hole = lasts.map(|lasts| Instant::now() + lasts);
    }

    pub(in crate::sim) fn set_slow(&self, yes: bool) {
        self.0.lock().is_slow = yes;
    }

    pub(in crate::sim) fn set_duplicating(&self, yes: bool) {
        self.0.lock().is_duplicating = yes;
    }

    pub(in crate::sim) fn set_losing_messages(&self, yes: bool) {
        self.0.lock().is_losing_messages = yes;
    }

    pub(in crate::sim) fn set_loading(&self, yes: bool) {
        self.0.lock().master.is_loading = yes;
    }

    /// The server denies requests of this client.
    pub(in crate::sim) fn set_denial(&self, link: usize, denial: Denial) {
        self.0.lock().links[link].denial = denial;
    }

    pub(in crate::sim) fn set_down(&self, yes: bool) {
        self.0.lock().master.is_down = yes;
    }

    pub(in crate::sim) fn lose_data(&self) {
        let mut state = self.0.lock();
        state.master.lose_data();
        state.frozen_replica = None;
    }

    /// Returns to the data of `ago`.
    pub(in crate::sim) fn lose_recent_data(&self, ago: Duration) {
        let mut state = self.0.lock();
        let count = state.master.executed_until(ago);
        let mut restored = state.master.replay(count);
        restored.is_down = state.master.is_down;
        state.master = restored;
        state.frozen_replica = None;
    }

    /// Sets the clock of the server, which stays near the right time.
    pub(in crate::sim) fn step_clock(&self, micros: i64) {
        let most = i64::try_from(MOST_AHEAD.as_micros()).unwrap_or(i64::MAX);
        let ahead = &mut self.0.lock().master.ahead;
        *ahead = (*ahead + micros).clamp(-most, most);
    }

    /// The master refuses writes until it is promoted again.
    pub(in crate::sim) fn set_replica(&self, yes: bool) {
        self.0.lock().master.is_replica = yes;
    }

    /// The replica receives nothing from now on, or all of it.
    pub(in crate::sim) fn freeze_replica(&self, yes: bool) {
        let mut state = self.0.lock();
        state.frozen_replica = yes.then(|| state.replicated());
    }

    /// Promotes the replica. The clients of `stay` reach the old master until their connection breaks.
    pub(in crate::sim) fn promote(self: &Arc<Self>, stay: &[usize]) {
        {
            let mut state = self.0.lock();
            let count = state.replicated();
            let new = state.master.replay(count);
            let old = std::mem::replace(&mut state.master, new);
            state.old_master = Some(old);
            state.frozen_replica = None;
            for link in stay {
                state.links[*link].reaches_old_master = true;
            }
        }
        for link in self.live_links() {
            if !stay.contains(&link) {
                self.reset(link);
            }
        }
    }

    /// The free permits of a semaphore.
    pub(in crate::sim) fn available(&self, name: LockName) -> Option<i64> {
        self.0.lock().master.available(name)
    }

    /// The keys that are held or have waiters.
    pub(in crate::sim) fn left(&self, ignores_dead_waiters: bool) -> Vec<String> {
        self.0.lock().master.left(ignores_dead_waiters)
    }

    /// When the last request arrives that was sent.
    pub(in crate::sim) fn last_arrival(&self) -> Instant {
        self.0.lock().last_arrival
    }
}
