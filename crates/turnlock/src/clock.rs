//! The clock behind every lease: it only goes forward, and it counts while the machine sleeps.
//!
//! | system | clock | counts through suspend |
//! |---|---|---|
//! | Linux, Android | `CLOCK_BOOTTIME` | yes |
//! | macOS, iOS | `CLOCK_MONOTONIC` | yes |
//! | Windows | `std::time::Instant` | yes |
//! | others | `std::time::Instant` | as the system's monotonic clock does |

use turnlock_core::Moment;

/// Now.
#[cfg(unix)]
pub(crate) fn now() -> Moment {
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

/// Now.
#[cfg(not(unix))]
pub(crate) fn now() -> Moment {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    // An hour ahead, so that a moment "before" the start can still be written down.
    Moment::from_micros(micros.saturating_add(3_600_000_000))
}

/// The wall clock, in microseconds since 1970: only for what must mean the same to all processes.
pub(crate) fn wall_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
