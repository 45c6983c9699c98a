//! Checks whether the server evicts locks when memory runs out.

use super::server_facts::ServerFacts;
use super::{Finding, Level, Topic};

pub(super) fn check(facts: &ServerFacts) -> Option<Finding> {
    let info = facts.info.as_ref().ok()?;
    let (limit, policy) = (info.number("maxmemory")?, info.get("maxmemory_policy")?);
    let (level, text) = match (limit, policy) {
        (_, "noeviction") => (
            Level::Fine,
            "The server evicts no keys (noeviction). When memory runs out it refuses new locks; held locks \
             are still renewed and released."
                .to_owned(),
        ),
        (0, _) => (
            Level::Fine,
            format!(
                "Memory has no limit (maxmemory 0), so the server evicts no keys. If you set a limit, change \
                 maxmemory-policy from {policy} to noeviction."
            ),
        ),
        _ => {
            let victims = if policy.starts_with("volatile-") {
                "keys that expire, which includes all locks"
            } else {
                "any keys, including locks"
            };
            let text = format!(
                "At {limit} bytes the server evicts {victims} (maxmemory-policy {policy}): another owner can \
                 then acquire a lock while its holder continues. Set maxmemory-policy to noeviction, or use \
                 a separate server for locks."
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
    fn only_a_memory_limit_with_an_evicting_policy_is_a_danger() {
        let level = |limit: u64, policy: &str| {
            let info = format!("maxmemory:{limit}\nmaxmemory_policy:{policy}");
            check(&ServerFacts::with(&info, &[])).map(|finding| finding.level)
        };
        assert_eq!(level(0, "noeviction"), Some(Level::Fine));
        assert_eq!(level(1_000_000, "noeviction"), Some(Level::Fine));
        assert_eq!(level(0, "allkeys-lru"), Some(Level::Fine));
        assert_eq!(level(1_000_000, "allkeys-lru"), Some(Level::Danger));
        assert_eq!(level(1_000_000, "volatile-ttl"), Some(Level::Danger));
    }
}
