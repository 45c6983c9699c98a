//! What the reply "not held" to a release means.

use crate::Moment;

/// The meaning of the reply "not held" to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The hold had ended before: it expired, or was removed.
    Lost,
    /// An earlier send of the same release took effect; only its reply was lost.
    Released,
    /// Either of the two: the lease had ended when the reply arrived.
    InDoubt,
}

/// Classifies the reply "not held".
///
/// Only the first send of a release proves that the hold was gone. A resend may find the effect of the first
/// send; as long as the lease cannot have ended, that is what happened.
pub fn classify(resent: bool, now: Moment, local_end: Moment) -> NotHeld {
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
    fn only_a_resend_can_find_the_effect_of_the_first_send() {
        let (early, end, late) = (Moment::from_micros(1), Moment::from_micros(2), Moment::from_micros(3));
        assert_eq!(classify(false, early, end), NotHeld::Lost);
        assert_eq!(classify(false, late, end), NotHeld::Lost);
        assert_eq!(classify(true, early, end), NotHeld::Released);
        assert_eq!(classify(true, end, end), NotHeld::InDoubt);
    }
}
