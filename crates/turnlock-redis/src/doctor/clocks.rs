//! Checks the clocks of the servers against this machine's and against each other.
//!
//! Only the server counts leases, so a wrong clock does not let two owners hold one lock.

use std::time::Duration;

use turnlock_store::{Finding, Level, Topic};

use super::server_facts::{ClockSample, ServerFacts};

/// The largest accepted difference between a server's clock and this machine's.
const MAX_OFFSET_FROM_CLIENT: Duration = Duration::from_secs(10);

/// The largest accepted difference between two servers: about the duration of a fail-over.
const MAX_OFFSET_BETWEEN_SERVERS: Duration = Duration::from_secs(1);

pub(super) fn check(facts: &ServerFacts) -> Option<Finding> {
    let ClockSample { ahead_micros, doubt_micros } = *facts.clock.as_ref().ok()?;
    let offset = Duration::from_micros(ahead_micros.unsigned_abs());
    let doubt = Duration::from_micros(doubt_micros.unsigned_abs());
    let (level, text) = if offset.saturating_sub(doubt) > MAX_OFFSET_FROM_CLIENT {
        let direction = if ahead_micros > 0 { "ahead of" } else { "behind" };
        let text = format!(
            "The server's clock is {offset:.1?} {direction} this machine's. Leases are not affected. But in \
             a fair lock that is shared with Java clients, the deadlines of waiters are times of the \
             clients' clocks; and a fencing token that a server lost with its data restarts from the \
             server's clock. Set both clocks by NTP."
        );
        (Level::Warning, text)
    } else if offset <= doubt {
        (
            Level::Fine,
            "The server's clock and this machine's agree within the precision of this check.".to_owned(),
        )
    } else {
        (Level::Fine, format!("The server's clock and this machine's differ by {offset:.1?}."))
    };
    Some(Finding::new(level, Topic::Clock, text))
}

/// Compares the clocks of the servers of one deployment.
pub(super) fn compare(servers: &[ServerFacts]) -> Option<Finding> {
    let samples = || servers.iter().filter_map(|facts| Some((facts, facts.clock.as_ref().ok()?)));
    let (slowest, earliest) = samples().min_by_key(|(_, sample)| sample.ahead_micros)?;
    let (fastest, latest) = samples().max_by_key(|(_, sample)| sample.ahead_micros)?;
    let micros = |micros: i64| Duration::from_micros(micros.unsigned_abs());
    let offset = micros(latest.ahead_micros.saturating_sub(earliest.ahead_micros));
    let doubt = micros(earliest.doubt_micros) + micros(latest.doubt_micros);
    if offset.saturating_sub(doubt) <= MAX_OFFSET_BETWEEN_SERVERS {
        return None;
    }
    let text = format!(
        "The clock of {} is {offset:.1?} ahead of the clock of {}. If a server with a clock that is behind \
         takes over, fencing tokens can decrease when the fail-over takes less than the difference. Set all \
         clocks by NTP.",
        fastest.address, slowest.address
    );
    Some(Finding::new(Level::Warning, Topic::Clock, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(ahead_micros: i64, doubt_micros: i64) -> ServerFacts {
        ServerFacts { clock: Ok(ClockSample { ahead_micros, doubt_micros }), ..ServerFacts::with("", &[]) }
    }

    #[test]
    fn a_wrong_clock_is_reported_with_its_direction() {
        let level = |ahead, doubt| check(&facts(ahead, doubt)).map(|finding| finding.level);
        assert_eq!(level(9_000_000, 0), Some(Level::Fine));
        assert_eq!(level(-3_600_000_000, 0), Some(Level::Warning));
        assert_eq!(level(11_000_000, 2_000_000), Some(Level::Fine), "a slow reply is imprecise");
        let text = |ahead| check(&facts(ahead, 0)).expect("known").text;
        assert!(text(60_000_000).contains("60.0s ahead of") && text(-60_000_000).contains("60.0s behind"));
        assert!(text(9_000).contains("differ by 9.0ms"));
        assert_eq!(
            text(0),
            "The server's clock and this machine's agree within the precision of this check."
        );
    }

    #[test]
    fn the_clocks_of_servers_are_compared_with_each_other() {
        assert_eq!(compare(&[]), None);
        assert_eq!(compare(&[facts(5_000_000, 0), facts(5_500_000, 0)]), None);
        assert_eq!(compare(&[facts(-1_000_000, 0), facts(1_000_000, 1_100_000)]), None);
        let finding = compare(&[facts(-1_000_000, 0), facts(1_000_000, 0)]).expect("two seconds apart");
        assert!(finding.level == Level::Warning && finding.text.contains("2.0s ahead"), "{finding}");
    }
}
