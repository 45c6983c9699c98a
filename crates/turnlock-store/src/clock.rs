//! The clock behind every lease: monotonic, and running while the machine is suspended.
//!
//! | system | clock | counts through suspend |
//! |---|---|---|
//! | Linux, Android | `CLOCK_BOOTTIME` | yes |
//! | macOS, iOS | `CLOCK_MONOTONIC` | yes |
//! | Windows | `std::time::Instant` | yes |
//! | others | `std::time::Instant` | as the system's monotonic clock does |
//!
//! In a test that pauses tokio's clock and uses a memory store, it follows tokio's clock instead; so it does in a
//! [`simulation`].

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use turnlock_core::Moment;
use turnlock_core::model::Now;

use crate::simulation;

/// The same time on both clocks, once this process follows tokio's.
static FOLLOWED: OnceLock<(Instant, Moment)> = OnceLock::new();

/// The current time.
pub fn now() -> Moment {
    if let Some(simulated) = simulation::now() {
        return simulated;
    }
    match FOLLOWED.get() {
        None => system_now(),
        Some((instant, moment)) => {
            // On other runtimes and threads, tokio's clock is the system's.
            let now = tokio::time::Instant::now().into_std();
            match now.checked_duration_since(*instant) {
                Some(after) => *moment + after,
                None => *moment - instant.duration_since(now),
            }
        }
    }
}

/// The current time for the models: the moment, and the wall clock.
pub fn both() -> Now {
    Now { moment: now(), wall: wall_micros() }
}

/// Follows tokio's clock from now on if it is paused on the current runtime.
///
/// The whole process follows it.
pub fn follow_if_paused() {
    if !simulation::is_running() && simulation::is_paused() {
        #[expect(clippy::disallowed_methods, reason = "where both clocks are at the start")]
        FOLLOWED.get_or_init(|| (Instant::now(), system_now()));
    }
}

/// Returns `true` if tokio's clock is followed, and paused on the current runtime.
pub fn is_followed_and_paused() -> bool {
    simulation::is_running() || (FOLLOWED.get().is_some() && simulation::is_paused())
}

#[cfg(unix)]
fn system_now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_micros(seconds * 1_000_000 + nanos / 1_000)
}

#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "the clock of the system")]
fn system_now() -> Moment {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    // An hour ahead, so that moments before the start can be represented.
    Moment::from_micros(micros.saturating_add(3_600_000_000))
}

/// The wall clock in microseconds since 1970, only for values that several processes compare.
pub fn wall_micros() -> u64 {
    if let Some(simulated) = simulation::wall_micros() {
        return simulated;
    }
    #[expect(clippy::disallowed_methods, reason = "the clock of the system")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The wall clock, for people: only shown, never compared.
pub fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(wall_micros())
}

/// The same time on the clock of the standard library. A moment that has passed is now.
///
/// That clock does not count the time that a machine is suspended.
#[expect(clippy::disallowed_methods, reason = "for callers that use this clock")]
pub fn instant_of(moment: Moment) -> Instant {
    Instant::now() + moment.since(now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{Simulation, is_running};

    #[test]
    fn in_simulations_clocks_start_at_the_same_time_and_follow_them() {
        let run = || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.expect("a runtime").block_on(async {
                let simulation = Simulation::start();
                let start = (now(), wall_micros());
                assert_eq!(wall(), UNIX_EPOCH + Duration::from_micros(start.1));
                tokio::time::sleep(Duration::from_secs(90)).await;
                assert_eq!(now(), start.0 + Duration::from_secs(90));
                assert_eq!(wall_micros(), start.1 + 90_000_000);
                drop(simulation);
                start
            })
        };
        assert_eq!(run(), run());
        assert!(!is_running());
    }
}
