//! What the clients keep to, and how much may go wrong.

/// The rules of a correct client. Each can be broken alone, to see that the exploration notices.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own, kept or not")]
pub(crate) struct Rules {
    /// The number in the owner is new for every outermost hold.
    pub(crate) new_number_for_every_hold: bool,
    /// The undo of a cancelled acquire is sent after the answer or error, in order with the acquire.
    pub(crate) undo_after_answer: bool,
    /// What ends a hold is repeated until it was answered later than an acquire in doubt could arrive.
    pub(crate) undo_repeated: bool,
    /// A grant to a resend says nothing about the send before it, which may still arrive.
    pub(crate) grant_keeps_doubt: bool,
    /// Also a hold that was lost is undone, if one of its acquires is in doubt.
    pub(crate) undo_when_lost: bool,
    /// A step carries the count to reach, not "one more" or "one less".
    pub(crate) absolute_counts: bool,
}

impl Rules {
    pub(crate) const CORRECT: Self = Self {
        new_number_for_every_hold: true,
        undo_after_answer: true,
        undo_repeated: true,
        grant_keeps_doubt: true,
        undo_when_lost: true,
        absolute_counts: true,
    };
}

/// What keeps the number of states finite: how often each thing may happen, in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many times each client wants the lock.
    pub(crate) turns: [u8; 2],
    /// How many times each client reenters.
    pub(crate) reentries: [u8; 2],
    pub(crate) faults: Faults,
}

/// The faults that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A connection breaks.
    pub(crate) breaks: u8,
    /// A client waits no longer for an answer, and keeps the connection.
    pub(crate) timeouts: u8,
    /// A lease ends.
    pub(crate) expiries: u8,
}
