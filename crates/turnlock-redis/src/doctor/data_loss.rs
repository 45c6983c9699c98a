//! Checks when the server loses locks: in a restart, and when memory runs out.

use turnlock_store::{Finding, Level, Topic};

use super::server_facts::ServerFacts;

/// Checks which locks survive a restart.
pub(super) fn persistence(facts: &ServerFacts) -> Option<Finding> {
    let info = facts.info.as_ref().ok()?;
    let config = facts.config.as_ref().ok();
    let has_aof = info.get("aof_enabled")? == "1";
    let fsync = config.and_then(|config| config.get("appendfsync"));
    let save = config.and_then(|config| config.get("save"));
    let (level, text) = match (has_aof, fsync, save) {
        (true, Some("always"), _) => {
            (Level::Fine, "Every write is on disk before its reply: no lock is lost in a restart.")
        }
        (true, Some("everysec"), _) => (
            Level::Fine,
            "The append-only file is synced to disk every second: a restart of the server loses no lock, a \
             crash of the machine the locks of up to a second. To lose none, set appendfsync to always; each \
             write then waits for the disk.",
        ),
        (true, Some(_), _) => (
            Level::Warning,
            "The operating system decides when the append-only file is on disk (appendfsync no): a crash of \
             the machine loses the locks of up to half a minute, and other owners can acquire them while \
             their holders continue. Set appendfsync to everysec or always.",
        ),
        (true, None, _) => (
            Level::Unknown,
            "The server has an append-only file; how often it is synced could not be read (appendfsync).",
        ),
        (false, _, Some("")) => (
            Level::Danger,
            "Nothing is written to disk (appendonly no, no save points): a restart loses all locks, and \
             other owners can acquire them while their holders continue. With replicas, the empty master \
             empties these too. Set appendonly to yes.",
        ),
        (false, _, _) => (
            Level::Warning,
            "There is no append-only file (appendonly no), at best a periodic snapshot: a restart loses the \
             locks since the last snapshot and restores some that were released, and other owners can \
             acquire what is still held. Set appendonly to yes.",
        ),
    };
    Some(Finding::new(level, Topic::Persistence, text))
}

/// Checks whether the server evicts locks when memory runs out.
pub(super) fn eviction(facts: &ServerFacts) -> Option<Finding> {
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
    fn each_persistence_setting_has_its_level() {
        let level = |aof: &str, settings: &[(&str, &str)]| {
            persistence(&ServerFacts::with(&format!("aof_enabled:{aof}"), settings))
                .map(|finding| finding.level)
        };
        assert_eq!(level("0", &[("save", "")]), Some(Level::Danger));
        assert_eq!(level("0", &[("save", "3600 1")]), Some(Level::Warning));
        assert_eq!(level("0", &[]), Some(Level::Warning));
        assert_eq!(level("1", &[("appendfsync", "always")]), Some(Level::Fine));
        assert_eq!(level("1", &[("appendfsync", "everysec")]), Some(Level::Fine));
        assert_eq!(level("1", &[("appendfsync", "no")]), Some(Level::Warning));
        assert_eq!(level("1", &[]), Some(Level::Unknown));
    }

    #[test]
    fn a_server_whose_info_was_not_read_has_no_finding() {
        let mut facts = ServerFacts::with("aof_enabled:0", &[("save", "")]);
        facts.info = Err("not allowed".to_owned());
        assert_eq!(persistence(&facts), None);
    }

    #[test]
    fn only_a_memory_limit_with_an_evicting_policy_is_a_danger() {
        let level = |limit: u64, policy: &str| {
            let info = format!("maxmemory:{limit}\nmaxmemory_policy:{policy}");
            eviction(&ServerFacts::with(&info, &[])).map(|finding| finding.level)
        };
        assert_eq!(level(0, "noeviction"), Some(Level::Fine));
        assert_eq!(level(1_000_000, "noeviction"), Some(Level::Fine));
        assert_eq!(level(0, "allkeys-lru"), Some(Level::Fine));
        assert_eq!(level(1_000_000, "allkeys-lru"), Some(Level::Danger));
        assert_eq!(level(1_000_000, "volatile-ttl"), Some(Level::Danger));
    }
}
