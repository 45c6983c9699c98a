//! Programs that end: this test program, run again as a child, takes a lock and leaves in one of several ways.

use std::process::Stdio;
use std::time::{Duration, Instant};

use turnlock::{Client, blocking};
use turnlock_testkit::{eventually, in_time, within};

use crate::fail_over;
use crate::interop::take_turns;
use crate::rig::{Kind, KindClient, NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases, paused, secrets};

pub(crate) const CASES: &[Case] = cases![
    a_program_that_unlocks_or_shuts_down_leaves_nothing,
    a_program_that_just_drops_its_guard_ends_cleanly,
    a_program_that_is_killed_frees_its_lock_with_the_lease,
];

/// The lease of a child that ends without giving back.
const LEASE: Duration = ms(3_000);

pub(crate) const VARIABLE: &str = "TURNLOCK_TEST_CHILD";

pub(crate) fn is_child() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// What a child does: `<way> <url>`. A way may have details, after commas.
pub(crate) fn main() {
    let order = std::env::var(VARIABLE).expect("an order");
    let (way, url) = order.split_once(' ').expect("a way and a URL");
    match way.split(',').collect::<Vec<_>>()[..] {
        ["secrets"] => return secrets::tell_everything(),
        ["queue", name] => return wait_in_queue(name, url),
        ["count", name, counter, turns] => {
            return count(name, counter, turns.parse().expect("a number"), url);
        }
        ["obey", kind, name] => return obey(kind, name, url),
        ["pausable", kind, name] => return paused::obey(kind, name, url),
        ["turns", name, counter, replicas] => {
            return fail_over::work(name, counter, replicas.parse().expect("a number"), url);
        }
        ["herd", gate, name, counter, turns] => {
            return herd([gate, name, counter], turns.parse().expect("a number"), url);
        }
        _ => {}
    }
    if way == "blocking" {
        let client = blocking::Client::connect(url).expect("a server");
        let _guard = client.lock("child").lock().expect("free");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if way == "queue" || way == "permits" {
        return runtime.block_on(hold_on(way, url));
    }
    let guard = runtime.block_on(async {
        let client = Client::builder().watchdog(LEASE).connect(url).await.expect("a server");
        let guard = client.lock("child").lock().await.expect("free");
        match way {
            "unlock" => {
                guard.unlock().await.expect("held");
                None
            }
            "shutdown" => {
                drop(guard);
                assert!(client.shutdown(ms(5_000)).await.is_clean());
                None
            }
            "hang" => {
                println!("holding");
                std::future::pending().await
            }
            "drop" => None,
            "outlive" => Some(guard),
            other => panic!("unknown way {other}"),
        }
    });
    drop(runtime);
    // The runtime is gone, and with it everybody who could release.
    drop(guard);
}

/// Waits for a fair lock, or has permits, until it is killed.
async fn hold_on(way: &str, url: &str) {
    let client = Client::builder().watchdog(LEASE).connect(url).await.expect("a server");
    if way == "queue" {
        drop(client.fair_lock("child").lock().await);
        panic!("nobody was to let it in");
    }
    let _permits = client.permit_semaphore("child").acquire(2).await.expect("free");
    std::future::pending::<()>().await;
}

/// Adds one to the number in a file, under a lock, so many times.
fn count(name: &str, counter: &str, turns: usize, url: &str) {
    let client = blocking::Client::connect(url).expect("a store");
    let lock = client.lock(name);
    for _ in 0..turns {
        let guard = lock.lock().expect("a turn");
        let number: usize = std::fs::read_to_string(counter).expect("a file").parse().expect("a number");
        std::thread::yield_now();
        std::fs::write(counter, (number + 1).to_string()).expect("written");
        guard.unlock().expect("held");
    }
}

/// Has a lock, or waits for it, and obeys: says `waits`, then `holds`, and gives the lock back when a line comes.
fn obey(kind: &str, name: &str, url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::builder().poll(NO_POLL).connect(url).await.expect("a store");
        println!("waits");
        if let Some(permits) = kind.strip_prefix("permits") {
            let semaphore = client.permit_semaphore(name);
            let permits = semaphore.acquire(permits.parse().expect("a number")).await.expect("a turn");
            println!("holds");
            until_a_line().await;
            return permits.release().await.expect("held");
        }
        if let Some(permits) = kind.strip_prefix("semaphore") {
            let semaphore = client.semaphore(name);
            let permits = semaphore.acquire(permits.parse().expect("a number")).await.expect("a turn");
            println!("holds");
            until_a_line().await;
            return permits.release().await.expect("held");
        }
        let kind =
            Kind::ALL.into_iter().chain([Kind::Read]).find(|known| known.name() == kind).expect("a kind");
        let guard = KindClient::new(client, kind).lock(name).lock().await.expect("a turn");
        println!("holds");
        until_a_line().await;
        guard.unlock().await.expect("held");
    });
}

async fn until_a_line() {
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut tokio::io::BufReader::new(tokio::io::stdin()), &mut line)
        .await
        .expect("a line, or the end");
}

/// Stands in the queue of a fair lock, until somebody ends this program.
fn wait_in_queue(name: &str, url: &str) {
    let client = blocking::Client::connect(url).expect("a server");
    drop(client.fair_lock(name).lock());
}

/// Takes turns with others, as [`take_turns`] does it.
fn herd(what: [&str; 3], turns: usize, url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(url).await.expect("a server");
        take_turns(&client, url, what, turns).await;
    });
}

/// This program as a child that leaves in this way.
pub(crate) fn child(rig: &Rig, way: &str) -> tokio::process::Child {
    spawn(way, &rig.server().url())
}

/// Starts a program that uses the server at `url` in the given way.
pub(crate) fn spawn(way: &str, url: &str) -> tokio::process::Child {
    command(way, url).spawn().expect("a child")
}

pub(crate) fn command(way: &str, url: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(std::env::current_exe().expect("this program"));
    command.env(VARIABLE, format!("{way} {url}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(rig: &Rig, way: &str) {
    let mut child = child(rig, way);
    let status = within(ms(20_000), "the child ends", child.wait()).await.expect("a status");
    assert!(status.success(), "{way}: {status}");
}

async fn a_program_that_unlocks_or_shuts_down_leaves_nothing(rig: Rig) {
    let lock = rig.client().await.lock("child");
    for way in ["unlock", "shutdown"] {
        run(&rig, way).await;
        assert!(!lock.is_locked().await.expect("an answer"), "{way}");
    }
}

async fn a_program_that_just_drops_its_guard_ends_cleanly(rig: Rig) {
    let lock = rig.client().await.lock("child");
    for way in ["drop", "outlive", "blocking"] {
        let start = Instant::now();
        run(&rig, way).await;
        in_time(way, start, ms(15_000));
        // Perhaps it was released on the way out; with the lease it is free in any case.
        if way == "blocking" {
            lock.force_unlock().await.expect("an answer");
        }
        let is_free = async || matches!(lock.is_locked().await, Ok(false));
        eventually("the lease ends", LEASE + PROMPT, is_free).await;
    }
}

async fn a_program_that_is_killed_frees_its_lock_with_the_lease(rig: Rig) {
    let lock = rig.client().await.lock("child");
    let mut child = child(&rig, "hang");
    let mut line = [0; 7];
    let mut out = child.stdout.take().expect("piped");
    within(ms(20_000), "it holds", tokio::io::AsyncReadExt::read_exact(&mut out, &mut line))
        .await
        .expect("a line");
    assert_eq!(&line, b"holding");
    assert!(lock.try_lock().await.expect("an answer").is_none());
    child.kill().await.expect("killed");
    let guard = within(LEASE + PROMPT, "the lease ends", lock.lock()).await.expect("a turn");
    guard.unlock().await.expect("held");
}
