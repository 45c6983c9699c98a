//! Worker processes that increment an unprotected counter under a lock, while servers fail.

use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::AsyncCommands;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;
use turnlock::{Client, Error, TryAcquire};
use turnlock_testkit::{RedisServer, eventually, within};

use super::history::{HoldRecord, Outcome, now};
use crate::child;
use crate::fixture::ms;

const PROCESSES: usize = 2;
const TASKS: usize = 4;

/// Eight tasks in two processes that contend for one lock.
pub(super) struct WorkerProcesses {
    name: String,
    children: Vec<(Child, JoinHandle<()>)>,
    records: Arc<Mutex<Vec<HoldRecord>>>,
}

impl WorkerProcesses {
    /// Starts the processes on the lock `name` of the store at `url`, with grants that `replicas` replicas acknowledge. The
    /// counter is on a server that is never killed.
    pub(super) fn start(url: &str, counter: &RedisServer, name: &str, replicas: u32) -> Self {
        let records = Arc::new(Mutex::new(Vec::new()));
        let command = format!("turns,{name},{},{replicas}", counter.port());
        let start = |_| {
            let mut child = child::command(&command, url).stdin(Stdio::piped()).spawn().expect("a child");
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            (child, tokio::spawn(collect(lines, Arc::clone(&records))))
        };
        Self { name: name.to_owned(), children: (0..PROCESSES).map(start).collect(), records }
    }

    /// Waits for a finished hold that began after `moment`.
    pub(super) async fn until_held_after(&self, moment: u64, limit: Duration) {
        let is_held = |records: &[HoldRecord]| records.iter().any(|record| record.start > moment);
        let what = format!("a hold of {:?}", self.name);
        eventually(&what, limit, async || is_held(&self.records.lock().unwrap())).await;
    }

    /// Stops the processes. Returns all holds.
    pub(super) async fn stop(self) -> Vec<HoldRecord> {
        for (mut child, reader) in self.children {
            // The end of its input stops the child.
            drop(child.stdin.take());
            let status = within(ms(20_000), "the child ends", child.wait()).await.expect("a status");
            assert!(status.success(), "{status}");
            reader.await.expect("no panic");
        }
        std::mem::take(&mut *self.records.lock().unwrap())
    }
}

/// Collects the records that a child prints.
async fn collect(
    mut lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    records: Arc<Mutex<Vec<HoldRecord>>>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        records.lock().unwrap().push(HoldRecord::parse(&line));
    }
}

/// Connects, with retries: a child that starts slowly may connect just after the first server was killed.
async fn connect(url: &str, replicas: u32) -> Client {
    let mut attempts = 0;
    loop {
        match Client::builder().replicas(replicas).connect(url).await {
            Ok(client) => return client,
            Err(_) if attempts < 100 => tokio::time::sleep(ms(100)).await,
            Err(error) => panic!("no store: {error}"),
        }
        attempts += 1;
    }
}

/// The main function of a worker process. Runs until its input ends.
pub(crate) fn run_worker(name: &str, counter: &str, replicas: u32, url: &str) {
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
                        Ok(TryAcquire::Acquired(guard)) => {
                            println!("{}", hold_once(guard, &mut counter, &key).await);
                        }
                        Ok(TryAcquire::Busy) => {}
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

async fn hold_once(
    guard: turnlock::Guard,
    counter: &mut redis::aio::MultiplexedConnection,
    key: &str,
) -> HoldRecord {
    let start = now();
    let value: Option<u64> = counter.get(key).await.expect("a reply");
    tokio::time::sleep(ms(1)).await;
    let is_valid = guard.is_valid();
    if is_valid {
        let _: () = counter.set(key, value.unwrap_or(0) + 1).await.expect("a reply");
    }
    let end = now();
    let outcome = match guard.unlock().await {
        Ok(()) => Outcome::Released,
        Err(Error::Lost { .. }) => Outcome::Lost,
        Err(_) => Outcome::InDoubt,
    };
    HoldRecord { start, end, outcome, counted: is_valid }
}
