use std::mem;
use std::sync::Arc;

use redis::{Cmd, Value};
use turnlock_store::Sent;

use crate::lua::ServerMode;
use crate::reply_slot::ReplySlot;
use crate::resp;
use crate::script_call::{By, ScriptCall};

/// A request that is sent and has no reply yet.
pub(super) struct InFlight {
    pub(super) content: Content,
    pub(super) by: By,
    pub(super) sent: Sent,
    /// The number of replies before the one that counts.
    skipped: usize,
}

/// What a request consists of.
pub(super) enum Content {
    /// A script call. With `asking`, it follows an `ASK` redirect.
    Call { call: Arc<ScriptCall>, asking: bool },
    /// Several steps in one script call.
    Batch(Vec<Arc<ScriptCall>>),
    /// Commands that are not scripts, and the replies so far.
    Commands(Arc<Commands>, Vec<Value>),
}

/// Encoded commands, and where their replies arrive.
pub(crate) struct Commands {
    packed: Vec<u8>,
    /// The number of commands whose replies are one list. `None`: a single command.
    count: Option<usize>,
    pub(super) slot: ReplySlot,
}

impl Commands {
    pub(crate) fn one(cmd: &Cmd) -> Arc<Self> {
        Arc::new(Self { packed: cmd.get_packed_command(), count: None, slot: ReplySlot::default() })
    }

    /// Several commands, encoded. The reply is the list of their replies, which may contain errors.
    pub(crate) fn packed(packed: Vec<u8>, count: usize) -> Arc<Self> {
        Arc::new(Self { packed, count: Some(count), slot: ReplySlot::default() })
    }
}

impl InFlight {
    pub(super) fn new(content: Content, by: By, sent: Sent) -> Self {
        let skipped = usize::from(matches!(content, Content::Call { asking: true, .. }));
        Self { content, by, sent, skipped }
    }

    /// Returns the number of steps that share the call, if they do.
    pub(super) fn batch_len(&self) -> Option<usize> {
        match &self.content {
            Content::Batch(calls) => Some(calls.len()),
            Content::Call { .. } | Content::Commands(..) => None,
        }
    }

    /// Returns `true` for a call of one or more steps that could share it with others.
    pub(super) fn is_shareable(&self) -> bool {
        match &self.content {
            Content::Call { call, .. } => call.can_be_batched(),
            Content::Batch(_) => true,
            Content::Commands(..) => false,
        }
    }

    /// Takes the next reply. Returns that to the whole request once it is complete.
    pub(super) fn complete(&mut self, value: Value) -> Option<Value> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return None;
        }
        let Content::Commands(commands, replies) = &mut self.content else { return Some(value) };
        let Some(count) = commands.count else { return Some(value) };
        replies.push(value);
        (replies.len() == count).then(|| Value::Array(mem::take(replies)))
    }
}

impl Content {
    /// Appends the request.
    pub(super) fn encode(&self, by: By, mode: ServerMode, request: &mut Vec<u8>) {
        match self {
            Self::Call { call, asking } => {
                if *asking {
                    resp::encode_asking(request);
                }
                call.encode(by, mode, request);
            }
            Self::Batch(calls) => {
                ScriptCall::encode_batch(calls.iter().map(|call| &**call), by, mode, request);
            }
            Self::Commands(commands, _) => request.extend_from_slice(&commands.packed),
        }
    }

    /// Returns where the outcomes arrive.
    pub(super) fn slots(&self) -> impl Iterator<Item = &ReplySlot> {
        let (calls, other) = match self {
            Self::Call { call, .. } => (&[][..], Some(&call.slot)),
            Self::Batch(calls) => (&calls[..], None),
            Self::Commands(commands, _) => (&[][..], Some(&commands.slot)),
        };
        calls.iter().map(|call| &call.slot).chain(other)
    }
}
