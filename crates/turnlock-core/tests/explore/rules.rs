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

/// What the clients want, and what may go wrong. It is what keeps the number of states finite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) clients: [Habits; 2],
    pub(crate) faults: Faults,
}

/// What one client does with the lock.
///
/// The code of both is the same, so not both have to do everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// How many times it wants the lock.
    pub(crate) turns: u8,
    /// How many times it reenters, in all.
    pub(crate) reentries: u8,
    /// Whether it renews what it holds.
    pub(crate) renews: bool,
    /// Whether it begins a turn while the end of the last one is still seen to in the background.
    pub(crate) hurries: bool,
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
