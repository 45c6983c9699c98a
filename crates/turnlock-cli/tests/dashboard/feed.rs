//! What the stream of events has: a snapshot, and then differences.

use std::time::{Duration, SystemTime};

use serde_json::json;
use turnlock::Client;
use turnlock_testkit::eventually;

use crate::fixture::Fixture;
use crate::{AWHILE, Case, cases};

pub(crate) const CASES: &[Case] = cases![only_differences_are_sent, the_holds_of_a_lock_are_remembered];

pub(crate) const REDIS_CASES: &[Case] = cases![
    the_store_is_queried_once_for_all_viewers_and_not_without_one,
    the_doctor_runs_at_the_start_and_on_demand,
];

async fn only_differences_are_sent(fixture: Fixture) {
    // The begin of a hold that is announced later is a difference too.
    let client = fixture.client_of(Client::builder().label("holder").announce_waits(false)).await;
    let mut guards = Vec::new();
    for index in 0..500 {
        // A renewal would be a difference too.
        let lock = client.lock(&format!("orders:{index}")).with_lease(Duration::from_secs(600));
        guards.push(lock.lock().await.unwrap());
    }
    let dashboard = fixture.dashboard(&[]).await;
    let mut events = dashboard.events().await;
    let snapshot = events.until(|name, _| name == "snapshot").await;
    assert_eq!(snapshot["locks"].as_array().unwrap().len(), 500);
    guards.pop().unwrap().unlock().await.unwrap();
    let change = events.until(|_, data| data["gone"].as_array().is_some_and(|gone| !gone.is_empty())).await;
    assert_eq!(change["gone"].as_array().unwrap().len(), 1);
    assert!(change["set"].as_array().unwrap().is_empty());
    let id = &change["gone"][0];
    let row = snapshot["locks"].as_array().unwrap().iter().find(|lock| lock["id"] == *id).unwrap();
    assert_eq!(row["name"], "orders:499");
    // Without an event on the store, a message has no lock.
    let next = events.until(|name, _| name == "change").await;
    assert_eq!((&next["set"], &next["gone"]), (&json!([]), &json!([])));
    let guard = client.lock("orders:new").lock().await.unwrap();
    let change = events.until(|_, data| data["set"].as_array().is_some_and(|set| !set.is_empty())).await;
    let set = change["set"].as_array().unwrap();
    assert_eq!((set.len(), &set[0]["name"]), (1, &"orders:new".into()));
    assert_eq!(set[0]["holders"][0]["label"], "holder");
    drop(guard);
}

async fn the_holds_of_a_lock_are_remembered(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let mut events = dashboard.events().await;
    let (one, other) = (fixture.client("one").await, fixture.client("other").await);
    let first = one.fair_lock("orders").lock().await.unwrap();
    let is_held = |data: &serde_json::Value| data.to_string().contains("\"orders\"");
    events.until(|_, data| is_held(data)).await;
    let lock = other.fair_lock("orders");
    let waiting = tokio::spawn(async move { lock.lock().await });
    events.until(|_, data| data["set"][0]["queue"][0]["label"] == "other").await;
    first.unlock().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    events.until(|_, data| data["set"][0]["holders"][0]["label"] == "other").await;
    let holds = dashboard.get("/api/holds/=orders").await.json();
    let labels: Vec<_> = holds.as_array().unwrap().iter().map(|hold| hold["label"].as_str()).collect();
    assert_eq!(labels, [Some("one"), Some("other")], "{holds}");
    assert!(holds[0]["until_ms"].is_u64() && holds[1]["until_ms"].is_null(), "{holds}");
    assert!(holds[0]["waited_ms"].is_null() && holds[1]["waited_ms"].is_u64(), "{holds}");
    second.unlock().await.unwrap();
    events.until(|_, data| data["gone"].as_array().is_some_and(|gone| !gone.is_empty())).await;
    let holds = dashboard.get("/api/holds/=orders").await.json();
    assert!(holds[1]["until_ms"].is_u64() && holds[1]["is_held"] == false, "of a lock that is free: {holds}");
    assert_eq!(dashboard.get("/api/holds/=other").await.body, "[]");
    assert_eq!(dashboard.get("/api/holds/orders").await.status, 404);
}

async fn the_store_is_queried_once_for_all_viewers_and_not_without_one(mut fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let server = fixture.server();
    eventually("the store is examined", AWHILE, || async {
        dashboard.get("/api/doctor").await.body != "null"
    })
    .await;
    let before = server.calls().await;
    assert_eq!(before.of("scan"), 0, "without a viewer, the store is not queried");
    let mut viewers = Vec::new();
    for _ in 0..10 {
        viewers.push(dashboard.events().await);
    }
    for viewer in &mut viewers {
        viewer.until(|name, _| name == "snapshot").await;
    }
    let mut seen = Vec::new();
    for viewer in &mut viewers {
        let mut times = Vec::new();
        while times.len() < 5 {
            times.push(viewer.until(|name, _| name == "change").await["at"].clone());
        }
        seen.push(times);
    }
    let calls = server.calls().await.since(&before);
    let (scans, activity) = (calls.of("scan"), calls.of("hrandfield"));
    assert!(activity <= 2 * scans, "what clients announced is read {activity} times by {scans} queries");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    // A query that was under way has been published then.
    viewers[0].until(|_, data| data["at"].as_u64().is_some_and(|at| u128::from(at) > now)).await;
    let snapshot = dashboard.events().await.until(|name, _| name == "snapshot").await;
    let queries: Vec<_> = snapshot["rates"].as_array().unwrap().iter().map(|rate| rate[0].clone()).collect();
    assert!(scans <= queries.len() as u64, "{scans} scans, {} queries", queries.len());
    for times in seen {
        assert!(queries.windows(times.len()).any(|part| part == times), "{times:?} in {queries:?}");
    }
    viewers.clear();
    let server = &*server;
    eventually("no query without a viewer", AWHILE, || async {
        let before = server.calls().await.of("scan");
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.calls().await.of("scan") == before
    })
    .await;
}

async fn the_doctor_runs_at_the_start_and_on_demand(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    // Also while those of the start run.
    let all = dashboard.post("/api/doctor", &serde_json::json!({})).await.json();
    assert_eq!(all["all"], true, "{all}");
    assert_eq!(dashboard.get("/api/doctor").await.json(), all);
    // Without the flag, only those that take no lock.
    let dashboard = fixture.dashboard(&[]).await;
    let dashboard = &dashboard;
    eventually("the store is examined", AWHILE, || async {
        dashboard.get("/api/doctor").await.body != "null"
    })
    .await;
    let first = dashboard.get("/api/doctor").await.json();
    assert_eq!(first["all"], false);
    assert!(
        first["servers"][0]["version"].as_str().is_some_and(|version| version.contains("Redis")),
        "{first}"
    );
    let count = |report: &serde_json::Value| report["findings"].as_array().unwrap().len();
    assert!(
        count(&all) > count(&first) && all["servers"][0]["address"] == first["servers"][0]["address"],
        "{all}"
    );
    let again = dashboard.post("/api/doctor", &serde_json::json!({})).await.json();
    assert!(again["all"] == false && count(&again) == count(&first) && again["at"] != first["at"], "{again}");
    assert_eq!(dashboard.get("/api/doctor").await.json(), again);
}
