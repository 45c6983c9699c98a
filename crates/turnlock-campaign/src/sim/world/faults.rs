use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use turnlock_core::LockName;

use super::{Call, Delivered, World, ms};

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
        self.live_links().into_iter().for_each(|link| self.set_denied(link, false));
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

    /// The server denies the requests of this client.
    pub(in crate::sim) fn set_denied(&self, link: usize, yes: bool) {
        self.0.lock().links[link].is_denied = yes;
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

    /// Sets the clock of the server, which stays within half a minute of the right time.
    pub(in crate::sim) fn step_clock(&self, micros: i64) {
        let ahead = &mut self.0.lock().master.ahead;
        *ahead = (*ahead + micros).clamp(-30_000_000, 30_000_000);
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

    /// The keys that are held.
    pub(in crate::sim) fn held(&self) -> Vec<String> {
        self.0.lock().master.held()
    }
}
