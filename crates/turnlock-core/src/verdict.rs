//! What "you do not hold it" means as the answer to a release.

use crate::Moment;

/// The meaning of the answer "not held" to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The hold had ended before: it expired, or somebody took it away.
    Lost,
    /// An earlier send of the same release did it; only its answer was lost.
    Released,
    /// Either of the two: the lease was over when the answer came.
    InDoubt,
}

/// Judges the answer "not held".
///
/// Only the first send of a release can be told for sure that the hold was gone. A resend may meet its own success;
/// as long as the lease cannot have ended, that is what happened.
pub fn not_held(resent: bool, now: Moment, local_end: Moment) -> NotHeld {
    if !resent {
        NotHeld::Lost
    } else if now < local_end {
        NotHeld::Released
    } else {
        NotHeld::InDoubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_resend_can_meet_its_own_success() {
        let (early, end, late) = (Moment::from_micros(1), Moment::from_micros(2), Moment::from_micros(3));
        assert_eq!(not_held(false, early, end), NotHeld::Lost);
        assert_eq!(not_held(false, late, end), NotHeld::Lost);
        assert_eq!(not_held(true, early, end), NotHeld::Released);
        assert_eq!(not_held(true, end, end), NotHeld::InDoubt);
    }
}
