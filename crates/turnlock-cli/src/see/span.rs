//! Times as people read them at a glance.

use std::time::Duration;

/// A time in its two largest units: `340ms`, `28s`, `2m 13s`, `3h 5m`, `4d 2h`.
pub(super) fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{small_unit}"),
    };
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_are_enough() {
        for (millis, expected) in [
            (0, "0ms"),
            (340, "340ms"),
            (28_900, "28s"),
            (133_000, "2m 13s"),
            (120_000, "2m"),
            (11_100_000, "3h 5m"),
            (352_800_000, "4d 2h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), expected);
        }
    }
}
