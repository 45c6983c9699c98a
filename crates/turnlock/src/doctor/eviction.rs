//! Whether locks are thrown away for want of memory.

use super::reading::Reading;
use super::{Finding, Level, Topic};

pub(super) fn judge(reading: &Reading) -> Option<Finding> {
    let info = reading.info.as_ref().ok()?;
    let (limit, policy) = (info.number("maxmemory")?, info.get("maxmemory_policy")?);
    let (level, text) = match (limit, policy) {
        (_, "noeviction") => (
            Level::Fine,
            "Nothing is thrown away for want of memory (noeviction): new locks are refused then, and those that are held \
             are renewed and given back as ever."
                .to_owned(),
        ),
        (0, _) => (
            Level::Fine,
            format!(
                "Memory has no limit (maxmemory 0), so nothing is thrown away. If you set one, set maxmemory-policy, which \
                 is {policy}, to noeviction."
            ),
        ),
        _ => {
            let aim = if policy.starts_with("volatile-") {
                "keys with an expiry, which all locks have,"
            } else {
                "any key, locks too,"
            };
            let text = format!(
                "At {limit} bytes the server throws {aim} away (maxmemory-policy {policy}): others can then take a lock \
                 whose holder goes on. Set maxmemory-policy to noeviction, or keep locks on a server of their own."
            );
            (Level::Danger, text)
        }
    };
    Some(Finding::new(level, Topic::Eviction, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_with_another_policy_is_a_danger() {
        let level = |limit: u64, policy: &str| {
            let info = format!("maxmemory:{limit}\nmaxmemory_policy:{policy}");
            judge(&Reading::with(&info, &[])).map(|finding| finding.level)
        };
        assert_eq!(level(0, "noeviction"), Some(Level::Fine));
        assert_eq!(level(1_000_000, "noeviction"), Some(Level::Fine));
        assert_eq!(level(0, "allkeys-lru"), Some(Level::Fine));
        assert_eq!(level(1_000_000, "allkeys-lru"), Some(Level::Danger));
        assert_eq!(level(1_000_000, "volatile-ttl"), Some(Level::Danger));
    }
}
