//! Processes that end while they hold a lock. The child process is this test program, started again.

use std::process::Stdio;
use std::time::{Duration, Instant};

use turnlock::{Client, blocking};
use turnlock_testkit::{eventually, in_time, within};

use crate::deadlock;
use crate::fail_over;
use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, PROMPT, ms};
use crate::interop::take_turns;
use crate::{Case, cases, paused, secrets};

pub(crate) const CASES: &[Case] = cases![
    a_program_that_unlocks_or_shuts_down_leaves_nothing,
    a_program_that_just_drops_its_guard_ends_cleanly,
    the_lock_of_a_killed_program_expires_with_its_lease,
];

/// The lease of a child that ends without a release.
const LEASE: Duration = ms(3_000);

/// The environment variable that makes this program a child: `<mode> <url>`.
pub(crate) const ENV_VAR: &str = "TURNLOCK_TEST_CHILD";

pub(crate) fn is_child() -> bool {
    std::env::var_os(ENV_VAR).is_some()
}

/// Runs the child's mode from [`ENV_VAR`]. A mode may have arguments, separated by commas.
pub(crate) fn main() {
    let setting = std::env::var(ENV_VAR).expect("a mode");
    let (mode, url) = setting.split_once(' ').expect("a mode and a URL");
    match mode.split(',').collect::<Vec<_>>()[..] {
        ["secrets"] => return secrets::run_child(),
        ["queue", name] => return wait_in_queue(name, url),
        ["count", name, counter, turns] => {
            return count(name, counter, turns.parse().expect("a number"), url);
        }
        ["deadlock", label, held, wanted] => return deadlock::run_child(label, held, wanted, url),
        ["hold", kind, name] => return hold_until_line(kind, name, url),
        ["pausable", kind, name] => return paused::run_child(kind, name, url),
        ["turns", name, counter, replicas] => {
            return fail_over::run_worker(name, counter, replicas.parse().expect("a number"), url);
        }
        ["herd", gate, name, counter, turns] => {
            return herd([gate, name, counter], turns.parse().expect("a number"), url);
        }
        _ => {}
    }
    if mode == "blocking" {
        let client = blocking::Client::connect(url).expect("a server");
        let _guard = client.lock("child").lock().expect("free");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if mode == "queue" || mode == "permits" {
        return runtime.block_on(hold_until_killed(mode, url));
    }
    let guard = runtime.block_on(async {
        let client = Client::builder().watchdog_timeout(LEASE).connect(url).await.expect("a server");
        let guard = client.lock("child").lock().await.expect("free");
        match mode {
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
            other => panic!("unknown mode {other}"),
        }
    });
    drop(runtime);
    // The runtime is gone: nothing can release the lock any more.
    drop(guard);
}

/// Waits for a fair lock, or holds permits, until the process is killed.
async fn hold_until_killed(mode: &str, url: &str) {
    let client = Client::builder().watchdog_timeout(LEASE).connect(url).await.expect("a server");
    if mode == "queue" {
        drop(client.fair_lock("child").lock().await);
        panic!("the lock was granted");
    }
    let _permits = client.permit_semaphore("child").acquire(2).await.expect("free");
    std::future::pending::<()>().await;
}

/// Increments the number in a file under a lock, `turns` times.
fn count(name: &str, counter: &str, turns: usize, url: &str) {
    let client = blocking::Client::connect(url).expect("a store");
    let lock = client.lock(name);
    for _ in 0..turns {
        let guard = lock.lock().expect("acquired");
        let number: usize = std::fs::read_to_string(counter).expect("a file").parse().expect("a number");
        std::thread::yield_now();
        std::fs::write(counter, (number + 1).to_string()).expect("written");
        guard.unlock().expect("held");
    }
}

/// Prints `waits`, acquires, prints `holds`, and releases when a line is read from standard input.
fn hold_until_line(kind: &str, name: &str, url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::builder().poll_interval(NO_POLL).connect(url).await.expect("a store");
        println!("waits");
        if let Some(permits) = kind.strip_prefix("permits") {
            let semaphore = client.permit_semaphore(name);
            let permits = semaphore.acquire(permits.parse().expect("a number")).await.expect("acquired");
            println!("holds");
            read_line().await;
            return permits.release().await.expect("held");
        }
        if let Some(permits) = kind.strip_prefix("semaphore") {
            let semaphore = client.semaphore(name);
            let permits = semaphore.acquire(permits.parse().expect("a number")).await.expect("acquired");
            println!("holds");
            read_line().await;
            return permits.release().await.expect("held");
        }
        let kind =
            Kind::ALL.into_iter().chain([Kind::Read]).find(|known| known.name() == kind).expect("a kind");
        let guard = KindClient::new(client, kind).lock(name).lock().await.expect("acquired");
        println!("holds");
        read_line().await;
        guard.unlock().await.expect("held");
    });
}

pub(crate) async fn read_line() {
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut tokio::io::BufReader::new(tokio::io::stdin()), &mut line)
        .await
        .expect("a line or the end of input");
}

/// Waits in the queue of a fair lock until the process is killed.
fn wait_in_queue(name: &str, url: &str) {
    let client = blocking::Client::connect(url).expect("a server");
    drop(client.fair_lock(name).lock());
}

/// Runs [`take_turns`] in this process.
fn herd(names: [&str; 3], turns: usize, url: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(url).await.expect("a server");
        take_turns(&client, url, names, turns).await;
    });
}

/// Starts a child in this mode, on the server of the fixture.
pub(crate) fn child(fixture: &Fixture, mode: &str) -> tokio::process::Child {
    spawn(mode, &fixture.server().url())
}

/// Starts a child in this mode, on the server at `url`.
pub(crate) fn spawn(mode: &str, url: &str) -> tokio::process::Child {
    command(mode, url).spawn().expect("a child")
}

/// Returns the command of a child, to start it with other settings.
pub(crate) fn command(mode: &str, url: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(std::env::current_exe().expect("this program"));
    command.env(ENV_VAR, format!("{mode} {url}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(fixture: &Fixture, mode: &str) {
    let mut child = child(fixture, mode);
    let status = within(ms(20_000), "the child exits", child.wait()).await.expect("a status");
    assert!(status.success(), "{mode}: {status}");
}

async fn a_program_that_unlocks_or_shuts_down_leaves_nothing(fixture: Fixture) {
    let lock = fixture.client().await.lock("child");
    for mode in ["unlock", "shutdown"] {
        run(&fixture, mode).await;
        assert!(!lock.is_locked().await.expect("a reply"), "{mode}");
    }
}

async fn a_program_that_just_drops_its_guard_ends_cleanly(fixture: Fixture) {
    let lock = fixture.client().await.lock("child");
    for mode in ["drop", "outlive", "blocking"] {
        let start = Instant::now();
        run(&fixture, mode).await;
        in_time(mode, start, ms(15_000));
        // It may have been released at the exit. If not, the lease ends.
        if mode == "blocking" {
            lock.force_unlock().await.expect("a reply");
        }
        let is_free = async || matches!(lock.is_locked().await, Ok(false));
        eventually("the lease ends", LEASE + PROMPT, is_free).await;
    }
}

async fn the_lock_of_a_killed_program_expires_with_its_lease(fixture: Fixture) {
    let lock = fixture.client().await.lock("child");
    let mut child = child(&fixture, "hang");
    let mut line = [0; 7];
    let mut out = child.stdout.take().expect("piped");
    within(ms(20_000), "the child holds the lock", tokio::io::AsyncReadExt::read_exact(&mut out, &mut line))
        .await
        .expect("a line");
    assert_eq!(&line, b"holding");
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    child.kill().await.expect("killed");
    let guard = within(LEASE + PROMPT, "the lease ends", lock.lock()).await.expect("acquired");
    guard.unlock().await.expect("held");
}
