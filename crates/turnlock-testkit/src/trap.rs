//! The one-shot faults that wait for a certain request.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::within;

/// The longest needle; connections remember this much of what passed, to find a needle cut in two.
pub(crate) const NEEDLE_LIMIT: usize = 1024;
/// How long to wait for a fault to fire or for held bytes to be delivered.
const LIMIT: Duration = Duration::from_secs(10);

/// What to do with the request that walks into the trap.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    LoseReply,
    HoldRequest,
}

/// A request to let held bytes go; it is answered once they are written.
pub(crate) type Release = oneshot::Sender<()>;

#[derive(Debug, Default)]
struct Setting {
    /// Numbers the armings, so that the end of an earlier fault is not taken for that of a later one.
    id: u64,
    bait: Option<(Fault, Vec<u8>)>,
}

/// Holds at most one armed fault, and the requests that earlier ones have caught.
#[derive(Debug)]
pub(crate) struct Trap {
    setting: Mutex<Setting>,
    /// The highest number of an arming that has fired.
    fired: watch::Sender<u64>,
    held: Mutex<Vec<oneshot::Sender<Release>>>,
}

impl Trap {
    pub(crate) fn new() -> Self {
        Self { setting: Mutex::default(), fired: watch::Sender::new(0), held: Mutex::default() }
    }

    /// Arms a fault in place of the one that was armed, if any.
    pub(crate) fn arm(&self, fault: Fault, needle: &[u8]) {
        assert!(!needle.is_empty(), "an empty needle would be found in anything");
        assert!(needle.len() <= NEEDLE_LIMIT, "a needle has at most {NEEDLE_LIMIT} bytes");
        let mut setting = self.setting.lock().expect("no panic while arming");
        setting.id += 1;
        setting.bait = Some((fault, needle.to_vec()));
    }

    /// Looks for the needle in `chunk`, or across the end of `recent` and the start of `chunk`.
    ///
    /// When it is there, the trap is disarmed and the fault belongs to the caller, together with its number.
    pub(crate) fn catch(&self, recent: &[u8], chunk: &[u8]) -> Option<(Fault, u64)> {
        let mut setting = self.setting.lock().expect("no panic while arming");
        let (fault, needle) = setting.bait.as_ref()?;
        // One byte less than the needle: it must not be found in what has passed before it was armed.
        let overlap = recent.len().saturating_sub(needle.len() - 1);
        let text = [&recent[overlap..], chunk].concat();
        let fault = text.windows(needle.len()).any(|window| window == needle).then_some(*fault)?;
        setting.bait = None;
        Some((fault, setting.id))
    }

    /// Says that the fault of this arming has done its work.
    pub(crate) fn fire(&self, id: u64) {
        self.fired.send_modify(|highest| *highest = id.max(*highest));
    }

    /// Waits until the fault that was armed last has fired.
    pub(crate) async fn fired(&self) {
        let id = self.setting.lock().expect("no panic while arming").id;
        assert!(id > 0, "no fault was ever armed");
        let mut fired = self.fired.subscribe();
        let wait = fired.wait_for(|highest| *highest >= id);
        let _ = within(LIMIT, "the armed fault has fired", wait).await;
    }

    /// Enters a held request; the receiver gets the word to let it go.
    pub(crate) fn hold(&self) -> oneshot::Receiver<Release> {
        let (sender, receiver) = oneshot::channel();
        self.held.lock().expect("no panic while holding").push(sender);
        receiver
    }

    /// Lets all held requests go, in the order they were caught, each delivered before the next.
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
    use super::{Fault, Trap};

    #[test]
    fn a_needle_is_found_once_and_across_chunks_but_not_in_the_past() {
        let trap = Trap::new();
        assert!(trap.catch(b"", b"needle").is_none(), "not armed");
        trap.arm(Fault::LoseReply, b"needle");
        assert!(trap.catch(b"a needle", b"x").is_none(), "passed before");
        assert!(trap.catch(b"a nee", b"dle b").is_some(), "cut in two");
        assert!(trap.catch(b"", b"needle").is_none(), "one shot");
    }
}
