//! The clocks of the servers and of this machine. Leases are counted by the server alone, so clocks that are apart do not
//! make a lock be held twice.

use std::time::Duration;

use super::reading::{ClockSample, Reading};
use super::{Finding, Level, Topic};

/// How far a server's clock may be from ours.
const FROM_OURS: Duration = Duration::from_secs(10);

/// How far the clocks of two servers may be apart: about what a fail-over takes.
const FROM_EACH_OTHER: Duration = Duration::from_secs(1);

pub(super) fn judge(reading: &Reading) -> Option<Finding> {
    let ClockSample { ahead_micros, doubt_micros } = *reading.clock.as_ref().ok()?;
    let apart = Duration::from_micros(ahead_micros.unsigned_abs());
    let (level, text) = if apart.saturating_sub(Duration::from_micros(doubt_micros.unsigned_abs()))
        > FROM_OURS
    {
        let way = if ahead_micros > 0 { "ahead of" } else { "behind" };
        let text = format!(
            "The server's clock is {apart:.1?} {way} this machine's. Leases do not suffer; but in a fair lock that Java \
             clients share, deadlines of waiters are times of the clients' clocks, and a token that was lost with the \
             data of a server rises again by its clock. Let both be set by NTP."
        );
        (Level::Warning, text)
    } else {
        (Level::Fine, format!("The server's clock and this machine's are {apart:.1?} apart."))
    };
    Some(Finding::new(level, Topic::Clock, text))
}

/// The clocks of several servers of one set-up.
pub(super) fn between(readings: &[Reading]) -> Option<Finding> {
    let samples = || readings.iter().filter_map(|reading| Some((reading, reading.clock.as_ref().ok()?)));
    let (first, earliest) = samples().min_by_key(|(_, sample)| sample.ahead_micros)?;
    let (last, latest) = samples().max_by_key(|(_, sample)| sample.ahead_micros)?;
    let micros = |micros: i64| Duration::from_micros(micros.unsigned_abs());
    let apart = micros(latest.ahead_micros.saturating_sub(earliest.ahead_micros));
    if apart.saturating_sub(micros(earliest.doubt_micros) + micros(latest.doubt_micros)) <= FROM_EACH_OTHER {
        return None;
    }
    let text = format!(
        "The clock of {} is {apart:.1?} ahead of that of {}. Where a server takes over from another, the tokens of fenced \
         locks could fall if its clock is behind by more than that took. Let all be set by NTP.",
        last.address, first.address
    );
    Some(Finding::new(Level::Warning, Topic::Clock, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ahead_micros: i64, doubt_micros: i64) -> Reading {
        Reading { clock: Ok(ClockSample { ahead_micros, doubt_micros }), ..Reading::with("", &[]) }
    }

    #[test]
    fn a_clock_far_off_is_told_with_its_direction() {
        let level = |ahead, doubt| judge(&reading(ahead, doubt)).map(|finding| finding.level);
        assert_eq!(level(9_000_000, 0), Some(Level::Fine));
        assert_eq!(level(-3_600_000_000, 0), Some(Level::Warning));
        assert_eq!(level(11_000_000, 2_000_000), Some(Level::Fine), "a slow answer tells little");
        let text = |ahead| judge(&reading(ahead, 0)).expect("known").text;
        assert!(text(60_000_000).contains("60.0s ahead of") && text(-60_000_000).contains("60.0s behind"));
    }

    #[test]
    fn servers_are_compared_with_each_other() {
        assert_eq!(between(&[]), None);
        assert_eq!(between(&[reading(5_000_000, 0), reading(5_500_000, 0)]), None);
        assert_eq!(between(&[reading(-1_000_000, 0), reading(1_000_000, 1_100_000)]), None);
        let finding = between(&[reading(-1_000_000, 0), reading(1_000_000, 0)]).expect("two seconds apart");
        assert!(finding.level == Level::Warning && finding.text.contains("2.0s ahead"), "{finding}");
    }
}
