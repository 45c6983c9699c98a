//! The pages of a lock, of a client and of the doctor in the browser.

use crate::browser::Browser;
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_lock_has_holders_waiters_a_graph_and_its_history,
    a_lock_that_is_free_has_its_history,
    another_lock_leaves_the_page_as_it_is,
    a_client_has_its_holds_and_waits,
    the_doctor_runs_on_demand,
];

/// The page of a lock shows for how long it is held, and not only at least how long.
const IS_SINCE_KNOWN: &str = "document.querySelector('.people .age')?.textContent.startsWith('>') === false";

async fn a_lock_has_holders_waiters_a_graph_and_its_history(fixture: Fixture) {
    let (one, other) = (fixture.client("one").await, fixture.client("other").await);
    let first = one.fair_lock("deploy").lock().await.unwrap();
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(&format!("{}#/lock/deploy", dashboard.url())).await;
    browser.until("document.querySelector('.people .person')?.textContent.includes('(one)')").await;
    // Since when it is held is announced after a second, and has a dot in the plot.
    browser.until(IS_SINCE_KNOWN).await;
    let lock = other.fair_lock("deploy");
    let waiting = tokio::spawn(async move { lock.lock().await });
    browser.until("document.querySelector('ol.people')?.textContent.includes('(other)')").await;
    browser.until("document.querySelector('.graph').getAttribute('aria-label').includes('(other) waits for deploy')").await;
    let label = browser.eval("document.querySelector('.graph').getAttribute('aria-label')").await;
    assert!(label.as_str().unwrap().contains("deploy is held by"), "{label}");
    assert_eq!(browser.eval("document.querySelectorAll('.graph .node').length").await, 3);
    assert_eq!(browser.eval("document.querySelectorAll('.graph .edge.wait').length").await, 1);
    first.unlock().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    browser.until("document.querySelectorAll('.lock-page tbody tr').length === 2").await;
    let latest = browser.text(".lock-page tbody tr").await;
    assert!(latest.contains("(other)") && latest.contains("still held"), "{latest}");
    browser.until("document.querySelectorAll('.plot .dot').length >= 2").await;
    second.unlock().await.unwrap();
    browser.until("document.querySelector('.state')?.textContent === 'free'").await;
    browser.until("!document.querySelector('.lock-page tbody').textContent.includes('still held')").await;
    assert!(browser.console_errors().await.is_empty(), "{:?}", browser.console_errors().await);
}

async fn a_lock_that_is_free_has_its_history(fixture: Fixture) {
    let client = fixture.client("one").await;
    let guard = client.lock("..").lock().await.unwrap();
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(&format!("{}#/lock/..", dashboard.url())).await;
    browser.until("document.querySelector('.lock-page tbody')?.textContent.includes('still held')").await;
    guard.unlock().await.unwrap();
    browser.until("document.querySelector('.state')?.textContent === 'free'").await;
    browser.eval("(location.reload(), true)").await;
    browser.until("document.querySelectorAll('.lock-page tbody tr').length === 1").await;
    assert_eq!(browser.text(".lock-page .facts-line").await, "This lock is not held.");
    assert!(browser.console_errors().await.is_empty(), "{:?}", browser.console_errors().await);
}

async fn another_lock_leaves_the_page_as_it_is(fixture: Fixture) {
    let client = fixture.client("one").await;
    let _guard = client.lock("deploy").lock().await.unwrap();
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(&format!("{}#/lock/deploy", dashboard.url())).await;
    browser.until("document.querySelectorAll('.lock-page tbody tr').length === 1").await;
    // Its time and its task are announced after a second, which is a difference of this lock.
    browser.until(IS_SINCE_KNOWN).await;
    browser.until("document.querySelector('.people .line .fact')?.textContent.startsWith('task ')").await;
    browser.eval("(document.querySelector('.graph .node.client').focus(), document.querySelector('.graph').isFirst = true)").await;
    // Counts the requests that begin from now on.
    browser.eval("(window.asked = [], window.ask = fetch, window.fetch = (...call) => (asked.push(String(call[0])), ask(...call)), true)").await;
    let mut events = dashboard.events().await;
    for name in ["one", "two"] {
        let _guard = client.lock(name).lock().await.unwrap();
        events.until(|_, data| data.to_string().contains(&format!("\"name\":\"{name}\""))).await;
    }
    // The page has what this viewer has, after one more message.
    let seen = "new Promise((done) => { const source = new EventSource('/api/events'); source.addEventListener('change', () => (source.close(), done(true))); })";
    assert_eq!(browser.eval(seen).await, true);
    assert_eq!(browser.eval("document.querySelector('.graph').isFirst").await, true);
    assert_eq!(browser.eval("document.activeElement.matches('.graph .node.client')").await, true);
    assert_eq!(browser.eval("asked").await, serde_json::json!([]));
    assert_eq!(browser.eval("document.querySelector('.graph').getAttribute('role')").await, "group");
    // A waiter is drawn, and the focus stays.
    let other = fixture.client("other").await;
    let lock = other.lock("deploy");
    let waiting = tokio::spawn(async move { lock.lock().await });
    browser.until("document.querySelectorAll('.graph .node').length === 3").await;
    assert_eq!(browser.eval("document.activeElement.matches('.graph .node.client')").await, true);
    waiting.abort();
}

async fn a_client_has_its_holds_and_waits(fixture: Fixture) {
    let (one, other) = (fixture.client("one").await, fixture.client("other").await);
    let _held = one.fair_lock("deploy").lock().await.unwrap();
    let _own = other.lock("orders").lock().await.unwrap();
    let lock = other.fair_lock("deploy");
    let waiting = tokio::spawn(async move { lock.lock().await });
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(&format!("{}#/clients", dashboard.url())).await;
    browser.until("document.querySelectorAll('.clients tbody tr').length === 2").await;
    browser.click(".clients tbody tr:first-child a").await;
    browser.until("document.querySelector('h1.name')?.textContent.includes('(other)')").await;
    let cards = "[...document.querySelectorAll('.client-page .card')].map((card) => card.querySelector('.person')?.textContent).join()";
    browser.until(&format!("{cards} === 'orders,deploy'")).await;
    waiting.abort();
}

async fn the_doctor_runs_on_demand(fixture: Fixture) {
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(&format!("{}#/doctor", dashboard.url())).await;
    browser.click(".doctor button").await;
    browser.until("document.querySelector('.doctor .hint + .findings') !== null && document.querySelector('.doctor .card .hint').textContent.startsWith('All checks')").await;
    browser.until("document.querySelectorAll('.findings .level').length > 0").await;
    browser.until("document.activeElement.matches('.doctor button')").await;
}
