use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Mutex;
use turnlock_testkit::{Answer, RedisServer, Redisson, Shared, eventually, within};

use super::java::Java;
use super::rivals::Rivals;
use crate::program::Program;
use crate::rig::{Rig, ms};
use crate::store::Store;

/// What a waiting program may take from Java's release until it has the lock. It would look by itself a second after its last
/// look, so who is in time was told.
const PROMPT: Duration = ms(700);
/// The same for Java, from the end of the command: the program has to notice that, and Java to wake. It would look by itself when
/// the lease ends that it has read, and of that twenty seconds are left at the least.
const PROMPT_FOR_JAVA: Duration = ms(5_000);
/// How often something is tried that has to be prompt, most of the time: the machine may be busy.
const ROUNDS: usize = 5;
/// Held by who has to be prompt: with several of them at a time, each would be late for want of a processor.
static ALONE: Mutex<()> = Mutex::const_new(());
/// What getting ready for something may take.
const LIMIT: Duration = Duration::from_secs(20);
/// What the look takes by which a waiter makes sure that it missed nothing before it listened.
const LAST_LOOK: Duration = ms(50);

/// What one case has: the program and Java on one server, and a name of its own.
pub(crate) struct Scene {
    pub(super) rig: Rig,
    pub(super) rivals: Rivals,
    redisson: Arc<Redisson>,
    server: Arc<RedisServer>,
}

impl Scene {
    pub(super) async fn new(version: &str, java: &Shared<Redisson>, rivals: Rivals) -> Self {
        let rig = Rig::new(Store::Redis).await;
        let server = Store::Redis.server().await.expect("a store with a server");
        let redisson = java.get(|| Redisson::start(version, &rig.url)).await;
        Self { rig, rivals, redisson, server }
    }

    /// A Java thread by name, at the object that the case is run for.
    pub(super) fn java(&self, thread: &str) -> Java {
        self.java_at(self.rivals.java, thread)
    }

    /// A Java thread by name, at an object of this kind.
    pub(super) fn java_at(&self, kind: &str, thread: &str) -> Java {
        Java::new(self.redisson.thread(&self.thread(thread)), kind, &self.rig.name)
    }

    /// The owner on the wire that a Java thread is.
    pub(super) async fn owner(&self, thread: &str) -> String {
        self.redisson.owner(&self.thread(thread)).await
    }

    /// All cases have the same process, and threads of their own.
    fn thread(&self, name: &str) -> String {
        format!("{}-{name}", self.rig.name)
    }

    /// The exit code of a run that does not wait: 0 or 1.
    pub(super) async fn code_of(&self, flags: &[&str]) -> i32 {
        let (code, words) = self.rig.run(&[&["-n"], flags].concat(), &["true"]).finish().await;
        assert!(code == 0 || code == 1, "a run ended with {code}: {words}");
        code
    }

    /// A run whose command will say `mine`, and which now has to wait.
    pub(super) async fn waiting_run(&self, flags: &[&str]) -> Program {
        let mut waiter = self.rig.script(&[&["--json"], flags].concat(), "echo mine; exec cat");
        waiter.event_named("waiting").await;
        self.until_listening().await;
        waiter
    }

    /// Waits until somebody listens to what is told of the name.
    pub(super) async fn until_listening(&self) {
        // The braces are in the names of all channels, and make it that no longer name is meant.
        let pattern = format!("*{{{}}}*", self.rig.name);
        let listens = async || {
            let found: Vec<String> =
                self.server.ask(&["PUBSUB", "CHANNELS", &pattern]).await.expect("channels");
            !found.is_empty()
        };
        eventually("somebody listens", LIMIT, listens).await;
        // Nothing tells when that last look is over. If this is too short, less is shown, and nothing fails.
        tokio::time::sleep(LAST_LOOK).await;
    }
}

/// How long a waiting run takes to get the lock after Java has let it in. Then it starts its command.
pub(super) async fn start_of(waiter: &mut Program, release: Answer) -> Duration {
    within(LIMIT, "Java releases", release).await.expect("it was held");
    let start = SystemTime::now();
    let acquired = waiter.event_named("acquired").await["time"].as_u64().expect("a time");
    waiter.expect("mine").await;
    // It may have it before we know of the release.
    (SystemTime::UNIX_EPOCH + ms(acquired)).duration_since(start).unwrap_or_default()
}

/// How long Java takes to get what it waits for, now that the command of the one who has it ends; and what it gets.
pub(super) async fn turn_of_java(mut holder: Program, turn: Answer) -> (Duration, String) {
    let start = Instant::now();
    holder.close();
    let answer = within(LIMIT, "Java is told", turn).await.expect("no exception");
    let took = start.elapsed();
    assert_eq!(holder.code().await, 0);
    (took, answer)
}

/// Tries something until a run was prompt in most of the tries, and fails if it was not.
pub(super) async fn run_is_prompt<Fut: Future<Output = Duration>>(round: impl FnMut() -> Fut) {
    mostly_within(PROMPT, round).await;
}

/// Tries something until Java was prompt in most of the tries, and fails if it was not.
pub(super) async fn java_is_prompt<Fut: Future<Output = Duration>>(round: impl FnMut() -> Fut) {
    mostly_within(PROMPT_FOR_JAVA, round).await;
}

async fn mostly_within<Fut: Future<Output = Duration>>(limit: Duration, mut round: impl FnMut() -> Fut) {
    let _turn = ALONE.lock().await;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(round().await);
        let prompt = times.iter().filter(|took| **took < limit).count();
        if 2 * prompt > ROUNDS {
            return;
        }
    }
    panic!("after {times:?}, and not most of the time within {limit:?}");
}
