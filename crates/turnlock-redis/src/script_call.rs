use std::borrow::Cow;

use redis::{Arg, Cmd, ToRedisArgs};
use turnlock_core::{Kind, LockName};

use crate::lua::{self, Action, Script, ServerMode};
use turnlock_store::Caller;

/// A script with its keys and arguments, ready to be sent.
#[derive(Clone)]
pub(crate) struct ScriptCall {
    script: &'static Script,
    /// For a standalone server: EVALSHA, hash, number of keys, keys, arguments.
    cmd: Cmd,
    keys: usize,
    /// The name of the first key, for errors.
    pub(crate) lock: LockName,
    pub(crate) caller: Caller,
}

/// How a script is identified in a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// `EVALSHA`.
    Hash,
    /// `EVAL`.
    Text,
}

/// Arguments of a step in a batch, besides its name.
const STEP_ARGS: usize = 3;

/// The prefix of a key that is never set. See [`ScriptCall::needs_stable_slot`].
const NEVER_SET: &str = "turnlock_never";

impl ScriptCall {
    fn new(script: &'static Script, mut cmd: Cmd, lock: &LockName, keys: usize) -> Self {
        cmd.arg("EVALSHA").arg(&script.standalone.hash).arg(keys);
        Self { script, cmd, keys, lock: lock.clone(), caller: Caller::ENGINE }
    }

    /// Creates a call on the key of one name and on `others`. Arguments follow with [`arg`](ScriptCall::arg).
    pub(crate) fn on(script: &'static Script, lock: &LockName, others: &[String]) -> Self {
        let keys = 1 + others.len();
        let cmd = Cmd::with_capacity(7 + keys, 128 * (1 + keys));
        Self::new(script, cmd, lock, keys).arg(lock.key()).arg(others)
    }

    /// Creates a call on `keys`, which belong to many names; `first` is the name of the first.
    pub(crate) fn on_many(script: &'static Script, first: &LockName, keys: &[impl ToRedisArgs]) -> Self {
        Self::new(script, Cmd::new(), first, keys.len()).arg(keys)
    }

    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    /// Sets the caller. The call is not sent if the caller is gone by then.
    pub(crate) fn for_caller(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Returns the command. By hash (EVALSHA), it fails on a server that has not loaded the script.
    pub(crate) fn cmd(&self, by: By, mode: ServerMode) -> Cow<'_, Cmd> {
        let text = self.script.text_for(mode);
        match by {
            By::Hash if mode == ServerMode::Standalone => Cow::Borrowed(&self.cmd),
            By::Hash => Cow::Owned(self.assemble("EVALSHA", &text.hash, mode)),
            By::Text => Cow::Owned(self.assemble("EVAL", &text.text, mode)),
        }
    }

    /// Returns `true` if it may be sent in a batch, to a server that has all keys.
    pub(crate) fn can_be_batched(&self) -> bool {
        self.script.batch_step.is_some()
    }

    /// Returns one command for many calls, for a server that has all keys.
    pub(crate) fn batch<'a>(calls: impl ExactSizeIterator<Item = &'a Self> + Clone, by: By) -> Cmd {
        let script = &lua::BATCH.standalone;
        let count = calls.len();
        let mut cmd = Cmd::with_capacity(3 + count * (2 + STEP_ARGS), 64 + count * 160);
        match by {
            By::Hash => cmd.arg("EVALSHA").arg(&script.hash),
            By::Text => cmd.arg("EVAL").arg(&script.text),
        };
        cmd.arg(count);
        for call in calls.clone() {
            cmd.arg(call.lock.key());
        }
        for call in calls {
            cmd.arg(call.script.batch_step);
            let mut args = call.keys_and_args().skip(1);
            for _ in 0..STEP_ARGS {
                cmd.arg(args.next().unwrap_or_default());
            }
        }
        cmd
    }

    /// Returns the keys, and then the arguments.
    fn keys_and_args(&self) -> impl Iterator<Item = &[u8]> {
        self.cmd.args_iter().skip(3).filter_map(|arg| match arg {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// Returns what the script does.
    pub(crate) fn action(&self) -> Action {
        self.script.action
    }

    fn assemble(&self, command: &str, script: &str, mode: ServerMode) -> Cmd {
        let needs_stable_slot = mode.is_cluster() && self.needs_stable_slot();
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.keys + usize::from(needs_stable_slot));
        let mut args = self.keys_and_args();
        for key in args.by_ref().take(self.keys) {
            cmd.arg(key);
        }
        if needs_stable_slot {
            cmd.arg(self.lock.beside(NEVER_SET));
        }
        for arg in args {
            cmd.arg(arg);
        }
        cmd
    }

    /// Returns `true` if the call must not run while its slot moves from one node to another.
    ///
    /// Keys move one by one. A script with one key runs where that key is. A script with several keys could
    /// find only some of them on either node, and take the others for deleted. So the call names one more
    /// key, which is never set: Redis then replies TRYAGAIN while the slot is moving, and runs nothing.
    fn needs_stable_slot(&self) -> bool {
        // The keys of read holds are built by the script.
        self.keys > 1 || matches!(self.lock.kind(), Kind::Read | Kind::Write)
    }
}
