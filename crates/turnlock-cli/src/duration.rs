//! Durations on the command line and in output.

use std::time::Duration;

use turnlock_core::{Lease, LeaseError};

const EXAMPLES: &str = "write for example 500ms, 2s or 1m";

/// Parses `500ms`, `2s`, `1m30s`; a bare number is seconds, as in flock(1).
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        let reason =
            if seconds < 0.0 { "it is negative" } else { "it is not a number of seconds that can be used" };
        return Duration::try_from_secs_f64(seconds).map_err(|_| format!("{reason}; {EXAMPLES}"));
    }
    humantime::parse_duration(text).map_err(|_| format!("it is not a duration; {EXAMPLES}"))
}

/// Parses a duration that can be a lease.
pub(crate) fn parse_lease(text: &str) -> Result<Duration, String> {
    let duration = parse(text)?;
    match Lease::new(duration) {
        Ok(_) => Ok(duration),
        Err(LeaseError::TooLong(_)) => Err("it is too long; give at most ten years (10y)".to_owned()),
        Err(_) => Err("it is too short for a round trip to the store; give at least 10ms".to_owned()),
    }
}

/// Parses a duration above zero and up to an hour.
pub(crate) fn up_to_an_hour(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("give more than 0".to_owned()),
        duration if duration > Duration::from_secs(60 * 60) => Err("give at most an hour (1h)".to_owned()),
        duration => Ok(duration),
    }
}

/// Formats a duration in its two largest units: `340ms`, `28s`, `2m 13s`, `3h 5m`, `4d 2h`.
pub(crate) fn format_short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{small_unit}"),
    };
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    #[test]
    fn durations_are_parsed_with_and_without_units() {
        let millis = |text: &str| parse(text).map(|duration| duration.as_millis());
        for (text, expected) in
            [("500ms", 500), ("2s", 2_000), ("1m", 60_000), ("1.5", 1_500), ("0", 0), ("1h 1s", 3_601_000)]
        {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        for invalid in ["", "-1", "soon", "1e99", "inf", "NaN", "2 parsecs"] {
            assert!(millis(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn durations_are_formatted_in_two_units() {
        for (millis, expected) in [
            (0, "0ms"),
            (340, "340ms"),
            (28_900, "28s"),
            (133_000, "2m 13s"),
            (120_000, "2m"),
            (11_100_000, "3h 5m"),
            (352_800_000, "4d 2h"),
        ] {
            assert_eq!(format_short(Duration::from_millis(millis)), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_duration_or_an_error(
            parts in vec(select(&[
                "0", "1", "9", ".", "-", "+", "e", "E", "inf", "nan", " ", "_", "s", "ms", "us", "ns", "m", "h", "d", "w", "M",
                "y", "years", "18446744073709551615", "99999999999999999999999", "µs", "ß", "٣", "\0",
            ][..]), 0..8),
            other in any::<String>(),
        ) {
            for text in [parts.concat(), other] {
                match parse(&text) {
                    Ok(duration) => prop_assert!(!format_short(duration).is_empty()),
                    Err(error) => prop_assert!(!error.is_empty()),
                }
            }
        }

        #[test]
        fn a_duration_is_parsed_as_it_is_formatted(seconds in 0..u64::from(u32::MAX)) {
            let short = format_short(Duration::from_secs(seconds));
            let parsed = parse(&short).expect("a duration");
            prop_assert_eq!(format_short(parsed), short);
        }
    }
}
