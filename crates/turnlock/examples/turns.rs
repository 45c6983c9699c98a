//! Two tasks take turns on a lock, then a dropped guard and a lost lease show how a turn ends. No server is needed:
//!
//! ```text
//! cargo run --example turns                          # in memory
//! cargo run --example turns -- redis://127.0.0.1     # the same on a Redis server
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use turnlock::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let client = Client::connect(&url).await?;
    let lock = client.lock("example:turns");
    let start = Instant::now();
    let say = move |who: &str, what: &str| println!("{:>5} ms  {who:<7} {what}", start.elapsed().as_millis());

    // Two tasks, one lock: each works for a while, and never at the same time.
    let mut tasks = Vec::new();
    for who in ["first", "second"] {
        let lock = lock.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..2 {
                let guard = lock.lock().await?;
                say(who, "has its turn");
                tokio::time::sleep(Duration::from_millis(50)).await;
                say(who, "gives the lock back");
                guard.unlock().await?;
            }
            Ok::<_, turnlock::Error>(())
        }));
    }
    for task in tasks {
        task.await??;
    }

    // Whoever drops the guard gives the lock back; the next one is woken.
    let guard = lock.lock().await?;
    let waiting = lock.clone();
    let next = tokio::spawn(async move {
        let guard = waiting.lock().await?;
        say("third", "was woken by a dropped guard");
        guard.unlock().await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    say("main", "drops its guard");
    drop(guard);
    next.await??;

    // A fixed lease ends by itself, and its holder hears of it first.
    let guard = lock.lease(Duration::from_millis(100)).lock().await?;
    let reason = guard.lost().await;
    say("main", &format!("was told: {reason}"));
    drop(guard);

    let left = client.shutdown(Duration::from_secs(5)).await;
    say(
        "main",
        if left.is_clean() { "leaves, and nothing is left behind" } else { "leaves something behind" },
    );
    Ok(())
}
