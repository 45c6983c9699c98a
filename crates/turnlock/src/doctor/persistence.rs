//! Checks which locks survive a restart.

use super::server_facts::ServerFacts;
use super::{Finding, Level, Topic};

pub(super) fn check(facts: &ServerFacts) -> Option<Finding> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_persistence_setting_has_its_level() {
        let level = |aof: &str, settings: &[(&str, &str)]| {
            check(&ServerFacts::with(&format!("aof_enabled:{aof}"), settings)).map(|finding| finding.level)
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
        assert_eq!(check(&facts), None);
    }
}
