//! Which of the commands that a server has run were sent by clients, and which ran inside scripts.

use std::collections::BTreeMap;

/// What the driver itself asks, with names as the server counts them.
const OURS: [&str; 4] = ["info", "flushall", "dbsize", "exists"];

/// What no script runs, or no script of a lock.
const NEVER_INSIDE: [&str; 15] = [
    "eval",
    "evalsha",
    "fcall",
    "ping",
    "hello",
    "select",
    "wait",
    "multi",
    "exec",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
];

/// Beginnings of such that are counted by subcommand.
const NEVER_INSIDE_GROUPS: [&str; 4] = ["client|", "script|", "command|", "cluster|"];

/// What a measurement cost the server, in commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    /// Each command that was run, by its name.
    pub(crate) each: BTreeMap<String, u64>,
    /// How many clients have sent.
    pub(crate) sent: u64,
    /// How many the server has run.
    pub(crate) executed: u64,
}

impl Commands {
    /// `direct` are further commands that the participants send outside of scripts.
    pub(crate) fn of<'a>(calls: impl Iterator<Item = (&'a str, u64)>, direct: &[String]) -> Self {
        let mut commands = Self::default();
        for (name, count) in calls.filter(|(name, _)| !OURS.contains(name)) {
            let is_sent = NEVER_INSIDE.contains(&name)
                || NEVER_INSIDE_GROUPS.iter().any(|group| name.starts_with(group))
                || direct.iter().any(|direct| direct.eq_ignore_ascii_case(name));
            commands.sent += if is_sent { count } else { 0 };
            commands.executed += count;
            commands.each.insert(name.to_owned(), count);
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::Commands;

    #[test]
    fn what_runs_inside_scripts_is_told_from_what_is_sent() {
        let calls =
            [("evalsha", 2), ("hset", 1), ("publish", 1), ("info", 9), ("client|setinfo", 3), ("set", 5)];
        let commands = Commands::of(calls.into_iter(), &["SET".to_owned()]);
        assert_eq!((commands.sent, commands.executed), (10, 12));
        assert_eq!(commands.each.get("info"), None);
        assert_eq!(Commands::of(calls.into_iter(), &[]).sent, 5);
    }
}
