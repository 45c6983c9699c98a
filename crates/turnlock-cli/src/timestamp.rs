//! Times in output, in UTC.

use std::time::{Duration, SystemTime};

/// Seconds from 1970 to the end of the year 9999. Later times cannot be formatted.
const LAST: u64 = 253_402_300_799;

/// Formats a time as `2026-11-16T06:13:46.250Z`.
pub(crate) fn rfc_3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(in_range(time)).to_string()
}

/// Formats until when a lock is kept after its holder has exited.
///
/// `kept until 06:13:46Z`, or with the date if that is not the date of `now`.
pub(crate) fn kept_until(end: SystemTime, now: SystemTime) -> String {
    let text = |time| humantime::format_rfc3339_seconds(in_range(time)).to_string();
    let (end, now) = (text(end), text(now));
    match (end.split_once('T'), now.split_once('T')) {
        (Some((date, time)), Some((today, _))) if date == today => format!("kept until {time}"),
        _ => format!("kept until {end}"),
    }
}

/// Another client wrote the time, so it may be out of range.
fn in_range(time: SystemTime) -> SystemTime {
    time.clamp(SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(LAST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_timestamp_out_of_range_is_clamped() {
        let far = at(u64::from(u32::MAX) * 100);
        assert!(rfc_3339(far).starts_with("9999-12-31"));
        assert!(kept_until(far, at(0)).starts_with("kept until 9999-12-31"));
        assert_eq!(rfc_3339(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn the_date_is_shown_if_it_is_not_today() {
        assert_eq!(kept_until(at(22_426), at(100)), "kept until 06:13:46Z");
        assert_eq!(kept_until(at(86_400), at(86_399)), "kept until 1970-01-02T00:00:00Z");
    }
}
