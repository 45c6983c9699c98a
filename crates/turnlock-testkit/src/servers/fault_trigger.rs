//! One-shot faults that a certain request triggers.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::within;

/// The longest needle. Connections keep this many of the last bytes, to find a needle that spans two chunks.
pub(crate) const NEEDLE_LIMIT: usize = 1024;
/// How long to wait for a fault to fire or a held request to be delivered.
const LIMIT: Duration = Duration::from_secs(10);

/// What happens to the request that triggers the fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    LoseReply,
    HoldRequest,
}

/// A command to deliver a held request; completed once it is written.
pub(crate) type Release = oneshot::Sender<()>;

#[derive(Debug, Default)]
struct Armed {
    /// Numbers the faults, to distinguish one that fires late from a later one.
    id: u64,
    /// The fault and its needle; `None` once triggered.
    fault: Option<(Fault, Vec<u8>)>,
}

/// At most one armed fault, and the requests that earlier faults hold back.
#[derive(Debug)]
pub(crate) struct FaultTrigger {
    armed: Mutex<Armed>,
    /// The highest number of a fault that has fired.
    fired: watch::Sender<u64>,
    held: Mutex<Vec<oneshot::Sender<Release>>>,
}

impl FaultTrigger {
    pub(crate) fn new() -> Self {
        Self { armed: Mutex::default(), fired: watch::Sender::new(0), held: Mutex::default() }
    }

    /// Arms a fault. It replaces the one that is armed, if any.
    pub(crate) fn arm(&self, fault: Fault, needle: &[u8]) {
        assert!(!needle.is_empty(), "an empty needle would be found in anything");
        assert!(needle.len() <= NEEDLE_LIMIT, "a needle has at most {NEEDLE_LIMIT} bytes");
        let mut armed = self.armed.lock().expect("no panic while arming");
        armed.id += 1;
        armed.fault = Some((fault, needle.to_vec()));
    }

    /// Searches for the needle in `chunk`, or across the boundary of `recent` and `chunk`.
    ///
    /// If it is found, the fault is disarmed and returned with its number.
    pub(crate) fn match_request(&self, recent: &[u8], chunk: &[u8]) -> Option<(Fault, u64)> {
        let mut armed = self.armed.lock().expect("no panic while arming");
        let (fault, needle) = armed.fault.as_ref()?;
        // One byte less than the needle: bytes from before the arming alone must not match.
        let overlap = recent.len().saturating_sub(needle.len() - 1);
        let text = [&recent[overlap..], chunk].concat();
        let fault = text.windows(needle.len()).any(|window| window == needle).then_some(*fault)?;
        armed.fault = None;
        Some((fault, armed.id))
    }

    /// Records that the fault with this number has fired.
    pub(crate) fn mark_fired(&self, id: u64) {
        self.fired.send_modify(|highest| *highest = id.max(*highest));
    }

    /// Waits until the fault that was armed last has fired.
    pub(crate) async fn fired(&self) {
        let id = self.armed.lock().expect("no panic while arming").id;
        assert!(id > 0, "no fault was ever armed");
        let mut fired = self.fired.subscribe();
        let wait = fired.wait_for(|highest| *highest >= id);
        let _ = within(LIMIT, "the armed fault has fired", wait).await;
    }

    /// Registers a held request. The receiver gets the command to deliver it.
    pub(crate) fn hold(&self) -> oneshot::Receiver<Release> {
        let (sender, receiver) = oneshot::channel();
        self.held.lock().expect("no panic while holding").push(sender);
        receiver
    }

    /// Delivers all held requests in the order they were caught, one after the other.
    pub(crate) async fn release(&self) {
        let held = std::mem::take(&mut *self.held.lock().expect("no panic while holding"));
        assert!(!held.is_empty(), "no request is held");
        for request in held {
            let (written, wait) = oneshot::channel();
            request.send(written).expect("a held request waits for its release");
            let _ = within(LIMIT, "a held request is delivered", wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultTrigger};

    #[test]
    fn a_needle_is_found_once_and_across_chunks_but_not_before_arming() {
        let trigger = FaultTrigger::new();
        assert!(trigger.match_request(b"", b"needle").is_none(), "not armed");
        trigger.arm(Fault::LoseReply, b"needle");
        assert!(trigger.match_request(b"a needle", b"x").is_none(), "passed before arming");
        assert!(trigger.match_request(b"a nee", b"dle b").is_some(), "in two chunks");
        assert!(trigger.match_request(b"", b"needle").is_none(), "one shot");
    }
}
