//! How to test code that uses locks: a memory store for each test, and tokio's paused clock.
//!
//! The functions below would be tests with `#[tokio::test(start_paused = true)]`, with tokio's feature `test-util`. With a
//! paused clock, leases of a memory store follow tokio's time: a test of hours takes milliseconds.
//!
//! ```text
//! cargo run --example testing
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;
use turnlock::{Client, LostReason, MemoryStore};

const HOUR: Duration = Duration::from_secs(3_600);

/// The code under test: writes a report at most once an hour, over all instances.
struct Reporter {
    client: Client,
}

impl Reporter {
    fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns `true` if this instance wrote the report.
    async fn run(&self) -> Result<bool, turnlock::Error> {
        let Some(guard) = self.client.lock("hourly-report").try_lock().await?.acquired() else {
            return Ok(false);
        };
        tokio::time::sleep(Duration::from_secs(90)).await; // writes the report
        guard.unlock_after(HOUR).await?;
        Ok(true)
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let began = std::time::Instant::now();
    only_one_instance_writes().await?;
    the_next_report_is_an_hour_later().await?;
    lost_data_is_noticed().await?;
    assert!(began.elapsed() < Duration::from_secs(60), "the clock was not paused");
    println!("three tests passed");
    Ok(())
}

/// Two clients of one store behave as two processes. A store made by `MemoryStore::new` is not shared with other tests.
async fn only_one_instance_writes() -> Result<(), turnlock::Error> {
    let store = MemoryStore::new();
    let one = Reporter::new(Client::builder().memory(&store)?);
    let two = Reporter::new(Client::builder().memory(&store)?);
    let (one, two) = tokio::join!(one.run(), two.run());
    assert_ne!(one?, two?);
    Ok(())
}

async fn the_next_report_is_an_hour_later() -> Result<(), turnlock::Error> {
    let reporter = Reporter::new(Client::builder().memory(&MemoryStore::new())?);
    assert!(reporter.run().await?);
    tokio::time::advance(Duration::from_secs(3_540)).await;
    assert!(!reporter.run().await?, "too soon");
    tokio::time::advance(Duration::from_secs(61)).await; // just over an hour in all
    assert!(reporter.run().await?);
    Ok(())
}

/// A memory store can lose its data, as a server does that restarts without persistence.
async fn lost_data_is_noticed() -> Result<(), turnlock::Error> {
    let store = MemoryStore::new();
    let client = Client::builder().memory(&store)?;
    let guard = client.lock("orders").await?;
    store.lose_data();
    let began = Instant::now();
    assert_eq!(guard.lost().await, LostReason::Taken);
    assert!(began.elapsed() <= Duration::from_secs(11), "at the next renewal, within a third of the lease");
    Ok(())
}
