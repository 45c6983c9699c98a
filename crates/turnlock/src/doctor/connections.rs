//! Checks the server's version, and when it closes idle connections.

use super::server_facts::ServerFacts;
use super::{Finding, Level, Topic};

/// After how many idle seconds the client sends a `PING`. If the server closes a connection sooner, the next
/// request on it is lost.
const PING_INTERVAL_SECONDS: u64 = 10;

pub(super) fn check(facts: &ServerFacts) -> Vec<Finding> {
    [version(facts), idle_timeout(facts)].into_iter().flatten().collect()
}

fn version(facts: &ServerFacts) -> Option<Finding> {
    let info = facts.info.as_ref().ok()?;
    let (product, version) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => {
            let text = "INFO does not contain the server's version. Use Redis 6.2 or later, or Valkey.";
            return Some(Finding::new(Level::Unknown, Topic::Server, text));
        }
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

fn idle_timeout(facts: &ServerFacts) -> Option<Finding> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
