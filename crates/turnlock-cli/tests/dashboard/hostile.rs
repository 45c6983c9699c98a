//! Text of the store that tries to be markup, or to hide.

use serde_json::json;

use crate::browser::Browser;
use crate::fixture::Fixture;
use crate::list_page::{ESCAPE, NAMES};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![hostile_names_are_text];

pub(crate) const REDIS_CASES: &[Case] = cases![hostile_hosts_owners_tasks_and_call_sites_are_text];

/// Markup, a character that reverses text, and what an escape looks like.
const HOSTILE: &str = "<img src=x onerror=window.hacked=1>\u{202e}\\n";
/// How the page shows it.
const SHOWN: &str = "<img src=x onerror=window.hacked=1>\\u{202e}\\\\n";

async fn hostile_names_are_text(fixture: Fixture) {
    let long = "x".repeat(250);
    let hostile = [
        "<script>window.hacked=1</script>",
        "<img src=x onerror=window.hacked=1>",
        "\"><svg onload=window.hacked=1>",
        "'; window.hacked=1; //",
        "{{constructor.constructor('window.hacked=1')()}}",
        "javascript:window.hacked=1",
        "\u{202e}gnp.exe",
        "a\nb\u{7}\u{1b}[2J\u{0}c",
        "%2e%2e%2f#/lock/other?&amp;",
        "..",
        "__proto__",
        "C:\\new",
        &*long,
    ];
    let client = fixture.client("<script>window.hacked=1</script>\u{202e}\"'").await;
    let mut guards = Vec::new();
    for name in hostile {
        guards.push(client.lock(name).lock().await.unwrap());
    }
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(hostile.len()).await;
    let names = browser.eval(NAMES).await.to_string();
    assert!(names.contains("<script>window.hacked=1</script>"), "{names}");
    assert!(
        names.contains("C:\\\\\\\\new")
            && names.contains("\\\\u{202e}gnp.exe")
            && names.contains("a\\\\nb\\\\u{7}\\\\u{1b}[2J\\\\0c"),
        "{names}"
    );
    let count = browser.eval("document.querySelectorAll('.spacer .row').length").await;
    assert_eq!(count, hostile.len());
    for (name, guard) in hostile.iter().zip(&guards) {
        browser.go(&format!("#/lock/{}", percent_encoded(name))).await;
        let owner = serde_json::json!(guard.owner_id().as_str());
        browser.until(&format!("document.querySelector('.lock-page .owner')?.textContent === {owner}")).await;
        browser.until("document.querySelector('.graph') !== null").await;
    }
    browser.click("button.danger").await;
    browser.until("document.querySelector('dialog').open").await;
    browser.keys(ESCAPE).await;
    browser.go(&format!("#/client/{}", client.id())).await;
    browser.until("document.querySelectorAll('.client-page li').length > 0").await;
    browser.go("#/clients").await;
    browser.until("document.querySelectorAll('.clients tbody tr').length === 1").await;
    let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
    assert_eq!(browser.eval(wide).await, false, "a long name does not widen the page");
    assert_harmless(&browser).await;
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Asserts that no text became an element or ran, and that the console has no error.
async fn assert_harmless(browser: &Browser) {
    assert_eq!(browser.eval("window.hacked === undefined").await, true);
    let scripts = "document.querySelectorAll('script').length + document.querySelectorAll('main img, main script').length";
    assert_eq!(browser.eval(scripts).await, 1);
    assert!(browser.console_errors().await.is_empty(), "{:?}", browser.console_errors().await);
}

async fn hostile_hosts_owners_tasks_and_call_sites_are_text(mut fixture: Fixture) {
    let [holder, waiter] = ["1", "2"].map(|digit| format!("07070707-1707-4707-8707-07070707070{digit}"));
    let server = fixture.server();
    let time: (u64, u64) = server.query(&["TIME"]).await.unwrap();
    let later = (time.0 + 600) * 1_000;
    let _: i64 = server.query(&["HSET", "orders", &format!("{holder}:1"), "1"]).await.unwrap();
    let _: i64 = server.query(&["PEXPIRE", "orders", "600000"]).await.unwrap();
    // The queue of a fair lock can have any text.
    let [queue, timeouts] = ["queue", "timeout"].map(|part| format!("redisson_lock_{part}:{{orders}}"));
    let _: i64 = server.query(&["RPUSH", &queue, HOSTILE]).await.unwrap();
    let _: i64 = server.query(&["ZADD", &timeouts, &later.to_string(), HOSTILE]).await.unwrap();
    let identity = json!({ "host": HOSTILE, "pid": 7, "label": HOSTILE });
    for (client, part) in [
        (&holder, json!({ "holds": [{ "owner": format!("{holder}:1"), "held_ms": 5_000 }] })),
        (&waiter, json!({ "waits": [{ "owner": format!("{waiter}:1"), "waited_ms": 5_000 }] })),
    ] {
        let (mut record, mut activity) = (identity.clone(), identity.clone());
        record["started_ms"] = 0.into();
        let key = format!("turnlock_client:{client}");
        let _: String = server.query(&["SET", &key, &record.to_string()]).await.unwrap();
        for (list, entries) in part.as_object().unwrap() {
            activity[list] = entries.clone();
            for (field, text) in
                [("key", "orders"), ("kind", "fair lock"), ("task", HOSTILE), ("at", HOSTILE)]
            {
                activity[list][0][field] = text.into();
            }
        }
        let value = format!("{} {} 0 {activity}", time.0 * 1_000_000, later * 1_000);
        let _: i64 = server.query(&["HSET", "turnlock_waits", client, &value]).await.unwrap();
    }
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    let identity = format!("{SHOWN}:7 ({SHOWN})");
    assert_eq!(browser.text(".spacer .row .holder").await, identity);
    browser.go("#/lock/orders").await;
    browser.until("document.querySelectorAll('ol.people li').length === 2").await;
    let texts = "[...document.querySelectorAll('.people :is(.person a, .owner, .fact)')].map((part) => part.textContent)";
    let texts = browser.eval(texts).await;
    let owner = |client: &str| format!("{client}:1");
    let own = [&*identity, &owner(&holder), SHOWN, SHOWN].map(str::to_owned);
    let queued = [SHOWN, SHOWN].map(str::to_owned);
    let announced = [&*identity, &owner(&waiter), SHOWN, SHOWN].map(str::to_owned);
    assert_eq!(texts, json!([&own[..], &queued, &announced].concat()), "holder, queue, announced waiter");
    browser.until("document.querySelectorAll('.graph .node').length === 4").await;
    browser.click("button.danger").await;
    browser.until("document.querySelector('dialog').open").await;
    assert!(browser.text("dialog").await.contains(&identity));
    browser.keys(ESCAPE).await;
    for (key, name) in [(HOSTILE, SHOWN), (&*holder, &*identity)] {
        browser.go(&format!("#/client/{}", percent_encoded(key))).await;
        browser.until(&format!("document.querySelector('h1.name')?.textContent === {}", json!(name))).await;
        assert_eq!(browser.eval("document.title").await, format!("{name} – turnlock"));
    }
    browser.go("#/clients").await;
    browser.until("document.querySelectorAll('.clients tbody tr').length === 3").await;
    let names = "[...document.querySelectorAll('.clients tbody a')].map((link) => link.textContent).sort()";
    assert_eq!(browser.eval(names).await, json!([SHOWN, identity, identity]));
    assert_harmless(&browser).await;
}
