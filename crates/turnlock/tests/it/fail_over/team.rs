//! Processes that take turns, and increment a counter that nothing else protects, while servers die.

use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::AsyncCommands;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;
use turnlock::{Client, Error};
use turnlock_testkit::{RedisServer, eventually, within};

use super::history::{Outcome, Turn, now};
use crate::child;
use crate::rig::ms;

const PROCESSES: usize = 2;
const TASKS: usize = 4;

/// Eight tasks in two processes that want one lock.
pub(super) struct Team {
    name: String,
    children: Vec<(Child, JoinHandle<()>)>,
    turns: Arc<Mutex<Vec<Turn>>>,
}

impl Team {
    /// Starts to take turns at the lock `name` of the store at `url`, each acknowledged by so many replicas. The counter is
    /// on a server that nobody kills.
    pub(super) fn start(url: &str, counter: &RedisServer, name: &str, replicas: u32) -> Self {
        let turns = Arc::new(Mutex::new(Vec::new()));
        let order = format!("turns,{name},{},{replicas}", counter.port());
        let one = |_| {
            let mut child = child::command(&order, url).stdin(Stdio::piped()).spawn().expect("a child");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            (child, tokio::spawn(collect(lines, Arc::clone(&turns))))
        };
        Self { name: name.to_owned(), children: (0..PROCESSES).map(one).collect(), turns }
    }

    /// Waits until a turn was taken that began after `moment`.
    pub(super) async fn takes_a_turn_after(&self, moment: u64, limit: Duration) {
        let has_begun = |turns: &[Turn]| turns.iter().any(|turn| turn.start > moment);
        let what = format!("a turn at {:?}", self.name);
        eventually(&what, limit, async || has_begun(&self.turns.lock().unwrap())).await;
    }

    /// Ends the work. All turns that were taken.
    pub(super) async fn stop(self) -> Vec<Turn> {
        for (mut child, reader) in self.children {
            // That is the sign to stop.
            drop(child.stdin.take());
            let status = within(ms(20_000), "the child ends", child.wait()).await.expect("a status");
            assert!(status.success(), "{status}");
            reader.await.expect("no panic");
        }
        std::mem::take(&mut *self.turns.lock().unwrap())
    }
}

/// Takes down what a child has to tell.
async fn collect(
    mut lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    turns: Arc<Mutex<Vec<Turn>>>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        turns.lock().unwrap().push(Turn::read(&line));
    }
}

/// A client. A child that is slow to start may come when the first server has just been killed.
async fn connect(url: &str, replicas: u32) -> Client {
    let mut tries = 0;
    loop {
        match Client::builder().acknowledged_by(replicas).connect(url).await {
            Ok(client) => return client,
            Err(_) if tries < 100 => tokio::time::sleep(ms(100)).await,
            Err(error) => panic!("no store: {error}"),
        }
        tries += 1;
    }
}

/// What a child does, until its input ends.
pub(crate) fn work(name: &str, counter: &str, replicas: u32, url: &str) {
    static DONE: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        DONE.store(true, Ordering::Release);
    });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = connect(url, replicas).await;
        let counter = redis::Client::open(format!("redis://127.0.0.1:{counter}")).expect("a good URL");
        let tasks = (0..TASKS).map(|_| {
            let (lock, counter, key) = (client.lock(name), counter.clone(), name.to_owned());
            tokio::spawn(async move {
                let mut counter = counter.get_multiplexed_async_connection().await.expect("a server");
                while !DONE.load(Ordering::Acquire) {
                    match lock.try_lock_for(ms(2_000)).await {
                        Ok(Some(guard)) => println!("{}", one_turn(guard, &mut counter, &key).await),
                        Ok(None) => {}
                        Err(_) => tokio::time::sleep(ms(20)).await,
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        let _ = client.shutdown(ms(5_000)).await;
    });
}

async fn one_turn(
    guard: turnlock::Guard,
    counter: &mut redis::aio::MultiplexedConnection,
    key: &str,
) -> Turn {
    let start = now();
    let value: Option<u64> = counter.get(key).await.expect("an answer");
    tokio::time::sleep(ms(1)).await;
    let is_valid = guard.is_valid();
    if is_valid {
        let _: () = counter.set(key, value.unwrap_or(0) + 1).await.expect("an answer");
    }
    let end = now();
    let outcome = match guard.unlock().await {
        Ok(()) => Outcome::Kept,
        Err(Error::Lost { .. }) => Outcome::Lost,
        Err(_) => Outcome::InDoubt,
    };
    Turn { start, end, outcome, counted: is_valid }
}
