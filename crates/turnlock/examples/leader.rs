//! Leader election: one of three workers is active, and another takes over when it stops.
//!
//! Each worker is a task with a client of its own, as if it was a process of its own.
//!
//! ```text
//! cargo run --example leader                          # in memory
//! cargo run --example leader -- redis://127.0.0.1     # on a Redis server; or file:
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::sync::mpsc;
use turnlock::{Client, Held};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let (sender, mut elections) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    for number in 0..3 {
        // The lease bounds how long there is no leader after the crash of one. The default is 30 s.
        let lease = Duration::from_secs(10);
        let client = Client::builder().watchdog_timeout(lease).connect(&url).await?;
        let task = tokio::spawn(worker(number, client.clone(), sender.clone()));
        workers.push((client, task));
    }

    let first = elections.recv().await.ok_or("no leader")?;
    println!("worker {first} leads");

    // Dropping the task drops its guard, which releases the lock: the next worker is woken at once. If its process is
    // killed, the next worker leads when the lease ends.
    workers[first].1.abort();
    let second = elections.recv().await.ok_or("no second leader")?;
    println!("worker {first} stopped, worker {second} leads");
    assert_ne!(first, second);

    // A process that ends waits until its releases are confirmed.
    for (client, task) in workers {
        task.abort();
        let _ = task.await;
        assert!(client.shutdown(Duration::from_secs(5)).await.is_clean());
    }
    println!("all workers ended");
    Ok(())
}

/// Leads whenever it can, until it is stopped.
async fn worker(
    number: usize,
    client: Client,
    elections: mpsc::UnboundedSender<usize>,
) -> Result<(), turnlock::Error> {
    let leadership = client.lock("example:leader");
    loop {
        let lead = |held| async {
            let _ = elections.send(number);
            lead(held).await;
        };
        match leadership.run(lead).await {
            Ok(()) => return Ok(()),
            // `lead` was cancelled before another worker could lead. Wait for the next turn.
            Err(turnlock::Error::Lost { reason, .. }) => println!("worker {number} lost: {reason}"),
            // The store was not available for `Builder::retry_for`. Try again.
            Err(error) if error.is_retryable() => println!("worker {number} cannot lead: {error}"),
            Err(error) => return Err(error),
        }
    }
}

/// The work of the leader.
async fn lead(held: Held) {
    loop {
        // A paused process can run for a moment after its lease has ended: check before each step with effects.
        if held.is_valid() {
            // … one step of the work …
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
