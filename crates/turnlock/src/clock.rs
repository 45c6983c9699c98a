//! The clock in the tests of this crate: counts how often it is read.

use std::cell::Cell;

use turnlock_core::Moment;
pub(crate) use turnlock_store::clock::{
    follow_if_paused, instant_of, is_followed_and_paused, wall, wall_micros,
};

thread_local! {
    static READS: Cell<usize> = const { Cell::new(0) };
}

/// The current time.
pub(crate) fn now() -> Moment {
    READS.set(READS.get() + 1);
    turnlock_store::clock::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, MemoryStore};

    /// Once when an acquire begins and once when it is granted; once when a release begins and once when it is confirmed.
    const READS_OF_A_PAIR: usize = 4;

    /// Returns how often one `step` reads the clock.
    async fn reads(step: impl AsyncFn()) -> usize {
        step().await;
        let before = READS.get();
        step().await;
        READS.get() - before
    }

    #[tokio::test]
    async fn each_step_of_a_pair_reads_the_clock_twice() {
        let client = Client::builder().memory(&MemoryStore::new()).expect("a memory store");
        let lock = client.lock("orders");
        let pair = async || lock.lock().await.expect("free").unlock().await.expect("held");
        assert_eq!(reads(pair).await, READS_OF_A_PAIR);
    }
}
