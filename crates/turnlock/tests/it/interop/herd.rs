//! Many of Java's threads and of our tasks at one counter without protection of its own: two at once would lose a turn.

use redis::AsyncCommands;
use turnlock::Client;
use turnlock_testkit::{PeerThread, Redisson};

use super::gate::Gate;
use super::{JavaCase, Visit};
use crate::rig::Kind;
use crate::{cases, child};

const LONG: &[JavaCase] = cases![ten_thousand_turns_of_java_and_us_lose_none];
const SHORT: &[JavaCase] = cases![a_thousand_turns_of_java_and_us_lose_none];

/// Of each process; there are two of Java's and two of ours.
pub(super) const MEMBERS: usize = 4;

pub(super) fn cases(kind: Kind) -> &'static [JavaCase] {
    match kind {
        Kind::Lock => LONG,
        Kind::Fair | Kind::Write => SHORT,
        _ => &[],
    }
}

pub(super) const SEMAPHORE: &[JavaCase] = cases![a_thousand_turns_at_one_permit_lose_none];

async fn ten_thousand_turns_of_java_and_us_lose_none(visit: Visit) {
    let kind = visit.kind.name();
    stampede(&visit, kind, 10_000).await;
}

async fn a_thousand_turns_of_java_and_us_lose_none(visit: Visit) {
    let kind = visit.kind.name();
    stampede(&visit, kind, 1_000).await;
}

async fn a_thousand_turns_at_one_permit_lose_none(visit: Visit) {
    stampede(&visit, "semaphore", 1_000).await;
}

async fn stampede(visit: &Visit, gate: &str, turns: usize) {
    let (name, counter) = (visit.name(), visit.name());
    // A little more than asked for, where that is not a multiple.
    let each = turns.div_ceil(4 * MEMBERS);
    let client = visit.client().await;
    client.semaphore(&name).try_set_permits(1).await.expect("an answer");
    if gate != "semaphore" {
        client.semaphore(&name).delete().await.expect("an answer");
    }
    let second = visit.second_redisson().await;
    let java = |redisson: &Redisson| -> PeerThread { redisson.thread(&counter) };
    let request = format!("herd {gate} {name} {counter} {MEMBERS} {each}");
    let javas = [java(visit.redisson()).begin(&request), java(second).begin(&request)];
    let mut program = child::spawn(&format!("herd,{gate},{name},{counter},{each}"), &visit.url());
    take_turns(&client, &visit.url(), [gate, &name, &counter], each).await;
    for answer in javas {
        assert_eq!(answer.await.expect("no exception"), (MEMBERS * each).to_string());
    }
    assert!(program.wait().await.expect("a status").success());
    let count: usize = visit.plain().await.get(&counter).await.expect("a counter");
    assert_eq!(count, 4 * MEMBERS * each);
}

/// So many turns of each of our tasks: enter, read the counter at the server of this address, write it, leave.
pub(crate) async fn take_turns(client: &Client, url: &str, [gate, name, counter]: [&str; 3], turns: usize) {
    let redis = redis::Client::open(url).expect("an address");
    let kind = Kind::MUTEXES.into_iter().find(|kind| kind.name() == gate).expect("a kind of lock");
    let gate = Gate::new(client, kind, name);
    let mut tasks = Vec::new();
    for _ in 0..MEMBERS {
        let mut plain = redis.get_multiplexed_async_connection().await.expect("a connection");
        let (gate, counter) = (gate.clone(), counter.to_owned());
        tasks.push(tokio::spawn(async move {
            for _ in 0..turns {
                let turn = gate.enter().await.expect("a turn");
                let before: Option<u64> = plain.get(&counter).await.expect("a number");
                let _: () = plain.set(&counter, before.unwrap_or_default() + 1).await.expect("written");
                turn.leave().await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}
