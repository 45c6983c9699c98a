//! Force-unlock: the request, and its dialog in the browser.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::fixture::Fixture;
use crate::http::Events;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![only_the_confirmed_hold_is_released];

pub(crate) const REDIS_CASES: &[Case] =
    cases![a_later_hold_of_the_same_owner_is_spared, one_side_of_a_read_write_lock_is_released];

pub(crate) const BROWSER_CASES: &[Case] =
    cases![a_lock_is_released_after_a_typed_confirmation, without_the_flag_there_is_no_unlock_button];

/// Waits until viewers see this hold, and returns the request to release it, as the page sends it.
pub(crate) async fn request(events: &mut Events, name: &str, owner: &str, mode: &str) -> Value {
    let find = |data: &Value| {
        let locks = data["locks"].as_array().or(data["set"].as_array())?;
        let lock = locks.iter().find(|lock| lock["name"] == name)?;
        let is_it = |holder: &Value| holder["owner"] == owner && holder["mode"] == mode;
        let index = lock["holders"].as_array()?.iter().position(is_it)?;
        let (kind, token, seen) = (&lock["kind"], &lock["token"], &lock["hold_seen_ms"][index]);
        Some(
            json!({ "name": name, "kind": kind, "owner": owner, "mode": mode, "token": token, "seen_ms": seen }),
        )
    };
    find(&events.until(|_, data| find(data).is_some()).await).unwrap()
}

async fn only_the_confirmed_hold_is_released(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let mut events = dashboard.events().await;
    let client = fixture.client("holder").await;
    let stale = client.lock("orders").lock().await.unwrap();
    let stale_request = request(&mut events, "orders", stale.owner_id().as_str(), "exclusive").await;
    stale.unlock().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let confirmed = request(&mut events, "orders", guard.owner_id().as_str(), "exclusive").await;
    let but = |key: &str, value: &str| {
        let mut request = confirmed.clone();
        request[key] = json!(value);
        request
    };
    for (refused, reason) in [
        (stale_request, "another holder"),
        (but("kind", "read-write-lock"), "another kind"),
        (but("mode", "read"), "another mode"),
        (but("name", "free"), "is not held"),
    ] {
        let response = dashboard.post("/api/unlock", &refused).await;
        assert!(response.status == 409 && response.body.contains(reason), "{refused}: {response:?}");
    }
    assert!(client.lock("orders").is_locked().await.unwrap());
    // On Redis, a fair lock without waiters is a lock; its owner is the one that was confirmed.
    let response = dashboard.post("/api/unlock", &but("kind", "fair-lock")).await;
    assert!(response.status == 200 && response.body.contains("unlocked by force"), "{response:?}");
    assert!(!client.lock("orders").is_locked().await.unwrap());
    let stock = client.fenced_lock("stock").lock().await.unwrap();
    let confirmed = request(&mut events, "stock", stock.owner_id().as_str(), "exclusive").await;
    assert_eq!(dashboard.post("/api/unlock", &confirmed).await.status, 200);
    let readers = client.read_write_lock("prices");
    let (one, other) = (readers.read().await.unwrap(), readers.read().await.unwrap());
    let confirmed = request(&mut events, "prices", one.owner_id().as_str(), "read").await;
    assert_eq!(dashboard.post("/api/unlock", &confirmed).await.status, 200);
    other.unlock().await.expect("another reader keeps the lock");
}

/// A thread of Redisson, whose id is the owner of all its holds.
const THREAD: &str = "07070707-1707-4707-8707-070707070707:7";

async fn a_later_hold_of_the_same_owner_is_spared(mut fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let mut events = dashboard.events().await;
    let server = fixture.server();
    let hold = ["HSET", "orders", THREAD, "1"];
    let _: i64 = server.query(&hold).await.unwrap();
    let first = request(&mut events, "orders", THREAD, "exclusive").await;
    let _: i64 = server.query(&["DEL", "orders"]).await.unwrap();
    events.until(|_, data| data["gone"] != json!([])).await;
    let _: i64 = server.query(&hold).await.unwrap();
    let second = request(&mut events, "orders", THREAD, "exclusive").await;
    let response = dashboard.post("/api/unlock", &first).await;
    assert!(response.status == 409 && response.body.contains("acquired orders again"), "{response:?}");
    assert_eq!(dashboard.post("/api/unlock", &second).await.status, 200);
    assert_eq!(server.query::<i64>(&["EXISTS", "orders"]).await.unwrap(), 0);
}

async fn one_side_of_a_read_write_lock_is_released(mut fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let mut events = dashboard.events().await;
    let server = fixture.server();
    let (writer, read_hold) = (format!("{THREAD}:write"), format!("{{prices}}:{THREAD}:rwlock_timeout:1"));
    let write = ["HSET", "prices", "mode", "write", &writer, "1", THREAD, "1"];
    let _: i64 = server.query(&write).await.unwrap();
    let _: String = server.query(&["SET", &read_hold, "1", "PX", "600000"]).await.unwrap();
    let side = async |field: &str| server.query::<i64>(&["HEXISTS", "prices", field]).await.unwrap() == 1;
    let read = request(&mut events, "prices", THREAD, "read").await;
    assert_eq!(dashboard.post("/api/unlock", &read).await.status, 200);
    assert!(side(&writer).await && !side(THREAD).await, "it holds the write lock only");
    let write = request(&mut events, "prices", THREAD, "write").await;
    // The owner downgrades its write lock before the confirmation.
    let _: i64 = server.query(&["DEL", "prices"]).await.unwrap();
    let _: i64 = server.query(&["HSET", "prices", "mode", "read", THREAD, "1"]).await.unwrap();
    let _: String = server.query(&["SET", &read_hold, "1", "PX", "600000"]).await.unwrap();
    let response = dashboard.post("/api/unlock", &write).await;
    assert!(response.status == 409 && response.body.contains("another mode"), "{response:?}");
    assert!(side(THREAD).await, "the read lock is held");
}

async fn a_lock_is_released_after_a_typed_confirmation(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let client = fixture.client("nightly report").await;
    let guard = client.read_write_lock("<b>orders</b>").write().await.unwrap();
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    browser.click(".spacer .row .name").await;
    browser.click("button.danger").await;
    browser.until("document.querySelector('dialog').open").await;
    let dialog = browser.text("dialog").await;
    for text in
        ["<b>orders</b>", guard.owner_id().as_str(), "Modewrite", "nightly report", "may keep running"]
    {
        assert!(dialog.contains(text), "{text} in {dialog}");
    }
    let disabled = "document.querySelector('dialog button[type=submit]').disabled";
    assert_eq!(browser.eval(disabled).await, true);
    assert_eq!(browser.eval("document.activeElement.id").await, "confirmation");
    browser.keys("ye").await;
    assert_eq!(browser.eval(disabled).await, true);
    // Enter does not confirm before the word is complete.
    browser.keys("\u{e007}").await;
    assert!(client.inspect("<b>orders</b>").await.unwrap().is_some());
    browser.keys("s").await;
    assert_eq!(browser.eval(disabled).await, false);
    browser.click("dialog button[type=submit]").await;
    browser
        .until("document.querySelector('dialog .outcome').textContent.includes('unlocked by force')")
        .await;
    assert!(client.inspect("<b>orders</b>").await.unwrap().is_none());
    browser.keys("\u{e007}").await;
    browser.until("!document.querySelector('dialog').open").await;
    browser.until("document.querySelector('.state')?.textContent === 'free'").await;
    assert!(browser.console_errors().await.is_empty());
}

async fn without_the_flag_there_is_no_unlock_button(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    browser.click(".spacer .row .name").await;
    browser.until("document.querySelector('.lock-page .people a') !== null").await;
    assert_eq!(browser.eval("document.querySelectorAll('button.danger').length").await, 0);
}
