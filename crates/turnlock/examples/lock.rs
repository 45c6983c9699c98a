//! First steps with a lock: acquire it, try it, wait for it, run a body under it, and lose it.
//!
//! ```text
//! cargo run --example lock                          # in memory
//! cargo run --example lock -- file:                 # in a file, shared with other processes
//! cargo run --example lock -- redis://127.0.0.1     # on a Redis server
//! ```

use std::error::Error;
use std::time::Duration;

use turnlock::{Client, TryAcquire};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let client = Client::connect(&url).await?;

    // Waits until the lock is free. The watchdog renews the lease while the guard lives.
    let guard = client.lock("example:orders:42").await?;
    println!("acquired {:?}", guard.name());

    // A handle holds nothing, and is cheap to clone. Each acquire is a new owner, so this one is refused.
    let lock = client.lock("example:orders:42");
    match lock.try_lock().await? {
        TryAcquire::Acquired(_) => return Err("two owners hold the lock".into()),
        TryAcquire::Busy => println!("busy: another owner holds it"),
    }

    // A waiter is woken by the release.
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.try_lock_for(Duration::from_secs(10)).await }
    });
    guard.unlock().await?; // returns when the store has confirmed the release
    let guard = waiter.await??.acquired().ok_or("no lock within 10 s")?;
    println!("the waiter acquired it");
    drop(guard); // released in the background

    // The same in one call. The body is cancelled if the lock is lost.
    let total = lock.run(|_held| async { 19 + 23 }).await?;
    println!("the body returned {total}");

    // A fixed lease is not renewed. The holder learns of its end before the store can grant the lock to another.
    let guard = lock.with_lease(Duration::from_millis(100)).lock().await?;
    let reason = guard.lost().await;
    println!("lost: {reason}");
    drop(guard);

    // Waits until all releases are confirmed.
    let report = client.shutdown(Duration::from_secs(5)).await;
    println!("clean shutdown: {}", report.is_clean());
    Ok(())
}
