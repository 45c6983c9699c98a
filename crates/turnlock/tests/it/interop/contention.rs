//! Java threads and turnlock tasks increment one counter without atomicity: two holders at once would lose an increment.

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{PeerThread, Redisson};

use super::any_mutex::AnyMutex;
use super::{Context, JavaCase};
use crate::fixture::Kind;
use crate::{cases, child};

const LOCK_CASES: &[JavaCase] = cases![ten_thousand_increments_of_java_and_us_are_all_counted];
const OTHER_CASES: &[JavaCase] = cases![a_thousand_increments_of_java_and_us_are_all_counted];

/// Threads or tasks of each process. There are two Java processes and two of ours.
pub(super) const TASKS: usize = 4;

pub(super) fn cases(kind: Kind) -> &'static [JavaCase] {
    match kind {
        Kind::Lock => LOCK_CASES,
        Kind::Fair | Kind::Write => OTHER_CASES,
        _ => &[],
    }
}

pub(super) const SEMAPHORE_CASES: &[JavaCase] =
    cases![a_thousand_increments_under_one_permit_are_all_counted];

async fn ten_thousand_increments_of_java_and_us_are_all_counted(context: Context) {
    let kind = context.kind.name();
    increment_together(&context, kind, 10_000).await;
}

async fn a_thousand_increments_of_java_and_us_are_all_counted(context: Context) {
    let kind = context.kind.name();
    increment_together(&context, kind, 1_000).await;
}

async fn a_thousand_increments_under_one_permit_are_all_counted(context: Context) {
    increment_together(&context, "semaphore", 1_000).await;
}

async fn increment_together(context: &Context, object: &str, turns: usize) {
    let (name, counter) = (context.name(), context.name());
    // Rounded up to a multiple of all tasks.
    let each = turns.div_ceil(4 * TASKS);
    let client = context.client().await;
    client.semaphore(&name).try_set_permits(1).await.expect("a reply");
    if object != "semaphore" {
        client.semaphore(&name).delete().await.expect("a reply");
    }
    let second = context.second_redisson().await;
    let java = |redisson: &Redisson| -> PeerThread { redisson.thread(&counter) };
    let request = format!("herd {object} {name} {counter} {TASKS} {each}");
    let javas = [java(context.redisson()).begin(&request), java(second).begin(&request)];
    let mut program = child::spawn(&format!("herd,{object},{name},{counter},{each}"), &context.url());
    take_turns(&client, &context.url(), [object, &name, &counter], each).await;
    for reply in javas {
        assert_eq!(reply.await.expect("no exception"), (TASKS * each).to_string());
    }
    assert!(program.wait().await.expect("a status").success());
    let count: usize = context.plain().await.get(&counter).await.expect("a counter");
    assert_eq!(count, 4 * TASKS * each);
}

/// Each task increments the counter on the server at `url`, `turns` times, under the lock: lock, read, write, unlock.
pub(crate) async fn take_turns(client: &Client, url: &str, [object, name, counter]: [&str; 3], turns: usize) {
    let redis = redis::Client::open(url).expect("an address");
    let kind = Kind::MUTEXES.into_iter().find(|kind| kind.name() == object).expect("a kind of lock");
    let mutex = AnyMutex::new(client, kind, name);
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let mut plain = redis.get_multiplexed_async_connection().await.expect("a connection");
        let (mutex, counter) = (mutex.clone(), counter.to_owned());
        tasks.push(tokio::spawn(async move {
            for _ in 0..turns {
                let guard = mutex.lock().await.expect("a turn");
                let before: Option<u64> = plain.get(&counter).await.expect("a number");
                let _: () = plain.set(&counter, before.unwrap_or_default() + 1).await.expect("written");
                guard.unlock().await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}
