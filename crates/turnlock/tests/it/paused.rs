//! A process that is stopped for longer than its lease, and resumes when another owner holds the lock.

use std::process::Stdio;

use futures_util::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use turnlock::{Client, Error};
use turnlock_testkit::within;

use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, ms};
use crate::resource::Resource;
use crate::{Case, cases, child};

pub(crate) const CASES: &[Case] = cases![a_process_paused_past_its_lease_finds_its_lock_lost];

/// The lease of the process that is paused, in milliseconds.
const LEASE: u64 = 5_000;

/// The fenced resource: stores the highest token that it has seen, and refuses a write with a lower one.
const FENCED_WRITE: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('get', KEYS[1]) or 0) then return 'refused' end
redis.call('set', KEYS[1], ARGV[1])
return 'written'";

async fn write(url: &str, name: &str, token: Option<u64>) -> String {
    let client = redis::Client::open(url).expect("a good URL");
    let mut plain = client.get_multiplexed_async_connection().await.expect("a server");
    let script = redis::Script::new(FENCED_WRITE);
    let token = token.expect("a token");
    script.key(format!("resource of {name}")).arg(token).invoke_async(&mut plain).await.expect("a reply")
}

/// The main function of the child: acquires the lock, then executes one command a line.
pub(crate) fn run_child(kind: &str, name: &str, url: &str) {
    let kinds = Kind::MUTEXES.into_iter().chain([Kind::Read]);
    let kind = kinds.into_iter().find(|known| known.name() == kind).expect("a kind");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::builder()
            .watchdog_timeout(ms(LEASE))
            .poll_interval(NO_POLL)
            .connect(url)
            .await
            .expect("a server");
        let client = KindClient::new(client, kind);
        let held = Resource::of(&client, name).acquire(0, ms(0)).await.expect("a reply").expect("free");
        println!("holds");
        // Blocks this thread only, and is the first to run on it after a pause.
        for command in std::io::stdin().lines() {
            match &*command.expect("a line") {
                "status" => println!("{} {:?}", held.is_valid(), held.lost().now_or_never()),
                "write" => println!("{}", write(url, name, held.token()).await),
                "unlock" => break,
                other => panic!("unknown command {other}"),
            }
        }
        match held.release().await {
            Err(Error::Lost { .. }) => println!("lost"),
            outcome => println!("{outcome:?}"),
        }
        assert!(client.shutdown(ms(5_000)).await.is_clean());
    });
}

/// The process that is paused.
struct PausedProcess {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl PausedProcess {
    fn start(way: &str, url: &str) -> Self {
        let mut child = child::command(way, url).stdin(Stdio::piped()).spawn().expect("a child");
        let input = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, input, lines }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let status = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(status.is_ok_and(|status| status.success()), "`kill {signal}` did not reach the process");
    }

    async fn send(&mut self, command: &str) {
        self.input.write_all(format!("{command}\n").as_bytes()).await.expect("a pipe");
    }

    async fn line(&mut self) -> String {
        let line = within(ms(20_000), "a line of the child", self.lines.next_line()).await;
        line.expect("a pipe").expect("it runs")
    }
}

async fn a_process_paused_past_its_lease_finds_its_lock_lost(fixture: Fixture) {
    let (name, url) = (fixture.name(), fixture.server().url());
    let (next, third) = (fixture.client().await.rival(), fixture.client().await.rival());
    let resource = Resource::new(&next, &name).await;
    let mut paused = PausedProcess::start(&format!("pausable,{},{name}", fixture.kind.name()), &url);
    assert_eq!(paused.line().await, "holds");
    paused.signal("-STOP");
    assert!(resource.acquire(0, ms(0)).await.expect("a reply").is_none(), "held until the lease ends");
    // Executed first when it resumes.
    paused.send("status").await;
    let held = within(ms(LEASE + 5_000), "the lease ends", resource.acquire(0, ms(60_000))).await;
    let held = held.expect("a reply").expect("a turn");
    if fixture.kind == Kind::Fenced {
        assert_eq!(write(&url, &name, held.token()).await, "written");
    }
    paused.signal("-CONT");
    let found = paused.line().await;
    assert!(found.starts_with("false Some(NotRenewed"), "{found}");
    if fixture.kind == Kind::Fenced {
        paused.send("write").await;
        assert_eq!(paused.line().await, "refused", "a write with an old token");
    }
    paused.send("unlock").await;
    assert_eq!(paused.line().await, "lost");
    let status = within(ms(20_000), "the child ends", paused.child.wait()).await.expect("a status");
    assert!(status.success(), "{status}");
    // Its release and its shutdown have not affected the next hold.
    assert!(Resource::of(&third, &name).acquire(0, ms(0)).await.expect("a reply").is_none());
    assert!(held.is_valid());
    held.release().await.expect("held");
    assert!(resource.is_free().await);
}
