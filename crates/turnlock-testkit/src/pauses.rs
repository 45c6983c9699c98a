//! For how long the machine stands still.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::eventually;

/// Notes when threads that only sleep do so for too long. There is one for each processor, up to a few: what another program
/// has to do may be late on one of them alone.
#[derive(Debug)]
pub struct Pauses {
    threads: Vec<Notes>,
    is_over: Arc<AtomicBool>,
}

/// When pauses of a thread ended, and how long they were; the last may be none.
type Notes = Arc<Mutex<Vec<(Instant, Duration)>>>;

impl Pauses {
    /// Watches until it is dropped.
    pub fn watch() -> Self {
        const MOST_THREADS: usize = 4;
        let count = std::thread::available_parallelism().map_or(2, usize::from).min(MOST_THREADS);
        let is_over = Arc::new(AtomicBool::new(false));
        let threads: Vec<Notes> =
            (0..count).map(|_| Arc::new(Mutex::new(vec![(Instant::now(), Duration::ZERO)]))).collect();
        for notes in &threads {
            let (notes, is_over) = (Arc::clone(notes), Arc::clone(&is_over));
            std::thread::spawn(move || note(&notes, &is_over));
        }
        Self { threads, is_over }
    }

    /// How long all pauses were between two moments that have passed, of the thread that had the most.
    pub async fn between(&self, start: Instant, end: Instant) -> Duration {
        let mut most = Duration::ZERO;
        for notes in &self.threads {
            let seen = || notes.lock().expect("no panic while it is looked at").clone();
            let goes_on = async || seen().last().is_some_and(|(when, _)| *when > end);
            eventually("the machine goes on", Duration::from_secs(10), goes_on).await;
            let part = |(when, pause): (Instant, Duration)| {
                let began = when.checked_sub(pause).unwrap_or(start).max(start);
                when.min(end).saturating_duration_since(began)
            };
            most = most.max(seen().into_iter().map(part).sum());
        }
        most
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn note(notes: &Notes, is_over: &AtomicBool) {
    const NAP: Duration = Duration::from_millis(2);
    const USUAL: Duration = Duration::from_millis(4);
    let mut before = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(NAP);
        let now = Instant::now();
        let pause = (now, (now - before).saturating_sub(USUAL));
        before = now;
        let mut notes = notes.lock().expect("no panic while it is looked at");
        // Of those that were none, the last is enough.
        match notes.last_mut() {
            Some(last) if last.1.is_zero() => *last = pause,
            _ => notes.push(pause),
        }
    }
}
