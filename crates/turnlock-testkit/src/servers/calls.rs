//! How often a server has run each command.

use std::collections::BTreeMap;

/// How often a server has run each command since it started (`INFO commandstats`).
///
/// Commands in scripts count like those that clients send: one `EVALSHA` whose script runs one `HSET` counts
/// as one `evalsha` and one `hset`. A command with subcommands is counted by subcommand, under names such as
/// `client|setinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls(BTreeMap<String, u64>);

impl Calls {
    /// Parses the reply to `INFO commandstats`, and skips other lines.
    pub(crate) fn parse(info: &str) -> Self {
        let parse_line = |line: &str| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
            let calls = fields.split(',').find_map(|field| field.strip_prefix("calls="))?;
            Some((name.to_lowercase(), calls.parse().ok()?))
        };
        Self(info.lines().filter_map(parse_line).collect())
    }

    /// Returns the calls of `command`, without regard to case; 0 if there were none.
    pub fn of(&self, command: &str) -> u64 {
        self.0.get(&command.to_lowercase()).copied().unwrap_or(0)
    }

    /// Returns the calls since `earlier`, which must be from the same run of the server.
    ///
    /// Commands without new calls are left out. Reading the counts is itself a call of `info`, and is
    /// included.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let new_calls = |(name, calls): (&String, &u64)| {
            let new = calls.saturating_sub(earlier.of(name));
            (new > 0).then(|| (name.clone(), new))
        };
        Self(self.0.iter().filter_map(new_calls).collect())
    }

    /// Returns the calls of all commands, without `info`, which reading the counts sends.
    pub fn total(&self) -> u64 {
        self.iter().filter(|(name, _)| *name != "info").map(|(_, calls)| calls).sum()
    }

    /// Iterates over the commands and their calls, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, calls)| (name.as_str(), *calls))
    }
}

#[cfg(test)]
mod tests {
    use super::Calls;

    #[test]
    fn counts_are_parsed_and_compared() {
        let before =
            Calls::parse("# Commandstats\r\ncmdstat_get:calls=2,usec=9\r\ncmdstat_set:calls=1,usec=3\r\n");
        let after =
            Calls::parse("cmdstat_get:calls=2,usec=9\r\ncmdstat_set:calls=4,usec=3\r\ncmdstat_info:calls=1");
        assert_eq!((before.of("GET"), before.of("set"), before.of("del")), (2, 1, 0));
        let new = after.since(&before);
        assert_eq!(new.iter().collect::<Vec<_>>(), [("info", 1), ("set", 3)]);
        assert_eq!(new.total(), 3);
    }
}
