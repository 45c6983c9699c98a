//! Force-unlock: the request, and its dialog in the browser.

use serde_json::json;

use crate::browser::Browser;
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![only_the_confirmed_hold_is_released];

pub(crate) const BROWSER_CASES: &[Case] =
    cases![a_lock_is_released_after_a_typed_confirmation, without_the_flag_there_is_no_unlock_button];

async fn only_the_confirmed_hold_is_released(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let client = fixture.client("holder").await;
    let stale = client.lock("orders").lock().await.unwrap();
    let stale_owner = stale.owner_id().to_string();
    stale.unlock().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let owner = guard.owner_id().to_string();
    let request = |name: &str, kind: &str, owner: &str| json!({ "name": name, "kind": kind, "owner": owner });
    for (refused, reason) in [
        (request("orders", "lock", &stale_owner), "another holder"),
        (request("orders", "read-write-lock", &owner), "another kind"),
        (request("free", "lock", &owner), "is not held"),
    ] {
        let response = dashboard.post("/api/unlock", &refused).await;
        assert!(response.status == 409 && response.body.contains(reason), "{refused}: {response:?}");
    }
    assert!(client.lock("orders").is_locked().await.unwrap());
    // On Redis, a fair lock without waiters is a lock; its owner is the one that was confirmed.
    let response = dashboard.post("/api/unlock", &request("orders", "fair-lock", &owner)).await;
    assert!(response.status == 200 && response.body.contains("unlocked by force"), "{response:?}");
    assert!(!client.lock("orders").is_locked().await.unwrap());
    let readers = client.read_write_lock("prices");
    let (one, other) = (readers.read().await.unwrap(), readers.read().await.unwrap());
    let body = request("prices", "read-write-lock", one.owner_id().as_str());
    assert_eq!(dashboard.post("/api/unlock", &body).await.status, 200);
    other.unlock().await.expect("another reader keeps the lock");
}

async fn a_lock_is_released_after_a_typed_confirmation(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let client = fixture.client("nightly report").await;
    let guard = client.lock("<b>orders</b>").lock().await.unwrap();
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    browser.click(".spacer .row .name").await;
    browser.click("button.danger").await;
    browser.until("document.querySelector('dialog').open").await;
    let dialog = browser.text("dialog").await;
    for text in ["<b>orders</b>", guard.owner_id().as_str(), "nightly report", "may keep running"] {
        assert!(dialog.contains(text), "{text} in {dialog}");
    }
    let disabled = "document.querySelector('dialog button[type=submit]').disabled";
    assert_eq!(browser.eval(disabled).await, true);
    assert_eq!(browser.eval("document.activeElement.id").await, "confirmation");
    browser.keys("ye").await;
    assert_eq!(browser.eval(disabled).await, true);
    // Enter does not confirm before the word is complete.
    browser.keys("\u{e007}").await;
    assert!(client.lock("<b>orders</b>").is_locked().await.unwrap());
    browser.keys("s").await;
    assert_eq!(browser.eval(disabled).await, false);
    browser.click("dialog button[type=submit]").await;
    browser
        .until("document.querySelector('dialog .outcome').textContent.includes('unlocked by force')")
        .await;
    assert!(!client.lock("<b>orders</b>").is_locked().await.unwrap());
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
