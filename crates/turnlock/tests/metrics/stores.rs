use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use turnlock::metrics::{METRICS, MetricType};
use turnlock::{Client, LostReason, MemoryStore};
use turnlock_core::LockName;
use turnlock_core::model::{Acquired, Released, Renewed, Reply, Step};
use turnlock_store::{Failure, ReplyFuture, Sent, Signals, StepOptions, StepReply, Store, clock};
use turnlock_testkit::{ClusterSet, FaultProxy, Login, RedisServer, eventually};

use crate::recorder::{install, value};
use crate::{LIMIT, alone, in_group};

fn calls(store: &str, operation: &str, outcome: &str) -> f64 {
    let labels = [("store", store), ("operation", operation), ("outcome", outcome)];
    value("turnlock_store_calls_total", &labels)
}

pub(crate) async fn calls_to_a_file_are_counted() {
    let directory = turnlock_testkit::TempDir::new();
    let url = format!("file:{}", directory.path().join("locks").display());
    calls_are_counted(&url, "file").await;
    assert_eq!(value("turnlock_call_batch_steps_count", &[("store", "file")]), 0.0);
}

pub(crate) async fn calls_to_a_server_are_counted() {
    let body = async || {
        let server = RedisServer::start().await;
        calls_are_counted(&server.url(), "redis").await;
        shared_calls_are_counted(&server.url(), "redis").await;
    };
    alone("calls_to_a_server_are_counted", body).await;
}

pub(crate) async fn calls_to_a_cluster_are_counted() {
    let set = ClusterSet::start().await;
    calls_are_counted(&set.url(), "redis+cluster").await;
    shared_calls_are_counted(&set.url(), "redis+cluster").await;
}

async fn calls_are_counted(url: &str, store: &'static str) {
    // A poll would be as good as a message.
    let builder = || in_group(store).poll_interval(Duration::from_secs(60));
    let clients = [(); 2].map(async |()| builder().connect(url).await.expect("a store"));
    let [client, waiter] = futures_util::future::join_all(clients).await.try_into().expect("two clients");
    let expected = [
        (("acquire", "ok"), 4.0),
        (("acquire", "refused"), 1.0),
        (("release", "ok"), 4.0),
        (("inspect", "ok"), 1.0),
        (("perform", "ok"), 1.0),
    ];
    let before = expected.map(|((operation, outcome), _)| calls(store, operation, outcome));
    let lock = client.lock("a");
    for _ in 0..3 {
        lock.lock().await.expect("free").unlock().await.expect("held");
    }
    assert!(!lock.is_locked().await.expect("a reply"));
    client.fair_lock("a").lock().await.expect("free").unlock().await.expect("held");
    let permits = client.semaphore("b");
    assert!(permits.try_set_permits(1).await.expect("a reply"));
    client.lock("b").try_lock().await.expect_err("a semaphore");
    for (((operation, outcome), number), before) in expected.into_iter().zip(before) {
        let counted = calls(store, operation, outcome) - before;
        assert!(counted == number, "{operation} {outcome}: {counted}, not {number}");
    }
    let labels = [("store", store), ("operation", "acquire")];
    assert!(value("turnlock_store_call_seconds_count", &labels) >= 5.0);
    assert!(value("turnlock_store_call_seconds_sum", &labels) > 0.0);

    let used = || value("turnlock_messages_total", &[("store", store), ("used", "true")]);
    let (before, guard) = (used(), lock.lock().await.expect("free"));
    let waiting = tokio::spawn(async move { waiter.lock("a").lock().await.map(drop) });
    eventually("it waits for a message", LIMIT, async || {
        calls(store, "subscribe", "ok") > 0.0 && value("turnlock_waiters", &[("group", store)]) == 1.0
    })
    .await;
    guard.unlock().await.expect("held");
    waiting.await.expect("no panic").expect("free");
    assert!(used() > before);
    let granted = value("turnlock_acquisitions_total", &[("group", store), ("outcome", "granted")]);
    assert_eq!(granted, 6.0);
}

/// Many steps at once, in a cluster of one slot.
async fn shared_calls_are_counted(url: &str, store: &'static str) {
    let client = Client::connect(url).await.expect("a store");
    let steps = || value("turnlock_call_batch_steps_sum", &[("store", store)]);
    let calls = || value("turnlock_call_batch_steps_count", &[("store", store)]);
    let before = (steps(), calls());
    lock_many(&client).await;
    let (steps, calls) = (steps() - before.0, calls() - before.1);
    // The first ones are sent on their own.
    assert!(calls >= 1.0 && steps >= 32.0 && steps <= 32.0 * calls, "{steps} steps in {calls} calls");
}

/// Acquires 64 locks at once.
async fn lock_many(client: &Client) {
    let locks: Vec<_> = (0..64).map(|number| client.lock(&format!("{{many}}:{number}"))).collect();
    let guards = futures_util::future::join_all(locks.iter().map(turnlock::Lock::lock)).await;
    assert!(guards.iter().all(Result::is_ok));
}

pub(crate) async fn losses_in_an_outage_are_counted_by_reason() {
    let group = "lost in an outage";
    let mut server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let lost = |reason: &str| value("turnlock_lost_total", &[("group", group), ("reason", reason)]);
    let builder = in_group(group).watchdog_timeout(Duration::from_secs(1));
    let client = builder.connect(&proxy.url()).await.expect("a server");
    let guard = client.lock("a").lock().await.expect("free");
    proxy.refuse(true);
    proxy.reset_all();
    assert!(matches!(guard.lost().await, LostReason::NotRenewed { .. }));
    eventually("the end of its lease is counted", LIMIT, async || lost("not_renewed") == 1.0).await;
    let client = in_group(group).connect(&server.url()).await.expect("a server");
    let guard = client.lock("b").lock().await.expect("free");
    server.stop().await;
    server.restart().await;
    assert_eq!(guard.lost().await, LostReason::GoneAfterReconnect);
    eventually("the lost data is counted", LIMIT, async || lost("gone_after_reconnect") == 1.0).await;
    assert_eq!(value("turnlock_lost_total", &[("group", group)]), 2.0);
}

pub(crate) async fn an_outage_is_visible() {
    alone("an_outage_is_visible", outage).await;
}

async fn outage() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.port()).await;
    let group = "outage";
    let builder = in_group(group).watchdog_timeout(Duration::from_secs(9));
    let client = builder.connect(&proxy.url()).await.expect("a server");
    let guard = client.lock("a").lock().await.expect("free");
    let renewals =
        |outcome: &str| value("turnlock_renewals_total", &[("group", group), ("outcome", outcome)]);
    eventually("it is renewed", LIMIT, async || renewals("confirmed") > 0.0).await;
    let reconnects = || value("turnlock_reconnects_total", &[("store", "redis")]);
    let unavailable = || calls("redis", "renew", "unavailable");
    let before = (unavailable(), reconnects());
    proxy.refuse(true);
    proxy.reset_all();
    eventually("renewals fail", LIMIT, async || renewals("failed") > 0.0).await;
    assert!(unavailable() > before.0);
    proxy.refuse(false);
    eventually("the client reconnects", LIMIT, async || reconnects() > before.1).await;
    drop(guard);
    assert!(value("turnlock_renewal_batch_holds_count", &[("store", "redis")]) > 0.0);
}

/// A store that grants everything, and fails with the first renewal of a batch, as a cluster with a hung master does.
#[derive(Debug)]
struct PartlyFailing;

impl Store for PartlyFailing {
    fn call(&self, step: Step, _: StepOptions) -> ReplyFuture<Reply> {
        let reply = match step {
            Step::Acquire(..) => Reply::Acquired(Acquired::Granted),
            Step::Release(_) => Reply::Released(Released::Freed),
            _ => Reply::Renewed(Renewed::Renewed),
        };
        Box::pin(ready(Ok(StepReply::new(reply, Sent { connection: 1, at: clock::now() }))))
    }

    fn call_batch(&self, steps: Vec<Step>, _: StepOptions) -> ReplyFuture<Vec<Option<Reply>>> {
        let (sent, is_alone) = (Sent { connection: 1, at: clock::now() }, steps.len() == 1);
        let outcomes = (0..steps.len()).map(|number| match number {
            0 if !is_alone => Err(Failure::unavailable("hung")),
            _ => Ok(StepReply::new(Some(Reply::Renewed(Renewed::Renewed)), sent)),
        });
        Box::pin(ready(StepReply::merge(outcomes)))
    }

    fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }

    fn unsubscribe(&self, _: &LockName) {}

    fn attach(&self, _: Weak<dyn Signals>) {}
}

pub(crate) async fn a_batch_with_a_failed_part_counts_as_failed() {
    let builder = in_group("parts").watchdog_timeout(Duration::from_secs(6));
    let client = builder.store(|_| Arc::new(PartlyFailing)).expect("a store");
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(client.lock(name).lock().await.expect("free"));
    }
    let renewals =
        |outcome: &str| value("turnlock_renewals_total", &[("group", "parts"), ("outcome", outcome)]);
    eventually("the batch and its parts are counted", LIMIT, async || {
        calls("custom", "renew", "unavailable") > 0.0
            && renewals("failed") > 0.0
            && renewals("confirmed") > 0.0
    })
    .await;
    assert!(guards.iter().all(turnlock::Guard::is_valid), "the failed ones are renewed alone");
}

pub(crate) async fn acknowledgements_of_replicas_are_counted() {
    alone("acknowledgements_of_replicas_are_counted", acknowledgements).await;
}

async fn acknowledgements() {
    let (server, client) = {
        let server = RedisServer::start().await;
        let client = in_group("replicas").replicas(1).connect(&server.url()).await.expect("a server");
        (server, client)
    };
    let refused = || calls("redis", "acquire", "too_few_replicas");
    client.lock("a").try_lock().await.expect_err("no replica");
    assert!(refused() > 0.0);
    let port = server.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    let acknowledged = || value("turnlock_replica_acknowledgements_total", &[("store", "redis")]);
    assert_eq!(acknowledged(), 0.0);
    client.lock("a").lock().await.expect("acknowledged").unlock().await.expect("held");
    assert!(acknowledged() > 0.0);
    drop(replica);
}

pub(crate) async fn all_metrics_are_as_listed_and_contain_no_password() {
    let server = RedisServer::start_for(&Login::new("worker", "c4n4ry"), &[]).await;
    let client = Client::builder().connect(&server.url()).await.expect("a server");
    let lock = client.fenced_lock("secret-name");
    let guard = lock.lock().await.expect("free");
    assert!(lock.lock().now_or_never().is_none());
    guard.unlock().await.expect("held");
    let lost = client.lock("lost").with_lease(Duration::from_millis(50)).lock().await.expect("free");
    lost.lost().await;
    lock_many(&client).await;
    let renewed = Client::builder().watchdog_timeout(Duration::from_secs(3)).memory(&MemoryStore::new());
    let _held = renewed.expect("a memory store").lock("a").lock().await.expect("free");
    let listed = |line: &str| {
        let name = line.split(['{', ' ']).next().expect("a name");
        METRICS.iter().find(|metric| {
            let suffixes: &[&str] = match metric.metric_type {
                MetricType::Histogram => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            suffixes.iter().any(|suffix| name.strip_suffix(suffix) == Some(metric.name))
        })
    };
    eventually("all metrics are recorded", LIMIT, async || {
        let text = install().render();
        METRICS.iter().all(|metric| {
            text.lines().any(|line| listed(line).is_some_and(|found| found.name == metric.name))
        })
    })
    .await;
    let text = install().render();
    for line in text.lines().filter(|line| line.starts_with("turnlock_")) {
        let metric = listed(line).unwrap_or_else(|| panic!("not listed: {line}"));
        let labels =
            line.split_once('{').expect("labels").1.split("\",").filter_map(|label| label.split_once('='));
        for (label, _) in labels.filter(|(label, _)| *label != "le") {
            assert!(metric.labels.contains(&label), "the label {label} is not listed: {line}");
        }
    }
    for metric in METRICS {
        let help = format!("# HELP {} {}", metric.name, metric.description);
        assert!(text.lines().any(|line| line == help), "{help}");
        let ends_well = match metric.metric_type {
            MetricType::Counter => metric.name.ends_with("_total"),
            _ => !metric.name.ends_with("_total"),
        };
        assert!(ends_well, "{}", metric.name);
    }
    for secret in ["c4n4ry", "127.0.0.1", "secret-name"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
