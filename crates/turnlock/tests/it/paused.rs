//! A process that is stopped for longer than its lease, and goes on when another has the lock.

use std::process::Stdio;

use futures_util::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use turnlock::{Client, Error};
use turnlock_testkit::within;

use crate::held::Thing;
use crate::rig::{Kind, KindClient, NO_POLL, Rig, ms};
use crate::{Case, cases, child};

pub(crate) const CASES: &[Case] = cases![a_process_paused_past_its_lease_finds_its_lock_lost];

/// The lease of the process that is paused, in milliseconds.
const LEASE: u64 = 5_000;

/// What a guarded place does: keeps the highest token that it has seen, and refuses a write with a lower one.
const REGISTER: &str = "
if tonumber(ARGV[1]) < tonumber(redis.call('get', KEYS[1]) or 0) then return 'refused' end
redis.call('set', KEYS[1], ARGV[1])
return 'written'";

async fn write(url: &str, name: &str, token: Option<u64>) -> String {
    let client = redis::Client::open(url).expect("a good URL");
    let mut plain = client.get_multiplexed_async_connection().await.expect("a server");
    let script = redis::Script::new(REGISTER);
    let token = token.expect("a token");
    script.key(format!("register of {name}")).arg(token).invoke_async(&mut plain).await.expect("an answer")
}

/// What the child does: takes the lock, then answers one order a line.
pub(crate) fn obey(kind: &str, name: &str, url: &str) {
    let kinds = Kind::MUTEXES.into_iter().chain([Kind::Read]);
    let kind = kinds.into_iter().find(|known| known.name() == kind).expect("a kind");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client =
            Client::builder().watchdog(ms(LEASE)).poll(NO_POLL).connect(url).await.expect("a server");
        let client = KindClient::new(client, kind);
        let held = Thing::of(&client, name).take(0, ms(0)).await.expect("an answer").expect("free");
        println!("holds");
        // Blocks this thread alone, and is the first to run on it after a pause.
        for order in std::io::stdin().lines() {
            match &*order.expect("a line") {
                "look" => println!("{} {:?}", held.is_valid(), held.lost().now_or_never()),
                "write" => println!("{}", write(url, name, held.token()).await),
                "unlock" => break,
                other => panic!("unknown order {other}"),
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
struct Paused {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Paused {
    fn start(order: &str, url: &str) -> Self {
        let mut child = child::command(order, url).stdin(Stdio::piped()).spawn().expect("a child");
        let orders = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, orders, lines }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let status = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(status.is_ok_and(|status| status.success()), "`kill {signal}` did not reach the process");
    }

    async fn order(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.expect("a pipe");
    }

    async fn line(&mut self) -> String {
        let line = within(ms(20_000), "a line of the child", self.lines.next_line()).await;
        line.expect("a pipe").expect("it goes on")
    }
}

async fn a_process_paused_past_its_lease_finds_its_lock_lost(rig: Rig) {
    let (name, url) = (rig.name(), rig.server().url());
    let (next, third) = (rig.client().await.rival(), rig.client().await.rival());
    let thing = Thing::new(&next, &name).await;
    let mut paused = Paused::start(&format!("pausable,{},{name}", rig.kind.name()), &url);
    assert_eq!(paused.line().await, "holds");
    paused.signal("-STOP");
    assert!(thing.take(0, ms(0)).await.expect("an answer").is_none(), "held until the lease ends");
    // What it finds when it goes on, before anything else.
    paused.order("look").await;
    let held = within(ms(LEASE + 5_000), "the lease ends", thing.take(0, ms(60_000))).await;
    let held = held.expect("an answer").expect("a turn");
    if rig.kind == Kind::Fenced {
        assert_eq!(write(&url, &name, held.token()).await, "written");
    }
    paused.signal("-CONT");
    let found = paused.line().await;
    assert!(found.starts_with("false Some(NotRenewed"), "{found}");
    if rig.kind == Kind::Fenced {
        paused.order("write").await;
        assert_eq!(paused.line().await, "refused", "a write of the one whose turn is over");
    }
    paused.order("unlock").await;
    assert_eq!(paused.line().await, "lost");
    let status = within(ms(20_000), "the child ends", paused.child.wait()).await.expect("a status");
    assert!(status.success(), "{status}");
    // Its release, and all that it did on its way out, has left the next one's hold alone.
    assert!(Thing::of(&third, &name).take(0, ms(0)).await.expect("an answer").is_none());
    assert!(held.is_valid());
    held.release().await.expect("held");
    assert!(thing.is_free().await);
}
