use std::borrow::Cow;

use redis::{Arg, Cmd, ToRedisArgs};
use turnlock_core::{Kind, LockName};

use super::scripts::{self, Dialect, Script};
use crate::backend::Caller;

/// A script with its keys and arguments, ready to be sent by its hash.
#[derive(Clone)]
pub(super) struct ScriptCall {
    script: &'static Script,
    /// For a server alone: EVALSHA, the hash, the number of keys, the keys, the arguments.
    cmd: Cmd,
    keys: usize,
    /// The first key, to be named in errors.
    pub(super) lock: LockName,
    pub(super) caller: Caller,
}

/// How a script is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Hash,
    Text,
}

/// How many arguments a step has in a convoy, beside its name.
const STEP_ARGUMENTS: usize = 3;

/// The prefix of a key that never is. See [`ScriptCall::is_guarded`].
const NEVER: &str = "turnlock_never";

impl ScriptCall {
    fn new(script: &'static Script, cmd: Cmd, keys: usize, lock: &LockName) -> Self {
        Self { script, cmd, keys, lock: lock.clone(), caller: Caller::ENGINE }
    }

    /// A call on the key of the name. Arguments follow with [`arg`](ScriptCall::arg).
    pub(super) fn on(script: &'static Script, lock: &LockName) -> Self {
        let mut call = Self::new(script, Cmd::with_capacity(8, 256), 1, lock);
        call.cmd.arg("EVALSHA").arg(&script.alone.hash).arg(1).arg(lock.key());
        call
    }

    /// A call on the key of the name and others beside it.
    pub(super) fn on_all(script: &'static Script, lock: &LockName, beside: &[&str]) -> Self {
        let keys = 1 + beside.len();
        let mut call = Self::new(script, Cmd::with_capacity(7 + keys, 512), keys, lock);
        call.cmd.arg("EVALSHA").arg(&script.alone.hash).arg(keys).arg(lock.key()).arg(beside);
        call
    }

    /// A call on the keys of many names; `keys` are all of them, and `first` is the name of the first.
    pub(super) fn on_many(script: &'static Script, first: &LockName, keys: &[impl ToRedisArgs]) -> Self {
        let mut call = Self::new(script, redis::cmd("EVALSHA"), keys.len(), first);
        call.cmd.arg(&script.alone.hash).arg(keys.len()).arg(keys);
        call
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    /// The same for a caller that may go away before it was sent.
    pub(super) fn asked_by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// The call by the hash of the script, as a server knows it that was used before.
    pub(super) fn by_hash(&self, dialect: Dialect) -> Cow<'_, Cmd> {
        match dialect {
            Dialect::Alone => Cow::Borrowed(&self.cmd),
            _ => Cow::Owned(self.assembled("EVALSHA", &self.script.spoken(dialect).hash, dialect)),
        }
    }

    /// The same call with the text of the script in place of its hash.
    pub(super) fn by_text(&self, dialect: Dialect) -> Cmd {
        self.assembled("EVAL", &self.script.spoken(dialect).text, dialect)
    }

    /// Whether it may go together with others, to a server that has all keys.
    pub(super) fn goes_in_convoy(&self) -> bool {
        self.script.in_convoy.is_some()
    }

    /// Calls that go in a convoy, as one; to a server that has all keys.
    pub(super) fn together(calls: &[&Self], by: By) -> Cmd {
        let script = &scripts::CONVOY.alone;
        let count = calls.len();
        let mut cmd = Cmd::with_capacity(3 + count * (2 + STEP_ARGUMENTS), 64 + count * 160);
        match by {
            By::Hash => cmd.arg("EVALSHA").arg(&script.hash),
            By::Text => cmd.arg("EVAL").arg(&script.text),
        };
        cmd.arg(count);
        for call in calls {
            cmd.arg(call.lock.key());
        }
        for call in calls {
            cmd.arg(call.script.in_convoy);
            let mut arguments = call.texts().skip(1);
            for _ in 0..STEP_ARGUMENTS {
                cmd.arg(arguments.next().unwrap_or_default());
            }
        }
        cmd
    }

    /// The keys, and then the arguments.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.cmd.args_iter().skip(3).filter_map(|arg| match arg {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// Whether this is told to others when it takes effect.
    pub(super) fn is_an_end(&self) -> bool {
        self.script.ends_holds
    }

    fn assembled(&self, command: &str, script: &str, dialect: Dialect) -> Cmd {
        let guarded = dialect.is_in_cluster() && self.is_guarded();
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys + usize::from(guarded));
        let mut args = self.texts();
        for key in args.by_ref().take(self.keys) {
            cmd.arg(key);
        }
        if guarded {
            cmd.arg(self.lock.beside(NEVER));
        }
        for arg in args {
            cmd.arg(arg);
        }
        cmd
    }

    /// Whether the call must not run while its slot moves from one node to another.
    ///
    /// Keys move one by one. A script with one key runs where the key is. One that looks at several could find half of
    /// them, on either side, and take the other half for gone. So it names one key more, one that never is: then Redis
    /// answers TRYAGAIN as long as the slot is open, and does nothing.
    fn is_guarded(&self) -> bool {
        // Read holds have keys of their own, which the script makes up.
        self.keys > 1 || matches!(self.lock.kind(), Kind::Read | Kind::Write)
    }
}
