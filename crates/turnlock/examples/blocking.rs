//! Locks without an async runtime. The thread is the owner, as in Java.
//!
//! ```text
//! cargo run --example blocking                          # in memory
//! cargo run --example blocking -- redis://127.0.0.1     # on a Redis server; or file:
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use turnlock::blocking::{Client, Lock};

const THREADS: u32 = 4;
const TURNS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let client = Client::connect(&url)?;
    let lock = client.lock("example:stock");

    // Reading and writing the stock are two steps, so without the lock some writes would be lost.
    let stock = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| deliver(&lock, &stock))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    println!("{THREADS} threads delivered {} items", stock.load(Ordering::Relaxed));
    assert_eq!(stock.load(Ordering::Relaxed), THREADS * TURNS);

    // The lock is free again, so it is acquired without a wait.
    let guard = lock.try_lock_for(Duration::from_secs(1))?.acquired().ok_or("no lock within a second")?;
    guard.unlock()?;

    let report = client.shutdown(Duration::from_secs(5));
    println!("clean shutdown: {}", report.is_clean());
    Ok(())
}

fn deliver(lock: &Lock, stock: &AtomicU32) -> Result<(), turnlock::Error> {
    for _ in 0..TURNS {
        let guard = lock.lock()?;
        add_item(lock, stock)?;
        guard.unlock()?;
    }
    Ok(())
}

/// Acquires the lock that this thread holds already: it is reentrant, so this does not wait.
fn add_item(lock: &Lock, stock: &AtomicU32) -> Result<(), turnlock::Error> {
    lock.run(|guard| {
        assert_eq!(guard.hold_count(), 2);
        let read = stock.load(Ordering::Relaxed);
        std::thread::yield_now();
        stock.store(read + 1, Ordering::Relaxed);
    })
}
