//! Counts the commands that clients sent, and those that ran inside scripts.

use std::collections::BTreeMap;

/// The driver's own commands, as the server names them.
const DRIVER_COMMANDS: [&str; 4] = ["info", "flushall", "dbsize", "exists"];

/// Commands that no script of a lock runs.
const NEVER_IN_SCRIPTS: [&str; 15] = [
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

/// Prefixes of such commands that are counted by subcommand.
const NEVER_IN_SCRIPTS_PREFIXES: [&str; 4] = ["client|", "script|", "command|", "cluster|"];

/// The commands of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    /// The number of executions of each command, by name.
    pub(crate) each: BTreeMap<String, u64>,
    /// The number of commands that clients sent.
    pub(crate) sent: u64,
    /// The number of commands that the server executed.
    pub(crate) executed: u64,
}

impl Commands {
    /// Counts the commands. `direct` names further commands that the participants send outside of scripts.
    pub(crate) fn of<'a>(calls: impl Iterator<Item = (&'a str, u64)>, direct: &[String]) -> Self {
        let mut commands = Self::default();
        for (name, count) in calls.filter(|(name, _)| !DRIVER_COMMANDS.contains(name)) {
            let is_sent = NEVER_IN_SCRIPTS.contains(&name)
                || NEVER_IN_SCRIPTS_PREFIXES.iter().any(|group| name.starts_with(group))
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
    fn commands_inside_scripts_are_not_counted_as_sent() {
        let calls =
            [("evalsha", 2), ("hset", 1), ("publish", 1), ("info", 9), ("client|setinfo", 3), ("set", 5)];
        let commands = Commands::of(calls.into_iter(), &["SET".to_owned()]);
        assert_eq!((commands.sent, commands.executed), (10, 12));
        assert_eq!(commands.each.get("info"), None);
        assert_eq!(Commands::of(calls.into_iter(), &[]).sent, 5);
    }
}
