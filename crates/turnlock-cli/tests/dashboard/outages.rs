//! A store that does not reply, and a dashboard that cannot be reached, as viewers see it.

use serde_json::json;

use crate::browser::Browser;
use crate::dashboard::Dashboard;
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const REDIS_CASES: &[Case] = cases![
    an_outage_is_sent_and_its_end,
    a_viewer_that_connects_during_an_outage_is_told,
    a_user_who_may_not_read_waits_is_told,
];

pub(crate) const REDIS_BROWSER_CASES: &[Case] = cases![an_outage_is_shown_above_the_list_and_announced];

pub(crate) const FILE_BROWSER_CASES: &[Case] = cases![too_many_viewers_is_what_the_page_shows];

async fn an_outage_is_sent_and_its_end(mut fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let mut events = dashboard.events().await;
    events.until(|name, _| name == "snapshot").await;
    fixture.server().stop().await;
    let outage = events.until(|name, _| name == "outage").await;
    assert!(outage["error"].as_str().unwrap().contains("store"), "{outage}");
    fixture.server().restart().await;
    events.until(|name, _| name == "change").await;
}

async fn a_viewer_that_connects_during_an_outage_is_told(mut fixture: Fixture) {
    // A query for each wake-up, and no other.
    let dashboard = fixture.dashboard(&["--allow-unlock", "--interval", "1h"]).await;
    let mut events = dashboard.events().await;
    events.until(|name, _| name == "snapshot").await;
    fixture.server().stop().await;
    // An unlock is followed by a query, whatever its outcome.
    let unlock = json!({ "name": "orders", "kind": "lock", "owner": "1:1", "mode": "exclusive", "token": null, "seen_ms": 1 });
    assert_eq!(dashboard.post("/api/unlock", &unlock).await.status, 502);
    let outage = events.until(|name, _| name == "outage").await;
    let (name, text) = dashboard.events().await.next().await.unwrap();
    let snapshot: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&*name, &snapshot["outage"]), ("snapshot", &outage["error"]));
    let [at, now, outage_now] =
        [&snapshot["at"], &snapshot["now"], &outage["now"]].map(|time| time.as_u64().unwrap());
    assert!(at < now && outage_now <= now, "the clock is not that of the list: {snapshot} {outage}");
}

async fn a_user_who_may_not_read_waits_is_told(mut fixture: Fixture) {
    let rules = ["ACL", "SETUSER", "reader", "on", ">secret", "+@all", "&*", "~orders*"];
    let _: String = fixture.server().query(&rules).await.unwrap();
    let url = fixture.url().replace("redis://", "redis://reader:secret@");
    for (url, expected) in [(&*url, "denied"), (fixture.url(), "complete")] {
        let dashboard = Dashboard::start(url, 0, &[]).await;
        let mut events = dashboard.events().await;
        for event in ["snapshot", "change"] {
            let data = events.until(|name, _| name == event).await;
            assert_eq!((&data["deadlock_search"], &data["deadlocks"][0]), (&json!(expected), &json!(null)));
        }
    }
}

/// The texts that were read to users of screen readers, and the states of the connection.
const RECORD: &str = "((announcer, connection) => {
    window.announced = [];
    window.states = new Set();
    new MutationObserver(() => announced.push(announcer.textContent)).observe(announcer, { childList: true });
    new MutationObserver(() => states.add(connection.dataset.state)).observe(connection, { attributes: true });
    return true;
})(document.querySelector('#announcer'), document.querySelector('#connection'))";

async fn an_outage_is_shown_above_the_list_and_announced(mut fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").with_lease(std::time::Duration::from_secs(600)).lock().await.unwrap();
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    browser.eval(RECORD).await;
    fixture.server().stop().await;
    let is_shown = "document.querySelector('.alert.outage[role=alert]') !== null";
    browser.until(is_shown).await;
    let alert = browser.text(".alert.outage").await;
    assert!(alert.starts_with("A query of the store failed. ") && alert.contains("not available"), "{alert}");
    let is_outage = "document.querySelector('#connection').dataset.state === 'outage'";
    browser
        .until(&format!("{is_outage} && document.querySelector('#connection').textContent.includes('as of')"))
        .await;
    assert_eq!(browser.text(".spacer .row .name").await, "orders", "the list stays");
    // A page that is loaded now has the same.
    browser.eval("(location.reload(), true)").await;
    browser.until(&format!("{is_shown} && {is_outage}")).await;
    browser.until("document.querySelector('#count').textContent === '1 lock'").await;
    browser.eval(RECORD).await;
    fixture.server().restart().await;
    browser.until(&format!("!({is_shown}) && !({is_outage})")).await;
    // The dashboard goes away: that is announced once, not with each attempt to connect.
    let port = dashboard.address.port();
    assert_eq!(dashboard.stop("-TERM").await, Some(0));
    browser.until("states.has('lost') && states.has('connecting')").await;
    let _restarted = Dashboard::start(fixture.url(), port, &[]).await;
    browser.until("announced.at(-1) === 'Live' && announced.length > 1").await;
    assert_eq!(browser.eval("announced").await, json!(["Live", "Not connected", "Live"]));
}

async fn too_many_viewers_is_what_the_page_shows(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let mut viewers = Vec::new();
    for _ in 0..32 {
        viewers.push(dashboard.events().await);
    }
    let browser = Browser::open(dashboard.url()).await;
    browser
        .until("document.querySelector('#connection-text').textContent.startsWith('Too many viewers')")
        .await;
    viewers.clear();
    browser.until_locks(0).await;
}
