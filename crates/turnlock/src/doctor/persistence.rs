//! What is left of locks after a restart.

use super::reading::Reading;
use super::{Finding, Level, Topic};

pub(super) fn judge(reading: &Reading) -> Option<Finding> {
    let info = reading.info.as_ref().ok()?;
    let config = reading.config.as_ref().ok();
    let keeps_log = info.get("aof_enabled")? == "1";
    let sync = config.and_then(|config| config.get("appendfsync"));
    let save = config.and_then(|config| config.get("save"));
    let (level, text) = match (keeps_log, sync, save) {
        (true, Some("always"), _) => {
            (Level::Fine, "Every change is on disk before it is answered: a restart forgets nothing.")
        }
        (true, Some("everysec"), _) => (
            Level::Fine,
            "The log is written at once and brought to disk every second: a restart of the server forgets nothing, a \
             crash of the machine up to a second of locks. For nothing at all: appendfsync always, at the price of a \
             disk access for each change.",
        ),
        (true, Some(_), _) => (
            Level::Warning,
            "The system decides when the log comes to disk (appendfsync no): a crash of the machine forgets up to half a \
             minute of locks, which others can then take while their holders go on. Set appendfsync to everysec or \
             always.",
        ),
        (true, None, _) => (
            Level::Unknown,
            "The server keeps a log; how soon it is on disk could not be looked at (appendfsync).",
        ),
        (false, _, Some("")) => (
            Level::Danger,
            "Nothing is written to disk (appendonly no, no save points): a restart forgets all locks, and others can \
             take them while their holders go on; with replicas, an empty master empties them too. Set appendonly to \
             yes.",
        ),
        (false, _, _) => (
            Level::Warning,
            "There is no log of changes (appendonly no), at best a picture from time to time: a restart forgets the \
             locks since the last one, brings back some that were given back, and others can take what is still held. \
             Set appendonly to yes.",
        ),
    };
    Some(Finding::new(level, Topic::Persistence, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_keep_data_is_known() {
        let level = |aof: &str, settings: &[(&str, &str)]| {
            judge(&Reading::with(&format!("aof_enabled:{aof}"), settings)).map(|finding| finding.level)
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
    fn what_was_not_read_is_not_judged() {
        let mut reading = Reading::with("aof_enabled:0", &[("save", "")]);
        reading.info = Err("not allowed".to_owned());
        assert_eq!(judge(&reading), None);
    }
}
