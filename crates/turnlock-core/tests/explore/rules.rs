//! The rules of the clients, and the bounds of an exploration.

/// The rules of a correct client. Each can be broken alone, to show that the exploration detects it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent rule")]
pub(crate) struct Rules {
    /// The number in the owner is new for every outermost hold.
    pub(crate) new_number_for_every_hold: bool,
    /// The undo of a cancelled acquire is sent after its reply or error, in order with the acquire.
    pub(crate) undo_after_reply: bool,
    /// The final release is repeated until one with a reply was sent after every acquire in doubt could
    /// arrive.
    pub(crate) undo_repeated: bool,
    /// A grant to a resend does not settle the first send, which may still arrive.
    pub(crate) grant_preserves_doubt: bool,
    /// A lost hold is undone, too, if one of its acquires is in doubt.
    pub(crate) undo_when_lost: bool,
    /// A step carries the count to reach, not "one more" or "one less".
    pub(crate) absolute_counts: bool,
}

impl Rules {
    pub(crate) const CORRECT: Self = Self {
        new_number_for_every_hold: true,
        undo_after_reply: true,
        undo_repeated: true,
        grant_preserves_doubt: true,
        undo_when_lost: true,
        absolute_counts: true,
    };
}

/// What the clients do and which faults happen. Keeps the number of states finite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) clients: [ClientProfile; 2],
    pub(crate) faults: Faults,
}

/// What one client does with the lock.
///
/// Both clients run the same code, so not both have to do everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientProfile {
    /// How many times it acquires the lock.
    pub(crate) turns: u8,
    /// How many times it reenters in total.
    pub(crate) reentries: u8,
    /// `true` if it renews its holds.
    pub(crate) renews: bool,
    /// `true` if it begins a turn while the last one is still being released in the background.
    pub(crate) overlaps_turns: bool,
}

/// The faults that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A connection breaks.
    pub(crate) breaks: u8,
    /// A reply times out, and the connection stays.
    pub(crate) timeouts: u8,
    /// A lease expires.
    pub(crate) expiries: u8,
}
