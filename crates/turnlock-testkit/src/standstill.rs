//! Notices when the whole machine stands still, as shared ones do. A case with leases and limits of a second or so can say
//! nothing then, so it is run again, and says so.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a thread that only sleeps may take for it before that counts: more than a busy machine makes it, and less than
/// the shortest limit of any case.
const LONG: Duration = Duration::from_millis(250);

/// When one ended, and how long it was.
static SEEN: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// Begins to watch, until the program ends.
pub fn watch() {
    std::thread::spawn(|| {
        loop {
            let before = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            let took = before.elapsed();
            if took > LONG {
                SEEN.lock().expect("no panic while it is looked at").push((Instant::now(), took));
            }
        }
    });
}

/// The longest one since then.
pub fn longest_since(start: Instant) -> Option<Duration> {
    let seen = SEEN.lock().expect("no panic while it is looked at");
    seen.iter().filter(|(when, _)| *when > start).map(|(_, took)| *took).max()
}
