use std::fmt;
use std::io;

use redis::{RedisWrite, ToRedisArgs};
use smallvec::SmallVec;
use turnlock_core::{Kind, LockName};

use crate::lua::{self, Action, Script, ServerMode};
use crate::reply_slot::ReplySlot;
use crate::resp;
use turnlock_store::Caller;

/// A script with its keys and arguments, ready to be sent.
pub(crate) struct ScriptCall {
    script: &'static Script,
    /// The keys, and then the arguments.
    args: Args,
    keys: usize,
    /// The name of the first key, for errors.
    pub(crate) lock: LockName,
    pub(crate) caller: Caller,
    pub(crate) slot: ReplySlot,
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
    fn new(script: &'static Script, lock: &LockName, keys: usize) -> Self {
        let (args, slot) = (Args::default(), ReplySlot::default());
        Self { script, args, keys, lock: lock.clone(), caller: Caller::ENGINE, slot }
    }

    /// Creates a call on the key of one name and on `others`. Arguments follow with [`arg`](ScriptCall::arg).
    pub(crate) fn on(script: &'static Script, lock: &LockName, others: &[String]) -> Self {
        Self::new(script, lock, 1 + others.len()).arg(lock.key()).arg(others)
    }

    /// Creates a call on `keys`, which belong to many names; `first` is the name of the first.
    pub(crate) fn on_many(script: &'static Script, first: &LockName, keys: &[impl ToRedisArgs]) -> Self {
        Self::new(script, first, keys.len()).arg(keys)
    }

    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    /// Sets the caller. The call is not sent if the caller is gone by then.
    pub(crate) fn for_caller(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Appends the request. By hash (EVALSHA), it fails on a server that has not loaded the script.
    pub(crate) fn encode(&self, by: By, mode: ServerMode, request: &mut Vec<u8>) {
        let stable_slot =
            (mode.is_cluster() && self.needs_stable_slot()).then(|| self.lock.beside(NEVER_SET));
        let more_keys = usize::from(stable_slot.is_some());
        encode_script(self.script, by, mode, self.keys + more_keys, self.args.len() + more_keys, request);
        let keys = self.args.iter().take(self.keys).chain(stable_slot.as_deref().map(str::as_bytes));
        for arg in keys.chain(self.args.iter().skip(self.keys)) {
            resp::encode_arg(request, arg);
        }
    }

    /// Returns `true` if it may be sent in a batch, to a server that has all keys.
    pub(crate) fn can_be_batched(&self) -> bool {
        self.script.batch_step.is_some()
    }

    /// Appends one request for many calls, for a server that has all keys.
    pub(crate) fn encode_batch<'a>(
        calls: impl ExactSizeIterator<Item = &'a Self> + Clone,
        by: By,
        mode: ServerMode,
        request: &mut Vec<u8>,
    ) {
        let count = calls.len();
        encode_script(&lua::BATCH, by, mode, count, count * (2 + STEP_ARGS), request);
        for call in calls.clone() {
            resp::encode_arg(request, call.lock.key().as_bytes());
        }
        for call in calls {
            resp::encode_arg(request, call.script.batch_step.unwrap_or_default().as_bytes());
            let mut args = call.args.iter().skip(call.keys);
            for _ in 0..STEP_ARGS {
                resp::encode_arg(request, args.next().unwrap_or_default());
            }
        }
    }

    /// Returns what the script does.
    pub(crate) fn action(&self) -> Action {
        self.script.action
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

/// Appends the start of a request that runs a script, up to its keys.
fn encode_script(
    script: &Script,
    by: By,
    mode: ServerMode,
    keys: usize,
    keys_and_args: usize,
    request: &mut Vec<u8>,
) {
    let script = script.text_for(mode);
    let (command, script) = match by {
        By::Hash => ("EVALSHA", &script.hash),
        By::Text => ("EVAL", &script.text),
    };
    resp::encode_start(request, 3 + keys_and_args);
    resp::encode_arg(request, command.as_bytes());
    resp::encode_arg(request, script.as_bytes());
    resp::encode_number_arg(request, keys);
}

/// A list of byte strings in one buffer. Those of most calls fit without an allocation.
#[derive(Default)]
struct Args {
    bytes: SmallVec<[u8; 184]>,
    /// Where each of them ends.
    ends: SmallVec<[usize; 8]>,
}

impl Args {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

impl RedisWrite for Args {
    fn write_arg(&mut self, arg: &[u8]) {
        self.bytes.extend_from_slice(arg);
        self.ends.push(self.bytes.len());
    }

    fn write_arg_fmt(&mut self, arg: impl fmt::Display) {
        use io::Write as _;
        // Writing to memory does not fail.
        let _ = write!(self.writer_for_next_arg(), "{arg}");
    }

    fn writer_for_next_arg(&mut self) -> impl io::Write + '_ {
        self.ends.push(self.bytes.len());
        LastArg(self)
    }
}

/// Appends to the last argument.
struct LastArg<'a>(&'a mut Args);

impl io::Write for LastArg<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Args { bytes: all, ends } = &mut *self.0;
        all.extend_from_slice(bytes);
        ends.last_mut().into_iter().for_each(|end| *end = all.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
