//! Times as people write them: `500ms`, `2s`, `1m30s`; a bare number is seconds, as with flock(1).

use std::time::Duration;

/// Reads a time.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write for example 500ms, 2s or 1m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let millis = |text: &str| parse(text).map(|time| time.as_millis());
        for (text, expected) in
            [("500ms", 500), ("2s", 2_000), ("1m", 60_000), ("1.5", 1_500), ("0", 0), ("1h 1s", 3_601_000)]
        {
            assert_eq!(millis(text), Ok(expected), "{text}");
        }
        for wrong in ["", "-1", "soon", "1e99", "inf", "NaN", "2 parsecs"] {
            assert!(millis(wrong).is_err(), "{wrong}");
        }
    }
}
