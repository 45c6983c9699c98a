//! ACL rules with the least rights that a user of Redis or Valkey needs.

mod command;
mod primitive;

use std::fmt;

pub use command::AclCommand;
use command::Commands;
pub use primitive::Primitive;
use turnlock_core::LockName;

/// The least rights of a Redis or Valkey user for some primitives.
///
/// With these rights, every method of the primitives works on names that match the pattern. If one is left
/// out, a method fails; or it works with a disadvantage, which [`AclCommand::if_missing`] describes. The keys
/// `turnlock_client:*`, which hold the identities of clients, and `turnlock_waits`, on which clients announce their
/// waits and holds, are optional too.
///
/// The pattern is that of the key, and includes the client's key prefix. A name that contains a `{` has
/// related keys of a different form (Redisson's rule): write the brace in the pattern of such names, as in
/// `orders:{*}`. Java clients use other commands, and need more.
///
/// `Display` prints the command that creates the user, with `PASSWORD` as a placeholder.
#[derive(Clone, Debug)]
pub struct AclRule {
    user: String,
    commands: Vec<AclCommand>,
    keys: Vec<String>,
    channels: Vec<String>,
    primitives: Vec<Primitive>,
    names: Vec<String>,
    is_for_cluster: bool,
}

impl AclRule {
    /// Creates the rule for these primitives, on names that match a pattern.
    ///
    /// The pattern has the syntax of `ACL SETUSER`. The rule is for a single server; see
    /// [`on_cluster`](Self::on_cluster).
    pub fn new(primitives: &[Primitive], names: &str) -> Self {
        let mut rule = Self {
            user: "turnlock".to_owned(),
            commands: Vec::new(),
            keys: Vec::new(),
            channels: Vec::new(),
            primitives: primitives.to_vec(),
            names: Vec::new(),
            is_for_cluster: false,
        };
        rule = rule.with(&command::ALWAYS).with(&command::ACTIVITY);
        for primitive in primitives {
            rule = rule.with(&primitive.commands());
            if primitive.sends_messages() {
                rule = rule.with(&command::MESSAGES);
            }
            if primitive.identifies_clients() {
                rule = rule.with(&command::CLIENT_RECORD);
            }
        }
        rule.with_names(names)
    }

    /// Adds names that match another pattern.
    #[must_use]
    pub fn with_names(mut self, names: &str) -> Self {
        // A pattern in a rule cannot contain white space; `?` matches any character.
        self.names.push(names.replace(char::is_whitespace, "?"));
        self.update_patterns();
        self
    }

    /// Sets the name of the user; the default is `turnlock`.
    #[must_use]
    pub fn for_user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// Adds `wait`, for grants that replicas acknowledge.
    #[must_use]
    pub fn with_replicas(self) -> Self {
        self.with(&command::REPLICAS)
    }

    /// Changes the rule for a cluster of Redis 7 or later, with sharded channels.
    ///
    /// On an older cluster, or with plain channels, the commands for messages are those of a single server.
    #[must_use]
    pub fn on_cluster(mut self) -> Self {
        self.commands.retain(|allowed| command::MESSAGES.iter().all(|message| message != *allowed));
        self = self.with(&command::CLUSTER);
        if self.primitives.iter().any(|primitive| primitive.sends_messages()) {
            self = self.with(&command::CLUSTER_MESSAGES);
        }
        self.is_for_cluster = true;
        self.update_patterns();
        self
    }

    /// Adds `select`, for a client that uses a database other than 0.
    #[must_use]
    pub fn with_database(self) -> Self {
        self.with(&command::DATABASE)
    }

    /// Adds `client|setname`, for a client with a name.
    #[must_use]
    pub fn with_client_name(self) -> Self {
        self.with(&command::CLIENT_NAME)
    }

    /// Adds `info`, `config|get` and `time`, for `Client::doctor`.
    ///
    /// Locks do not need them.
    #[must_use]
    pub fn with_doctor(self) -> Self {
        self.with(&command::DOCTOR)
    }

    /// Adds `scan` and commands that read a key, for `Client::find`.
    ///
    /// `Client::inspect` and `Client::identities` need them too; locks do not. Only the primitives and names of
    /// this rule can be found.
    #[must_use]
    pub fn with_find(self) -> Self {
        self.with(&command::FIND)
    }

    /// Returns the commands, in alphabetical order.
    pub fn commands(&self) -> &[AclCommand] {
        &self.commands
    }

    /// Returns the patterns of keys.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the patterns of channels.
    pub fn channels(&self) -> &[String] {
        &self.channels
    }

    /// Derives the patterns of keys and channels from those of names.
    fn update_patterns(&mut self) {
        self.keys.push(LockName::ACTIVITY.to_owned());
        if self.primitives.iter().any(|primitive| primitive.identifies_clients()) {
            self.keys.push(LockName::CLIENTS.to_owned());
        }
        for names in &self.names {
            for primitive in &self.primitives {
                self.keys.extend(primitive.keys(names));
                self.channels.extend(primitive.channel(names));
            }
            if self.is_for_cluster {
                self.keys.extend(primitive::never_key(names));
            }
        }
        deduplicate(&mut self.keys);
        deduplicate(&mut self.channels);
    }

    fn with(mut self, commands: &Commands) -> Self {
        for allowed in commands.iter() {
            match self.commands.iter_mut().find(|known| known.name == allowed.name) {
                // A command that is optional for one primitive may be required by another.
                Some(known) if allowed.if_missing.is_none() => *known = allowed,
                Some(_) => {}
                None => self.commands.push(allowed),
            }
        }
        self.commands.sort_by_key(|allowed| allowed.name);
        self
    }
}

impl fmt::Display for AclRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On Redis 6 a new user has all channels, and single channels cannot be added to that.
        write!(f, "ACL SETUSER {} reset on >PASSWORD resetchannels", self.user)?;
        self.keys.iter().try_for_each(|key| write!(f, " ~{key}"))?;
        self.channels.iter().try_for_each(|channel| write!(f, " &{channel}"))?;
        self.commands.iter().try_for_each(|allowed| write!(f, " +{}", allowed.name))
    }
}

/// Sorts patterns and removes those that another one covers.
fn deduplicate(patterns: &mut Vec<String>) {
    patterns.sort();
    patterns.dedup();
    let all = patterns.clone();
    patterns.retain(|pattern| !all.iter().any(|other| other != pattern && covers(other, pattern)));
}

/// Returns `true` if everything that matches `pattern` surely matches `wider`; may miss cases.
fn covers(wider: &str, pattern: &str) -> bool {
    wider
        .strip_suffix('*')
        .is_some_and(|beginning| !beginning.contains(['*', '?', '[', '\\']) && pattern.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rule: &AclRule) -> Vec<&'static str> {
        rule.commands().iter().map(|allowed| allowed.name).collect()
    }

    #[test]
    fn a_pattern_follows_the_brace_rule() {
        let fair = [Primitive::FairLock];
        let rule = AclRule::new(&fair, "orders:*");
        assert_eq!(
            rule.keys(),
            [
                "orders:*",
                "redisson_lock_queue:{orders:*}",
                "redisson_lock_timeout:{orders:*}",
                "turnlock_client:*",
                "turnlock_waiters:{orders:*}",
                "turnlock_waits"
            ]
        );
        assert_eq!(rule.channels(), ["redisson_lock__channel:{orders:*}:*"]);
        let rule = AclRule::new(&fair, "orders:{*}");
        assert_eq!(rule.keys()[1], "redisson_lock_queue:orders:{*}");
        assert_eq!(rule.channels(), ["redisson_lock__channel:orders:{*}:*"]);
        let rule = AclRule::new(&[Primitive::Latch], "a b{*}");
        assert_eq!(rule.channels(), ["redisson_countdownlatch__channel__{a?b{*}}"]);
    }

    #[test]
    fn covered_patterns_and_repeated_commands_are_left_out() {
        let rule = AclRule::new(&Primitive::ALL, "*");
        assert_eq!(rule.keys(), ["*"]);
        let rule = AclRule::new(&[Primitive::Lock, Primitive::SpinLock], "a:*").with_names("a:b:*");
        assert_eq!(rule.keys(), ["a:*", "turnlock_client:*", "turnlock_waits"]);
        let mut commands = names(&rule);
        commands.dedup();
        assert_eq!(commands, names(&rule));
    }

    #[test]
    fn a_command_that_one_primitive_requires_is_not_optional() {
        let if_missing = |primitives: &[Primitive]| {
            let rule = AclRule::new(primitives, "*");
            let get = rule.commands().iter().find(|allowed| allowed.name == "get");
            get.expect("needed by all of these").if_missing
        };
        assert!(if_missing(&[Primitive::ReadWriteLock]).is_some());
        assert!(if_missing(&[Primitive::ReadWriteLock, Primitive::PlainLock]).is_none());
        assert!(if_missing(&[Primitive::PlainLock, Primitive::ReadWriteLock]).is_none());
    }

    #[test]
    fn a_cluster_uses_sharded_channels() {
        let commands = names(&AclRule::new(&[Primitive::Lock], "*").on_cluster().with_replicas());
        for command in ["asking", "cluster|nodes", "spublish", "ssubscribe", "sunsubscribe", "wait"] {
            assert!(commands.contains(&command), "{command}");
        }
        assert!(!commands.contains(&"publish") && !commands.contains(&"subscribe"));
        let rule = AclRule::new(&[Primitive::Lock], "a:*").on_cluster().with_names("b:*");
        assert_eq!(
            rule.keys(),
            [
                "a:*",
                "b:*",
                "turnlock_client:*",
                "turnlock_never:{a:*}",
                "turnlock_never:{b:*}",
                "turnlock_waits"
            ]
        );
        let spin = names(&AclRule::new(&[Primitive::SpinLock], "*").on_cluster());
        assert!(spin.contains(&"asking") && !spin.contains(&"ssubscribe"));
    }
}
