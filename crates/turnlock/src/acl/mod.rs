//! What a user of Redis must be allowed to do, and no more: one rule for each primitive.

mod command;
mod primitive;

use std::fmt;

pub use command::AclCommand;
pub use primitive::Primitive;
use turnlock_core::LockName;

/// The least rights of a user on Redis or Valkey with which some primitives work.
///
/// **Guarantee.** With them, every method of these primitives works on names that match the pattern. Without any one of
/// them something does not, or not as well: what is lost without a command that only helps is said by
/// [`AclCommand::without`].
///
/// The keys `turnlock_client:*` are for what clients say of [themselves](crate::Identity), and only help, too.
///
/// **Limits.** The pattern is that of the key, with the client's key prefix. By Redisson's rule, a name that has a `{` of
/// its own has other keys beside it than one that has not: give the pattern of such names with the brace, as in
/// `orders:{*}`. Java clients use other commands, and need more.
///
/// It prints as the command that makes the user, with `PASSWORD` where one belongs:
///
/// ```
/// use turnlock::acl::{AclRule, Primitive};
///
/// let rule = AclRule::new(&[Primitive::PlainLock], "orders:*").for_user("shop");
/// assert_eq!(
///     rule.to_string(),
///     "ACL SETUSER shop reset on >PASSWORD resetchannels ~orders:* ~turnlock_client:* \
///      +del +eval +evalsha +get +pexpire +ping +psetex +pttl +role +script|load +set +type"
/// );
/// ```
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
    /// What these primitives need on one server, for names that match a pattern as `ACL SETUSER` takes it.
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
        rule.add(command::ALWAYS);
        for primitive in primitives {
            rule.add(&primitive.commands());
            if primitive.is_told() {
                rule.add(command::MESSAGES);
            }
            if primitive.shows_clients() {
                rule.add(command::CLIENTS);
            }
        }
        rule.and_names(names)
    }

    /// The same for further names.
    #[must_use]
    pub fn and_names(mut self, names: &str) -> Self {
        // A rule is one word. What is not allowed in it may be any character.
        self.names.push(names.replace(char::is_whitespace, "?"));
        self.spell_out();
        self
    }

    /// The user's name; `turnlock` when not set.
    #[must_use]
    pub fn for_user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        self
    }

    /// For locks that replicas acknowledge: `wait`.
    #[must_use]
    pub fn with_replica_safety(mut self) -> Self {
        self.add(command::REPLICA_SAFETY);
        self
    }

    /// For a cluster of Redis 7 or later, where messages stay within their part of it. On an older one, or where plain
    /// messages were asked for, the commands for messages are those of a single server.
    #[must_use]
    pub fn on_cluster(mut self) -> Self {
        let is_told = self.commands.iter().any(|allowed| command::MESSAGES.contains(allowed));
        self.commands.retain(|allowed| !command::MESSAGES.contains(allowed));
        self.add(command::CLUSTER);
        if is_told {
            self.add(command::CLUSTER_MESSAGES);
        }
        self.is_for_cluster = true;
        self.spell_out();
        self
    }

    /// For a client that uses another database than 0: `select`.
    #[must_use]
    pub fn with_database(mut self) -> Self {
        self.add(command::DATABASE);
        self
    }

    /// For a client that gives itself a name: `client|setname`.
    #[must_use]
    pub fn with_client_name(mut self) -> Self {
        self.add(command::CLIENT_NAME);
        self
    }

    /// For [`Client::doctor`](crate::Client::doctor): `info`, `config|get` and `time`, which are not needed to lock.
    #[must_use]
    pub fn with_doctor(mut self) -> Self {
        self.add(command::DOCTOR);
        self
    }

    /// For [`Client::find`](crate::Client::find), [`Client::look_up`](crate::Client::look_up) and
    /// [`Client::identities`](crate::Client::identities), which are not needed to lock: `scan` and commands that look at a key. What is found is what the primitives of this rule are, on its names.
    #[must_use]
    pub fn with_finding(mut self) -> Self {
        self.add(command::FINDING);
        self
    }

    /// The commands, in the order of the alphabet.
    pub fn commands(&self) -> &[AclCommand] {
        &self.commands
    }

    /// The patterns of keys.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// The patterns of channels.
    pub fn channels(&self) -> &[String] {
        &self.channels
    }

    /// Makes the patterns of keys and channels from those of names.
    fn spell_out(&mut self) {
        if self.primitives.iter().any(|primitive| primitive.shows_clients()) {
            self.keys.push(LockName::CLIENTS.to_owned());
        }
        for names in &self.names {
            for primitive in &self.primitives {
                self.keys.extend(primitive.keys(names));
                self.channels.extend(primitive.channel(names));
            }
            if self.is_for_cluster {
                self.keys.extend(primitive::guard(names));
            }
        }
        tidy(&mut self.keys);
        tidy(&mut self.channels);
    }

    fn add(&mut self, commands: &[AclCommand]) {
        for allowed in commands {
            match self.commands.iter_mut().find(|known| known.name == allowed.name) {
                // What one primitive can do without, another may need.
                Some(known) if allowed.without.is_none() => *known = *allowed,
                Some(_) => {}
                None => self.commands.push(*allowed),
            }
        }
        self.commands.sort_by_key(|allowed| allowed.name);
    }
}

impl fmt::Display for AclRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Redis 6 gives a new user all channels, and refuses to name some of them then.
        write!(f, "ACL SETUSER {} reset on >PASSWORD resetchannels", self.user)?;
        self.keys.iter().try_for_each(|key| write!(f, " ~{key}"))?;
        self.channels.iter().try_for_each(|channel| write!(f, " &{channel}"))?;
        self.commands.iter().try_for_each(|allowed| write!(f, " +{}", allowed.name))
    }
}

/// Sorts patterns, and takes out those that another one covers.
fn tidy(patterns: &mut Vec<String>) {
    patterns.sort();
    patterns.dedup();
    let all = patterns.clone();
    patterns.retain(|pattern| !all.iter().any(|other| other != pattern && covers(other, pattern)));
}

/// Whether everything that matches `pattern` matches `wider`, as far as that is easily seen.
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
                "turnlock_waiters:{orders:*}"
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
    fn what_is_covered_is_not_said_twice() {
        let rule = AclRule::new(&Primitive::ALL, "*");
        assert_eq!(rule.keys(), ["*"]);
        let rule = AclRule::new(&[Primitive::Lock, Primitive::SpinLock], "a:*").and_names("a:b:*");
        assert_eq!(rule.keys(), ["a:*", "turnlock_client:*"]);
        let mut commands = names(&rule);
        commands.dedup();
        assert_eq!(commands, names(&rule));
    }

    #[test]
    fn what_another_primitive_needs_is_not_a_comfort() {
        let without = |primitives: &[Primitive]| {
            let rule = AclRule::new(primitives, "*");
            let get = rule.commands().iter().find(|allowed| allowed.name == "get");
            get.expect("needed by all of these").without
        };
        assert!(without(&[Primitive::ReadWriteLock]).is_some());
        assert!(without(&[Primitive::ReadWriteLock, Primitive::PlainLock]).is_none());
        assert!(without(&[Primitive::PlainLock, Primitive::ReadWriteLock]).is_none());
    }

    #[test]
    fn a_cluster_has_messages_of_its_own() {
        let commands = names(&AclRule::new(&[Primitive::Lock], "*").on_cluster().with_replica_safety());
        for needed in ["asking", "cluster|nodes", "spublish", "ssubscribe", "sunsubscribe", "wait"] {
            assert!(commands.contains(&needed), "{needed}");
        }
        assert!(!commands.contains(&"publish") && !commands.contains(&"subscribe"));
        let rule = AclRule::new(&[Primitive::Lock], "a:*").on_cluster().and_names("b:*");
        assert_eq!(
            rule.keys(),
            ["a:*", "b:*", "turnlock_client:*", "turnlock_never:{a:*}", "turnlock_never:{b:*}"]
        );
        let silent = names(&AclRule::new(&[Primitive::SpinLock], "*").on_cluster());
        assert!(silent.contains(&"asking") && !silent.contains(&"ssubscribe"));
    }
}
