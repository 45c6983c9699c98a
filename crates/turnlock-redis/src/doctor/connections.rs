//! Checks the server's version, when it closes idle connections, and how long a reply takes.

use turnlock_store::{ClientProfile, Finding, Level, Topic};

use super::server_facts::ServerFacts;

/// After how many idle seconds the client sends a `PING`. If the server closes a connection sooner, the next
/// request on it is lost.
const PING_INTERVAL_SECONDS: u64 = 10;

/// Checks whether the server has all commands.
pub(super) fn version(facts: &ServerFacts) -> Option<Finding> {
    facts.info.as_ref().ok()?;
    let Some((product, version)) = facts.version() else {
        let text = "INFO does not contain the server's version. Use Redis 6.2 or later, or Valkey.";
        return Some(Finding::new(Level::Unknown, Topic::Server, text));
    };
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let (level, text) = match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 2) => {
            let text = format!(
                "{product} {version} lacks the commands LPOS and ZMSCORE: permit semaphores and fair locks \
                 fail. Use 6.2 or later."
            );
            (Level::Warning, text)
        }
        (Some(_), Some(_)) => (Level::Fine, format!("{product} {version}.")),
        _ => (Level::Unknown, format!("{product} {version}: this version is not tested.")),
    };
    Some(Finding::new(level, Topic::Server, text))
}

/// Checks when the server closes idle connections.
pub(super) fn idle_timeout(facts: &ServerFacts) -> Option<Finding> {
    let timeout = facts.config.as_ref().ok()?.number("timeout")?;
    let (level, text) = match timeout {
        0 => (Level::Fine, "The server does not close idle connections (timeout 0).".to_owned()),
        1..=PING_INTERVAL_SECONDS => (
            Level::Warning,
            format!(
                "The server closes connections that are idle for {timeout} s, before the client sends a PING \
                 ({PING_INTERVAL_SECONDS} s): a request can be lost, and an unlock then takes longer. Set \
                 timeout to 0, or to more than {PING_INTERVAL_SECONDS}."
            ),
        ),
        _ => (
            Level::Fine,
            format!("The server closes idle connections after {timeout} s, and the client detects it."),
        ),
    };
    Some(Finding::new(level, Topic::Connections, text))
}

/// Checks how long a reply takes.
pub(super) fn latency(facts: &ServerFacts, client: &ClientProfile) -> Option<Finding> {
    let finding = |level, text| Some(Finding::new(level, Topic::Latency, text));
    let mut round_trips = match &facts.round_trips {
        Ok(round_trips) => round_trips.clone(),
        Err(why) => {
            let text = format!(
                "The server did not reply: {why}. A holder that gets no reply until its lease ends loses its \
                 lock. Check the network and the server's load."
            );
            return finding(Level::Danger, text);
        }
    };
    round_trips.sort_unstable();
    let (median, worst) = (*round_trips.get(round_trips.len() / 2)?, *round_trips.last()?);
    let renewal_interval = client.lease.as_duration() / 3;
    let response_timeout = client.response_timeout;
    let measured = format!(
        "A reply takes {median:.1?} (median of {}; the slowest {worst:.1?}). A renewal must succeed within \
         {renewal_interval:.1?}, a third of the lease; the response time-out is {response_timeout:.1?}.",
        round_trips.len(),
    );
    let remedy =
        "Use a longer lease (watchdog_timeout) and response time-out, or find the cause of the delay.";
    if worst >= renewal_interval || median >= response_timeout {
        let text = format!("{measured} That is too slow: locks are lost while they are in use. {remedy}");
        finding(Level::Danger, text)
    } else if worst >= renewal_interval / 4 || worst >= response_timeout / 2 {
        let text = format!("{measured} There is little reserve: a longer delay loses locks. {remedy}");
        finding(Level::Warning, text)
    } else {
        finding(Level::Fine, measured)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::doctor::profile;

    #[test]
    fn versions_before_6_2_are_a_warning() {
        let level = |info: &str| version(&ServerFacts::with(info, &[])).map(|finding| finding.level);
        assert_eq!(level("redis_version:6.0.16"), Some(Level::Warning));
        assert_eq!(level("redis_version:5.0.14"), Some(Level::Warning));
        assert_eq!(level("redis_version:6.2.0"), Some(Level::Fine));
        assert_eq!(level("redis_version:7.2.4\nvalkey_version:8.1.0"), Some(Level::Fine));
        assert_eq!(level("redis_version:unstable"), Some(Level::Unknown));
        assert_eq!(level("role:master"), Some(Level::Unknown));
    }

    #[test]
    fn a_short_idle_timeout_is_a_warning() {
        let level = |value: &str| {
            idle_timeout(&ServerFacts::with("", &[("timeout", value)])).map(|finding| finding.level)
        };
        assert_eq!(level("0"), Some(Level::Fine));
        assert_eq!(level("5"), Some(Level::Warning));
        assert_eq!(level("300"), Some(Level::Fine));
    }

    fn level(median: u64, worst: u64) -> Level {
        let ms = Duration::from_millis;
        let mut round_trips = vec![ms(median); 19];
        round_trips.push(ms(worst));
        let facts = ServerFacts { round_trips: Ok(round_trips), ..ServerFacts::with("", &[]) };
        latency(&facts, &profile()).expect("measured").level
    }

    #[test]
    fn latency_is_compared_with_the_lease_and_the_response_timeout() {
        assert_eq!(level(1, 20), Level::Fine);
        assert_eq!(level(1, 600), Level::Warning);
        assert_eq!(level(1, 11_000), Level::Danger);
        assert_eq!(level(1_200, 1_300), Level::Danger);
    }

    #[test]
    fn a_missing_reply_is_a_danger() {
        let facts =
            ServerFacts { round_trips: Err("no reply within 1s".to_owned()), ..ServerFacts::with("", &[]) };
        assert_eq!(latency(&facts, &profile()).expect("known").level, Level::Danger);
    }
}
