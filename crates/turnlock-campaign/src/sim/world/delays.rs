use std::time::Duration;

use tokio::time::Instant;

use super::{State, ms};

/// How long messages take.
impl State {
    /// The delay of one message.
    pub(super) fn delay(&mut self) -> Duration {
        let longest = if self.is_slow { self.delay_ms * 40 } else { self.delay_ms };
        ms(self.rng.u64(1..=longest))
    }

    /// When a request of this link arrives that is sent now.
    pub(super) fn arrival(&mut self, link: usize) -> Instant {
        let mut arrival = Instant::now() + self.delay();
        if let Some(end) = self.black_hole {
            arrival = arrival.max(end);
        }
        arrival = arrival.max(self.links[link].last_arrival);
        self.links[link].last_arrival = arrival;
        self.last_arrival = self.last_arrival.max(arrival);
        arrival
    }

    /// When a copy of a request arrives, if there is one.
    pub(super) fn copy_of(&mut self, arrival: Instant, can_copy: bool) -> Option<Instant> {
        let is_copied = self.is_duplicating && can_copy && self.rng.u8(..4) == 0;
        // After the original, whose reply counts. Some arrive after all leases of the run.
        let late = ms(if self.rng.bool() { self.rng.u64(..200) } else { self.rng.u64(..90_000) }.max(1));
        let copied = is_copied.then_some(arrival + late);
        self.last_arrival = self.last_arrival.max(copied.unwrap_or(arrival));
        copied
    }
}
