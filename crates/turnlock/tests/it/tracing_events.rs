//! The `tracing` events of this crate.

use std::sync::{Arc, Mutex};

use tracing::Level;
use turnlock::Client;
use turnlock_testkit::{ClusterSet, FaultProxy, LogLine, LogSubscriber, eventually};

use crate::fixture::{Fixture, PROMPT, ms};
use crate::{Case, cases, trial_of};

pub(crate) const CASES: &[Case] = cases![
    every_state_change_is_logged_and_no_password_is,
    an_outage_is_logged_when_it_begins_and_when_it_ends,
    an_outage_is_logged_for_callers_that_give_up_early,
    guards_dropped_during_an_outage_add_no_lines,
    a_loss_is_logged_once,
];

/// The lines of an outage.
const BEGIN: &str = "store not available";
const END: &str = "store available again";

/// Collects the events of this crate.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<LogLine>>>);

impl EventLog {
    /// The level and the fields of the first event whose message begins with `message`, and whose fields contain `field`.
    fn find(&self, message: &str, field: &str) -> Option<(Level, String)> {
        let lines = self.0.lock().unwrap();
        let line = lines.iter().find(|line| line.message.starts_with(message) && line.fields.contains(field));
        line.map(|line| (line.level, line.fields.clone()))
    }

    fn has(&self, message: &str) -> bool {
        self.count(message) > 0
    }

    fn count(&self, message: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.message.starts_with(message)).count()
    }

    /// The messages of all events with the level `WARN`, in their order.
    fn warnings(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.level == Level::WARN).map(|line| line.message.clone()).collect()
    }

    /// Runs `case` on one thread, so that a subscriber of the thread receives all events.
    async fn during(&self, case: impl AsyncFnOnce() + Send + 'static) {
        let log = self.clone();
        let subscriber = LogSubscriber::new(Level::TRACE, move |line| log.0.lock().unwrap().push(line));
        // With a single subscriber, `tracing` caches the interest of the thread that first reaches an event, which may belong
        // to another case.
        let _second = tracing::Dispatch::new(LogSubscriber::new(Level::TRACE, drop));
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tracing::subscriber::with_default(subscriber, || runtime.block_on(case()));
        };
        tokio::task::spawn_blocking(body).await.unwrap();
    }
}

async fn every_state_change_is_logged_and_no_password_is(fixture: Fixture) {
    let log = EventLog::default();
    let inside = log.clone();
    log.during(async move || cause_events(&fixture, &inside).await).await;
    for (message, level) in [
        ("acquired", Level::DEBUG),
        ("waiting for the lock", Level::DEBUG),
        ("renewed", Level::TRACE),
        ("released", Level::DEBUG),
        ("lost", Level::WARN),
        ("request in doubt", Level::DEBUG),
    ] {
        let Some((logged_level, fields)) = log.find(message, "") else {
            panic!("{message:?} was not logged: {:?}", log.0.lock().unwrap());
        };
        assert_eq!(logged_level, level, "{message}");
        assert!(fields.contains("name="), "{message}: {fields}");
    }
    let everything = format!("{:?}", log.0.lock().unwrap());
    assert!(!everything.contains("c4n4ry"), "{everything}");
}

async fn cause_events(fixture: &Fixture, log: &EventLog) {
    let mut plain = fixture.raw_connection().await;
    let set = ["SETUSER", "worker", "on", ">c4n4ry", "~*", "&*", "+@all"];
    let _: () = redis::cmd("ACL").arg(&set).query_async(&mut plain).await.unwrap();
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let url = format!("redis://worker:c4n4ry@127.0.0.1:{}", proxy.port());
    let client =
        Client::builder().watchdog_timeout(ms(3_000)).retry_for(ms(100)).connect(&url).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    let other = Client::connect(&fixture.server().url()).await.unwrap();
    assert!(other.lock("a").try_lock_for(ms(20)).await.unwrap().is_busy());
    eventually("it is renewed", PROMPT, async || log.has("renewed")).await;
    guard.unlock().await.unwrap();
    let guard = client.lock("a").with_lease(ms(300)).lock().await.unwrap();
    guard.lost().await;
    proxy.hold_request(b"held-back");
    assert!(tokio::time::timeout(ms(30), client.lock("held-back").lock()).await.is_err());
    eventually("it is in doubt", PROMPT, async || log.has("request in doubt")).await;
}

async fn an_outage_is_logged_when_it_begins_and_when_it_ends(fixture: Fixture) {
    let log = EventLog::default();
    let inside = log.clone();
    log.during(async move || {
        let proxy = FaultProxy::start(fixture.server().port()).await;
        let client = Client::builder().watchdog_timeout(ms(18_000)).connect(&proxy.url()).await.unwrap();
        let mut guards = Vec::new();
        for name in ["a", "b", "c"] {
            guards.push(client.lock(&format!("outage:{name}")).lock().await.unwrap());
        }
        proxy.refuse(true);
        proxy.reset_all();
        let busy = client.lock("outage:d");
        let waiting = tokio::time::timeout(ms(200), busy.lock()).await;
        assert!(waiting.is_err(), "the store is away");
        eventually("renewals fail during the outage", ms(60_000), async || {
            inside.find("request failed during an outage", "request=\"renewal\"").is_some()
        })
        .await;
        assert!(inside.has(BEGIN) && !inside.has(END));
        proxy.refuse(false);
        eventually("the end is logged", ms(60_000), async || inside.has(END)).await;
        for guard in guards {
            guard.unlock().await.unwrap();
        }
    })
    .await;
    assert_eq!(log.warnings(), [BEGIN, END]);
    let (_, fields) = log.find(END, "").unwrap();
    assert!(fields.contains("failures=") && fields.contains("lasted="), "{fields}");
}

/// Their requests are in doubt. Nothing is renewed meanwhile.
async fn an_outage_is_logged_for_callers_that_give_up_early(fixture: Fixture) {
    let log = EventLog::default();
    let inside = log.clone();
    log.during(async move || {
        let proxy = FaultProxy::start(fixture.server().port()).await;
        let builder = Client::builder().response_timeout(ms(500)).retry_for(ms(1_500));
        let client = builder.connect(&proxy.url()).await.unwrap();
        let guard = client.lock("outage:kept").lock().await.unwrap();
        proxy.black_hole();
        for number in 0..5 {
            let lock = client.lock(&format!("outage:{number}"));
            assert!(tokio::time::timeout(ms(20), lock.lock()).await.is_err(), "the store is away");
        }
        // A step that still waits behind others is not sent once its caller is gone.
        eventually("requests are in doubt", PROMPT, async || inside.count("request in doubt") >= 2).await;
        assert!(inside.find(BEGIN, "request=\"acquire\"").is_some());
        guard.unlock_after(ms(60_000)).await.unwrap_err();
        assert!(inside.find("request failed during an outage", "request=\"delayed unlock\"").is_some());
        proxy.pass();
        proxy.reset_all();
        eventually("the end is logged", ms(60_000), async || inside.has(END)).await;
    })
    .await;
    assert_eq!(log.warnings(), [BEGIN, END]);
}

/// Their releases fail until the leases have ended. A query logs the outage too.
async fn guards_dropped_during_an_outage_add_no_lines(fixture: Fixture) {
    const FAILED: &str = "release in the background failed";
    let log = EventLog::default();
    let inside = log.clone();
    log.during(async move || {
        let proxy = FaultProxy::start(fixture.server().port()).await;
        let builder = Client::builder().response_timeout(ms(1_000)).retry_for(ms(1_000));
        let client = builder.connect(&proxy.url()).await.unwrap();
        let lock = |number| client.lock(&format!("outage:dropped:{number}")).with_lease(ms(6_000));
        let guards = [0, 1, 2, 3, 4].map(|number| lock(number).into_future());
        let guards = futures_util::future::try_join_all(guards).await.unwrap();
        proxy.refuse(true);
        proxy.reset_all();
        client.semaphore("outage:permits").available().await.unwrap_err();
        // The checks of the holds, after the broken connection, may be the first to fail.
        let is_logged = |line| inside.find(line, "request=\"query\"").is_some();
        assert!(is_logged(BEGIN) || is_logged("request failed during an outage"));
        drop(guards);
        eventually("the releases have failed", ms(60_000), async || inside.count(FAILED) == 5).await;
        proxy.refuse(false);
        eventually("the end is logged", ms(60_000), async || {
            drop(client.semaphore("outage:permits").available().await);
            inside.has(END)
        })
        .await;
    })
    .await;
    assert_eq!(log.warnings(), [BEGIN, END]);
}

pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    let title = "tracing_events::cluster::a_hung_master_is_an_outage_while_others_reply";
    vec![trial_of(title, ClusterSet::missing(), a_hung_master_is_an_outage_while_others_reply)]
}

async fn a_hung_master_is_an_outage_while_others_reply() {
    let log = EventLog::default();
    let inside = log.clone();
    log.during(async move || {
        // No replica takes over, and the other masters go on.
        let args = ["--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no"];
        let set = ClusterSet::start_with(&args).await;
        let client = Client::builder().watchdog_timeout(ms(15_000)).connect(&set.url()).await.unwrap();
        let mut guards = Vec::new();
        // One on each master. They are renewed in one batch.
        for name in ["a", "b", "c"] {
            guards.push(client.lock(name).lock().await.unwrap());
        }
        let hung = set.owner_of(set.slot_of("a").await).await;
        set.nodes()[hung].pause();
        eventually("the failed renewal is logged", ms(60_000), async || {
            inside.find(BEGIN, "request=\"renewal\"").is_some()
        })
        .await;
        set.nodes()[hung].resume();
        eventually("the end is logged", ms(60_000), async || inside.has(END)).await;
    })
    .await;
    assert_eq!(log.warnings(), [BEGIN, END]);
}

async fn a_loss_is_logged_once(fixture: Fixture) {
    let log = EventLog::default();
    log.during(async move || {
        let client = Client::connect(&fixture.server().url()).await.unwrap();
        let lock = client.lock("loss");
        // Noticed by the watchdog, and then by the release.
        let guard = lock.with_lease(ms(300)).lock().await.unwrap();
        guard.lost().await;
        guard.unlock().await.unwrap_err();
        // Noticed by the release of the only guard.
        let guard = lock.lock().await.unwrap();
        let mut plain = fixture.raw_connection().await;
        let _: () = redis::cmd("DEL").arg("loss").query_async(&mut plain).await.unwrap();
        guard.unlock().await.unwrap_err();
        // Noticed by the release of one of two guards.
        let guard = lock.lock().await.unwrap();
        let inner = guard.reenter().await.unwrap();
        let _: () = redis::cmd("DEL").arg("loss").query_async(&mut plain).await.unwrap();
        inner.unlock().await.unwrap_err();
        guard.unlock().await.unwrap_err();
        // Noticed by the watchdog, and then by the release of the dropped guard.
        let guard = lock.with_lease(ms(300)).lock().await.unwrap();
        guard.lost().await;
        drop(guard);
        // Noticed by the release of the dropped guard.
        let guard = lock.lock().await.unwrap();
        let _: () = redis::cmd("DEL").arg("loss").query_async(&mut plain).await.unwrap();
        drop(guard);
        assert!(client.shutdown(PROMPT).await.is_clean());
    })
    .await;
    let at_release = "lost, noticed at release";
    assert_eq!(log.warnings(), ["lost", at_release, "lost", "lost", at_release]);
}
