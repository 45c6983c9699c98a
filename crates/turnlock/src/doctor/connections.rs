//! The server's version, and the connections that it closes.

use super::reading::Reading;
use super::{Finding, Level, Topic};

/// After how long without a word a connection is asked whether it is there. One that the server closes sooner is found out
/// by a request that is lost.
const SILENCE: u64 = 10;

pub(super) fn judge(reading: &Reading) -> Vec<Finding> {
    [version(reading), timeout(reading)].into_iter().flatten().collect()
}

fn version(reading: &Reading) -> Option<Finding> {
    let info = reading.info.as_ref().ok()?;
    let (make, version) = match (info.get("valkey_version"), info.get("redis_version")) {
        (Some(version), _) => ("Valkey", version),
        (None, Some(version)) => ("Redis", version),
        (None, None) => {
            let text = "The server does not say its version. Redis from 6.2 on is known to work, and Valkey.";
            return Some(Finding::new(Level::Unknown, Topic::Server, text));
        }
    };
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    let (level, text) = match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 2) => {
            let text = format!(
                "{make} {version} lacks commands that are used (LPOS, ZMSCORE): permit semaphores and fair locks fail. \
                 Use 6.2 or later."
            );
            (Level::Warning, text)
        }
        (Some(_), Some(_)) => (Level::Fine, format!("{make} {version}.")),
        _ => (Level::Unknown, format!("{make} {version}: no version that is known to work.")),
    };
    Some(Finding::new(level, Topic::Server, text))
}

fn timeout(reading: &Reading) -> Option<Finding> {
    let timeout = reading.config.as_ref().ok()?.number("timeout")?;
    let (level, text) = match timeout {
        0 => (Level::Fine, "Idle connections stay open.".to_owned()),
        1..=SILENCE => (
            Level::Warning,
            format!(
                "The server closes connections that are idle for {timeout} s, sooner than the client asks whether they are \
                 there ({SILENCE} s): a request can be lost, and an unlock then takes longer. Set timeout to 0, or to more \
                 than {SILENCE}."
            ),
        ),
        _ => {
            (Level::Fine, format!("Idle connections are closed after {timeout} s, which the client notices."))
        }
    };
    Some(Finding::new(level, Topic::Connections, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_told_from_new_ones() {
        let level = |info: &str| version(&Reading::with(info, &[])).map(|finding| finding.level);
        assert_eq!(level("redis_version:6.0.16"), Some(Level::Warning));
        assert_eq!(level("redis_version:5.0.14"), Some(Level::Warning));
        assert_eq!(level("redis_version:6.2.0"), Some(Level::Fine));
        assert_eq!(level("redis_version:7.2.4\nvalkey_version:8.1.0"), Some(Level::Fine));
        assert_eq!(level("redis_version:unstable"), Some(Level::Unknown));
        assert_eq!(level("role:master"), Some(Level::Unknown));
    }

    #[test]
    fn a_server_that_hangs_up_early_is_told() {
        let level =
            |value: &str| timeout(&Reading::with("", &[("timeout", value)])).map(|finding| finding.level);
        assert_eq!(level("0"), Some(Level::Fine));
        assert_eq!(level("5"), Some(Level::Warning));
        assert_eq!(level("300"), Some(Level::Fine));
    }
}
