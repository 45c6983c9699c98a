//! `ls` and `show`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use turnlock::{Error, Guard, Lock};
use turnlock_testkit::eventually;

use crate::fixture::Fixture;
use crate::schema::Schema;
use crate::watch::{line, watch};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    every_kind_is_listed_with_its_holder,
    patterns_and_limits_apply_and_an_incomplete_list_is_reported,
    a_table_has_a_row_per_holder,
    show_prints_all_fields_of_a_lock,
    show_of_an_unused_name_is_not_an_error,
    show_tells_a_held_lock_from_a_free_one,
    a_list_is_filtered_and_sorted,
    a_queue_is_shown_in_order,
    waiters_of_any_kind_are_shown,
    what_processes_wait_for_is_listed_whatever_its_kind,
    deadlocks_are_listed_and_found_by_the_doctor,
];

pub(crate) const CLUSTER_CASES: &[Case] = cases![
    every_kind_is_listed_with_its_holder,
    show_prints_all_fields_of_a_lock,
    what_processes_wait_for_is_listed_whatever_its_kind,
    deadlocks_are_listed_and_found_by_the_doctor,
];

async fn every_kind_is_listed_with_its_holder(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guards = [
        ("lock", "exclusive", client.lock("a-lock").lock().await.unwrap()),
        ("fair-lock", "exclusive", client.fair_lock("b-fair").lock().await.unwrap()),
        ("fenced-lock", "exclusive", client.fenced_lock("c-fenced").lock().await.unwrap()),
        ("plain-lock", "exclusive", client.plain_lock("d-plain").lock().await.unwrap()),
        ("read-write-lock", "read", client.read_write_lock("e-read").reader().lock().await.unwrap()),
        ("read-write-lock", "write", client.read_write_lock("f-write").writer().lock().await.unwrap()),
    ];
    let semaphore = client.permit_semaphore("g-permits");
    semaphore.try_set_permits(3).await.unwrap();
    let permits = semaphore.acquire(2).await.unwrap();

    fixture.until_identified(&[&client]).await;
    let listed = fixture.objects(&["ls", "--json"]).await;
    assert_eq!(listed.len(), guards.len() + 1, "{listed:#?}");
    for (object, (kind, mode, guard)) in listed.iter().zip(&guards) {
        assert_eq!(object["name"], guard.name());
        // On Redis, a fair lock without a queue looks like a lock.
        assert!(object["kind"] == *kind || (*kind == "fair-lock" && object["kind"] == "lock"), "{object}");
        assert_eq!(object["locked"], json!(true), "{object}");
        let holder = &object["holders"][0];
        assert_eq!(holder["owner"], guard.owner_id().as_str(), "{object}");
        assert_eq!((&holder["mode"], &holder["count"]), (&json!(mode), &json!(1)), "{object}");
        assert_eq!(
            (&holder["label"], &holder["pid"]),
            (&json!("holder"), &json!(std::process::id())),
            "{object}"
        );
        assert!((1..=30_000).contains(&object["ttl_ms"].as_u64().unwrap()), "{object}");
        assert_eq!(object["token"].as_u64(), guard.token(), "{object}");
    }
    let permit_ids: Vec<_> = owners(&listed[guards.len()]);
    let mut ids = permits.ids();
    ids.sort();
    assert_eq!((permit_ids, listed[guards.len()]["available"].as_i64()), (ids, Some(1)), "{listed:#?}");
}

async fn patterns_and_limits_apply_and_an_incomplete_list_is_reported(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let mut guards = Vec::new();
    for name in ["orders:1", "orders:2", "orders:3", "prices:1"] {
        guards.push(client.lock(name).lock().await.unwrap());
    }
    let names = |objects: &[Value]| -> Vec<String> {
        objects.iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect()
    };
    let chosen = fixture.objects(&["ls", "--json", "orders:[13]"]).await;
    assert_eq!(names(&chosen), ["orders:1", "orders:3"]);
    let all = fixture.run(&["ls", "--json"]).await;
    assert_eq!((all.out.lines().count(), all.err.as_str()), (4, ""), "{all:?}");
    let some = fixture.run(&["ls", "--json", "--limit", "2"]).await;
    assert_eq!((some.code, some.out.lines().count()), (Some(0), 2), "{some:?}");
    assert!(some.err.contains("not complete (2 shown)"), "{some:?}");
    let none = fixture.run(&["ls", "nothing*"]).await;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
}

async fn a_table_has_a_row_per_holder(fixture: Fixture) {
    let (one, other) = (fixture.client("one").await, fixture.client("other").await);
    let _alone = one.lock("alone").lock().await.unwrap();
    let _first = one.read_write_lock("shared").reader().lock().await.unwrap();
    let _second = other.read_write_lock("shared").reader().lock().await.unwrap();
    fixture.until_identified(&[&one, &other]).await;
    let listed = fixture.run(&["ls"]).await;
    let lines: Vec<_> = listed.out.lines().collect();
    assert_eq!(lines.len(), 4, "{listed:?}");
    assert!(lines[0].starts_with("NAME") && lines[0].contains("HELD BY"), "{listed:?}");
    let pid = format!(":{} (one)", std::process::id());
    assert!(lines[1].starts_with("alone") && lines[1].contains(&pid), "{listed:?}");
    assert!(lines[2].starts_with("shared") && lines[2].contains("read"), "{listed:?}");
    assert!(lines[3].starts_with("  ") && lines[3].contains("read"), "{listed:?}");
    assert!(!listed.out.contains('\u{1b}'), "no colours without a terminal: {listed:?}");
}

async fn show_prints_all_fields_of_a_lock(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guard = client.fenced_lock("accounts").lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    guard.announce().await.unwrap();
    let objects = fixture.objects(&["show", "--json", "accounts"]).await;
    let [object] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!(object["token"].as_u64(), again.token());
    assert_eq!(object["holders"][0]["count"], 2);
    let shown = fixture.run(&["show", "accounts"]).await;
    let since = object["holders"][0]["since"].as_str().unwrap();
    let began = humantime::parse_rfc3339(since).unwrap();
    assert!(began.elapsed().unwrap() < Duration::from_secs(60), "{object}");
    let pid = format!(":{} (holder), 2 times", std::process::id());
    for part in ["fenced-lock", &pid, guard.owner_id().as_str(), since, "ttl"] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
}

async fn show_of_an_unused_name_is_not_an_error(fixture: Fixture) {
    let unused = json!({
        "name": "unused", "kind": null, "locked": false, "holders": [], "ttl_ms": null, "queue": [], "waiters": [], "token": null,
        "available": null,
    });
    assert_eq!(fixture.objects(&["show", "--json", "unused"]).await, [unused]);
    let shown = fixture.run(&["show", "unused"]).await;
    assert!(shown.code == Some(0) && shown.out.contains("held by none"), "{shown:?}");
}

async fn show_tells_a_held_lock_from_a_free_one(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guard = client.lock("orders").lock().await.unwrap();
    let code = async |arguments: &[&str]| fixture.run(arguments).await.code;
    assert_eq!(code(&["show", "--check", "orders"]).await, Some(0));
    assert_eq!(code(&["show", "--check", "unused"]).await, Some(1));
    guard.unlock().await.unwrap();
    assert_eq!(code(&["show", "--check", "--json", "orders"]).await, Some(1));
    assert_eq!(code(&["show", "orders"]).await, Some(0));
}

async fn a_list_is_filtered_and_sorted(fixture: Fixture) {
    let (one, other) = (fixture.client("one").await, fixture.client("other").await);
    let late = one.lock("a-late").with_lease(Duration::from_secs(200)).lock().await.unwrap();
    let soon = other.lock("b-soon").with_lease(Duration::from_secs(100)).lock().await.unwrap();
    let _plain = other.plain_lock("c-plain").with_lease(Duration::from_secs(300)).lock().await.unwrap();
    for guard in [&late, &soon] {
        guard.announce().await.unwrap();
    }
    fixture.until_identified(&[&one, &other]).await;
    let names = async |arguments: &[&str]| -> Vec<String> {
        let objects = fixture.objects(&[&["ls", "--json"], arguments].concat()).await;
        objects.iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--sort", "ttl"]).await, ["b-soon", "a-late", "c-plain"]);
    assert_eq!(names(&["--sort", "age"]).await[..2], ["a-late", "b-soon"]);
    assert_eq!(names(&["--holder", "other"]).await, ["b-soon", "c-plain"]);
    assert_eq!(names(&["--holder", "other", "--kind", "lock"]).await, ["b-soon"]);
    assert_eq!(names(&["--older-than", "1h"]).await, [""; 0]);
    assert_eq!(names(&["--older-than", "0s", "--holder", "one"]).await, ["a-late"]);
}

async fn a_queue_is_shown_in_order(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let lock = client.fair_lock("tickets");
    let guard = lock.lock().await.unwrap();
    let mut waiters = Vec::new();
    for (index, label) in ["first", "second"].into_iter().enumerate() {
        let waiter = fixture.client(label).await;
        let lock = waiter.fair_lock("tickets");
        waiters.push(tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() }));
        while client.fair_lock("tickets").inspect().await.unwrap().queue.len() <= index {
            tokio::task::yield_now().await;
        }
        fixture.until_identified(&[&waiter]).await;
    }
    let objects = fixture.objects(&["show", "--json", "tickets"]).await;
    let labels: Vec<_> =
        objects[0]["queue"].as_array().unwrap().iter().map(|waiter| &waiter["label"]).collect();
    assert_eq!(labels, ["first", "second"], "{objects:?}");
    assert_eq!(objects[0]["kind"], "fair-lock", "{objects:?}");
    let listed = fixture.run(&["ls"]).await;
    assert!(listed.out.lines().next().unwrap().contains("WAITERS"), "{listed:?}");
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

fn owners(object: &Value) -> Vec<String> {
    let holders = object["holders"].as_array().unwrap().iter();
    let mut owners: Vec<_> = holders.map(|holder| holder["owner"].as_str().unwrap().to_owned()).collect();
    owners.sort();
    owners
}

/// How long an announcement may take, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

async fn waiters_of_any_kind_are_shown(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _held = client.lock("orders").lock().await.unwrap();
    let _other = client.lock("other").lock().await.unwrap();
    let waiting = fixture.program(&["run", "orders", "--", "true"]).start();
    let shown =
        fixture.output_with(&["show", "--json", "orders"], |shown| !shown.contains("\"waiters\":[]")).await;
    let wait = serde_json::from_str::<Value>(&shown).unwrap()["waiters"][0].take();
    Schema::load().check("wait", &wait);
    assert_eq!(
        (&wait["name"], &wait["kind"], &wait["holds"]),
        (&json!("orders"), &json!("lock"), &json!([]))
    );
    assert_eq!(wait["pid"].as_u64(), waiting.id().map(u64::from), "{wait}");
    let row = format!(":{} (", waiting.id().unwrap());
    fixture
        .output_with(&["show", "orders"], |shown| shown.contains(&row) && shown.contains("\nwaiting "))
        .await;
    // By name, it is the second one.
    let is_first = |listed: &str| listed.starts_with("{\"name\":\"orders\",");
    fixture.output_with(&["ls", "--json", "--sort", "waiters"], is_first).await;
    let none = fixture.run(&["ls", "--deadlocks"]).await;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
}

async fn what_processes_wait_for_is_listed_whatever_its_kind(fixture: Fixture) {
    let (holder, waiter) = (fixture.client("holder").await, fixture.client("waits").await);
    holder.semaphore("slots").try_set_permits(1).await.unwrap();
    let _slot = holder.semaphore("slots").acquire(1).await.unwrap();
    holder.latch("start").try_set_count(2).await.unwrap();
    let (_child, mut lines) = watch(&fixture, &["--plain"]);
    let (slots, unset, start) = (waiter.semaphore("slots"), waiter.semaphore("unset"), waiter.latch("start"));
    let tasks = [
        tokio::spawn(async move { slots.acquire(1).await.map(drop) }),
        tokio::spawn(async move { unset.acquire(1).await.map(drop) }),
        tokio::spawn(async move { start.wait().await }),
    ];
    let mut seen = Vec::new();
    while seen.len() < tasks.len() {
        let line = line(&mut lines).await;
        seen.push(line.split_once("  ").unwrap().1.to_owned());
    }
    seen.sort_unstable();
    assert_eq!(
        seen,
        ["slots: 0 free; 1 waiting", "start: count 2; 1 waiting", "unset: not set; 1 waiting"],
        "announced together"
    );
    let listed = fixture.output_with(&["ls", "--json"], |listed| listed.lines().count() == tasks.len()).await;
    let objects: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (object, (name, kind, number)) in objects.iter().zip([
        ("slots", "semaphore", json!(0)),
        ("start", "latch", json!(2)),
        ("unset", "semaphore", Value::Null),
    ]) {
        assert_eq!((&object["name"], &object["kind"]), (&json!(name), &json!(kind)), "{object}");
        assert_eq!((&object["locked"], &object["available"]), (&json!(false), &number), "{object}");
        assert_eq!(object["waiters"][0]["label"], "waits", "{object}");
        Schema::load().check("lock", object);
    }
    let latches =
        fixture.output_with(&["ls", "--json", "--kind", "latch", "s*"], |listed| !listed.is_empty()).await;
    assert!(latches.starts_with("{\"name\":\"start\",") && latches.lines().count() == 1, "{latches:?}");
    let listed = fixture.output_with(&["ls", "--waiters", "s*"], |listed| listed.lines().count() == 5).await;
    let rows: Vec<_> = listed.lines().collect();
    assert!(rows[0].contains("FOR") && rows[0].contains("WAITERS"), "{listed}");
    let waiting = format!(":{} (waits) ", std::process::id());
    for (row, name) in [(1, "slots "), (3, "start ")] {
        assert!(rows[row].starts_with(name), "{listed}");
        assert!(rows[row + 1].contains("  waiting: ") && rows[row + 1].contains(&waiting), "{listed}");
        assert!(rows[row + 1].contains(", task ") && rows[row + 1].ends_with('s'), "{listed}");
    }
    let has_waiter = |shown: &str| shown.contains("\nwaiting ") && shown.contains("(waits)");
    fixture.output_with(&["show", "unset"], has_waiter).await;
    // None of them is a lock that is held.
    let status: Value = serde_json::from_str(&fixture.run(&["status", "--json"]).await.out).unwrap();
    assert_eq!(status["locks"], 0, "{status}");
    for task in tasks {
        task.abort();
    }
}

/// Locks one name, and after `meeting` another, in a task of its own.
fn hold_and_wait(first: Lock, second: Lock, meeting: &Arc<Barrier>) -> JoinHandle<Result<Guard, Error>> {
    let meeting = Arc::clone(meeting);
    tokio::spawn(async move {
        let _held = first.lock().await?;
        meeting.wait().await;
        second.lock().await
    })
}

async fn deadlocks_are_listed_and_found_by_the_doctor(fixture: Fixture) {
    let (one, two) = (fixture.client("one").await, fixture.client("two").await);
    let meeting = Arc::new(Barrier::new(2));
    let tasks = [
        hold_and_wait(one.lock("a"), one.lock("b"), &meeting),
        hold_and_wait(two.lock("b"), two.lock("a"), &meeting),
    ];
    let is_found = async || one.deadlocks().await.unwrap().iter().any(|found| found.is_certain);
    eventually("the deadlock is found", SOON, is_found).await;
    let list = fixture.run(&["ls", "--deadlocks", "--json"]).await;
    assert_eq!(list.code, Some(1), "{list:?}");
    let object: Value = serde_json::from_str(list.out.lines().next().unwrap()).unwrap();
    Schema::load().check("deadlock", &object);
    assert_eq!(
        (&object["certain"], object["waiters"].as_array().unwrap().len()),
        (&json!(true), 2),
        "{object}"
    );
    let text = fixture.run(&["ls", "--deadlocks"]).await;
    assert!(text.code == Some(1) && text.out.starts_with("deadlock: "), "{text:?}");
    for part in ["(one)", "(two)", "waits for \"a\"", "waits for \"b\""] {
        assert!(text.out.contains(part), "{part} in {text:?}");
    }
    let other = fixture.run(&["ls", "--deadlocks", "other*"]).await;
    assert_eq!((other.code, other.out.as_str()), (Some(0), ""), "{other:?}");
    let doctor = fixture.run(&["doctor"]).await;
    assert!(doctor.code == Some(1) && doctor.out.contains("DANGER: waits."), "{doctor:?}");
    for task in tasks {
        task.abort();
    }
}
