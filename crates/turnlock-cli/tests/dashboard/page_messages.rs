//! The page as it shows messages that the tests make: states of the store that are rare, or that take long.

use serde_json::json;

use crate::browser::Browser;
use crate::dashboard::Dashboard;
use crate::fixture::Fixture;
use crate::list_page::NAMES;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    many_deadlocks_leave_room_for_the_list,
    a_lock_that_was_not_reached_is_not_called_free,
    a_list_without_news_is_not_live,
    renewals_build_nothing_again,
    a_busy_lock_has_its_history_on_a_slow_link,
    the_selection_is_a_name,
    a_click_opens_the_lock_that_was_pressed,
    what_is_scrolled_stays_where_it_is,
    findings_stay_when_the_checks_fail_and_have_their_age,
];

/// Gives the page the messages of the tests, and lets the tests answer some of its requests.
const SCRIPT: &str = "
    const Original = EventSource;
    window.EventSource = class extends Original {
        constructor(url) { super(url); window.source = this; }
    };
    window.send = (name, data) => source.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
    window.change = (parts) => send('change', { at: Date.now(), complete: true, grants: 0, set: [], gone: [], leases: [], deadlock_search: 'complete', ...parts }) ?? true;
    window.snapshot = (locks) => send('snapshot', { at: Date.now(), now: Date.now(), outage: null, complete: true, locks, rates: [], deadlocks: [], deadlock_search: 'complete' }) ?? true;
    window.holder = (pid, parts) => ({ owner: `07070707-1707-4707-8707-070707070707:${pid}`, count: 1, mode: 'exclusive', host: 'web-1', pid, label: 'importer', since: null, ttl_ms: null, kept_until: null, stuck: false, task: null, call_site: null, ...parts });
    window.lock = (id, name, holders) => ({ id, name, kind: 'lock', locked: true, ttl_ms: 30_000, lease_ms: 30_000, seen_ms: Date.now(), hold_seen_ms: holders.map(() => 1), holders, waiters: [], queue: [], token: null, available: null });
    const request = window.fetch;
    window.replies = [];
    window.fetch = (url, options) => (window.isHeld?.(url, options) ? new Promise((done, failed) => replies.push({ done: (data) => done(new Response(JSON.stringify(data))), failed })) : request(url, options));
";

/// Opens a page that gets no other messages for an hour.
async fn open(fixture: &Fixture) -> (Dashboard, Browser) {
    open_with(fixture, &["--interval", "1h"]).await
}

async fn open_with(fixture: &Fixture, arguments: &[&str]) -> (Dashboard, Browser) {
    let dashboard = fixture.dashboard(arguments).await;
    let browser = Browser::open("about:blank").await;
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": SCRIPT })).await;
    browser.eval(&format!("(location.href = '{}', true)", dashboard.url())).await;
    browser.until_locks(0).await;
    (dashboard, browser)
}

async fn many_deadlocks_leave_room_for_the_list(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    browser.set_size(360, 740, true).await;
    let deadlocks = |count: usize, since: u64| {
        format!(
            "change({{ deadlocks: Array.from({{ length: {count} }}, (_, cycle) => ({{ certain: true, waiters: Array.from({{ length: 8 }}, (_, member) =>
                ({{ ...holder(member), name: `orders:${{cycle}}:${{member}}`, since: new Date({since}).toISOString() }})) }})) }})"
        )
    };
    browser
        .eval("change({ set: Array.from({ length: 50 }, (_, id) => lock(id, `stock:${id}`, [holder(id)])) })")
        .await;
    let height = "[document.querySelector('#alerts').clientHeight / innerHeight <= 0.36, document.querySelector('main').clientHeight >= 300, document.querySelector('#grid').clientHeight >= 160]";
    for count in [1, 2, 3, 40] {
        browser.eval(&deadlocks(count, 1_000)).await;
        assert_eq!(browser.eval("document.querySelectorAll('.alert.deadlock').length").await, count);
        assert_eq!(browser.eval(height).await, json!([true, true, true]), "{count} deadlocks");
        // Many are read to users of screen readers as one sentence.
        let read = browser.eval("document.querySelectorAll('#alerts [role=alert]').length").await;
        assert_eq!(read, if count > 2 { 1 } else { count }, "{count} deadlocks");
    }
    assert_eq!(browser.text(".alert.deadlocks").await, "40 deadlocks");
    let first = "document.querySelector('.alert.deadlock').isFirst";
    browser.eval(&format!("({first} = true)")).await;
    browser.eval(&deadlocks(40, 2_000)).await;
    assert_eq!(browser.eval(first).await, true, "other times are not another alert");
    browser.eval("change({ deadlocks: [] })").await;
    assert_eq!(browser.eval("document.querySelector('#alerts').clientHeight").await, 0);
    for (search, text) in [
        ("denied", "Deadlocks are not known: "),
        ("partial", "The search for deadlocks was not complete: "),
        ("complete", ""),
    ] {
        browser.eval(&format!("change({{ deadlock_search: '{search}' }})")).await;
        let note = browser.text("#alerts").await;
        assert!(note.starts_with(text) && note.is_empty() == text.is_empty(), "{note}");
    }
}

async fn a_lock_that_was_not_reached_is_not_called_free(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    let empty = async |text: &str| assert_eq!(browser.text(".empty").await, text);
    empty("No lock is held.").await;
    browser.eval("change({ complete: false })").await;
    empty("No lock was found, and the list is not complete.").await;
    browser.go("#/clients").await;
    browser
        .until("document.querySelector('.clients .none')?.textContent.startsWith('No client was found')")
        .await;
    browser.go("#/client/07070707-1707-4707-8707-070707070707").await;
    browser.until("document.querySelector('.client-page .facts-line')?.textContent.includes('not among those that were found')").await;
    let cards = "[...document.querySelectorAll('.client-page .none')].every((none) => none.textContent.endsWith('The list of locks is not complete.'))";
    assert_eq!(browser.eval(cards).await, true);
    browser.go("#/lock/orders").await;
    let state = "document.querySelector('.lock-page .facts-line').textContent";
    let not_reached = format!(
        "document.querySelector('.lock-page') && {state}.includes('not among those that were found, and the list is not complete')"
    );
    browser.until(&not_reached).await;
    browser.eval("change({})").await;
    assert_eq!(browser.eval(state).await, "This lock is not held.");
    browser.eval("change({ set: [lock(1, 'orders', [holder(1)])], complete: false })").await;
    assert_eq!(browser.text(".state").await, "held", "it was found");
    browser.eval("change({ gone: [1], complete: false })").await;
    assert_eq!(browser.text(".state").await, "not reached");
    assert_eq!(browser.text(".lock-page .card .none").await, "Not known.");
    browser.eval("change({})").await;
    assert_eq!(browser.text(".state").await, "free");
    assert_eq!(browser.text(".lock-page .card .none").await, "No holder.");
}

async fn a_list_without_news_is_not_live(fixture: Fixture) {
    let (_dashboard, browser) = open_with(&fixture, &[]).await;
    browser.eval("(source.close(), true)").await;
    let text = "document.querySelector('#connection-text').textContent";
    browser.until(&format!("{text}.startsWith('Late – as of ') && {text}.endsWith('s ago')")).await;
    browser.eval("change({})").await;
    browser.until(&format!("{text} === 'Live'")).await;
}

async fn renewals_build_nothing_again(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    let renewed = |lease: u64, since: u64| {
        format!(
            "change({{ set: [{{ ...lock(1, 'orders', [holder(1, {{ ttl_ms: {lease}, since: new Date(Date.now() - {since}).toISOString() }})]), waiters: [{{ ...holder(2), since: new Date(Date.now() - {since}).toISOString(), time_left_ms: {lease} }}] }}] }})"
        )
    };
    browser.eval(&renewed(30_000, 60_000)).await;
    for hash in ["#/lock/orders", "#/client/07070707-1707-4707-8707-070707070707"] {
        browser.go(hash).await;
        browser.until("document.querySelector('.people a') !== null").await;
        browser
            .eval("document.querySelectorAll('.people a').forEach((link) => { link.isFirst = true; })")
            .await;
        let times = "[document.querySelector('.people .age').textContent, document.querySelector('.people .lease-text').textContent]";
        browser.eval("(document.querySelector('.people a').focus(), true)").await;
        let text = browser.eval(&format!("({}, {times}.join())", renewed(20_500, 180_000))).await;
        assert_eq!(text, "3m,20s");
        browser.eval("change({ leases: [[1, 9_500, 30_000]] })").await;
        let kept = "[...document.querySelectorAll('.people a')].map((link) => link.isFirst === true)";
        assert_eq!(browser.eval(kept).await, json!([true, true]), "{hash}");
        assert_eq!(browser.eval("document.activeElement.isFirst").await, true);
        browser.eval(&renewed(30_000, 60_000)).await;
        // The focus is not lost with the element that has it.
        browser.eval("change({ gone: [1] })").await;
        assert_eq!(browser.eval("document.activeElement.tagName").await, "H2", "{hash}");
        browser.eval(&renewed(30_000, 60_000)).await;
    }
}

async fn a_busy_lock_has_its_history_on_a_slow_link(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    browser.eval("(window.isHeld = (url) => url.startsWith('/api/holds/'), true)").await;
    browser.go("#/lock/orders").await;
    browser.until("replies.length === 1").await;
    let another = "change({ set: [lock(1, 'orders', [holder(1)])] })";
    for _ in 0..3 {
        browser.eval(another).await;
    }
    let hold = "{ ...holder(1), from_ms: Date.now() - 5_000, is_older: false, is_held: true, until_ms: null, waited_ms: null }";
    assert_eq!(browser.eval("replies.length").await, 1, "one request at a time");
    browser.eval(&format!("(replies[0].done([{hold}]), true)")).await;
    // The lock differs since: its response is shown all the same, and one more is requested.
    browser
        .until("document.querySelectorAll('.lock-page tbody tr').length === 1 && replies.length === 2")
        .await;
    browser.eval("(replies[1].failed(new Error('no reply')), true)").await;
    browser.eval(another).await;
    browser.until("replies.length === 3").await;
    browser.eval(&format!("(replies[2].done([{hold}, {hold}]), true)")).await;
    browser.until("document.querySelectorAll('.lock-page tbody tr').length === 2").await;
    assert_eq!(browser.eval("replies.length").await, 3, "nothing is different");
}

async fn the_selection_is_a_name(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    browser.eval("snapshot([lock(1, 'a', [holder(1)]), lock(2, 'b', [holder(2)])])").await;
    browser.click("#search").await;
    browser.keys("\u{e015}\u{e015}").await;
    let selected = format!(
        "{NAMES}.filter((_, index) => document.querySelectorAll('.spacer .row')[index].ariaSelected === 'true').join()"
    );
    assert_eq!(browser.eval(&selected).await, "b");
    // Another process of the server has other ids.
    browser.eval("snapshot([lock(2, 'a', [holder(1)]), lock(1, 'b', [holder(2)])])").await;
    assert_eq!(browser.eval(&selected).await, "b");
}

async fn a_click_opens_the_lock_that_was_pressed(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    let mouse = async |event: &str, at: &serde_json::Value| {
        let event = json!({ "type": event, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
        browser.devtools("Input.dispatchMouseEvent", event).await;
    };
    for cell in [".name", ".c-kind"] {
        browser.eval("snapshot(['a', 'b', 'c'].map((name, id) => lock(id, name, [holder(id)])))").await;
        let middle = format!(
            "((box) => [box.x + 5, box.y + box.height / 2])(document.querySelectorAll('.spacer .row')[1].querySelector('{cell}').getBoundingClientRect())"
        );
        let at = browser.eval(&middle).await;
        mouse("mousePressed", &at).await;
        // The next lock is there now.
        browser.eval("change({ gone: [0] })").await;
        assert_eq!(browser.eval(&format!("{NAMES}.join()")).await, "b,c");
        mouse("mouseReleased", &at).await;
        assert_eq!(browser.eval("location.hash").await, "", "{cell}");
        mouse("mousePressed", &at).await;
        mouse("mouseReleased", &at).await;
        browser.until("location.hash === '#/lock/c'").await;
        browser.eval("(history.back(), true)").await;
        browser.until("location.hash === '' && document.querySelector('.spacer') !== null").await;
    }
}

async fn what_is_scrolled_stays_where_it_is(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    browser.set_size(200, 740, true).await;
    browser.eval("(window.isHeld = (url) => url.startsWith('/api/holds/'), true)").await;
    let held_by = |pid: u32| {
        format!(
            "change({{ set: [{{ ...lock(1, 'orders', [holder({pid}, {{ label: 'x'.repeat(60) }})]), waiters: [holder(9)] }}] }})"
        )
    };
    browser.eval(&held_by(1)).await;
    browser.go("#/lock/orders").await;
    let holds = |reply: u32, count: u32| {
        format!(
            "(replies[{reply}].done(Array.from({{ length: {count} }}, (_, pid) => ({{ ...holder(pid, {{ label: 'x'.repeat(60) }}), from_ms: 1_000 * pid, is_older: false, is_held: false, until_ms: 1_000 * pid + 500, waited_ms: null }}))), true)"
        )
    };
    browser.until("replies.length === 1").await;
    browser.eval(&holds(0, 1)).await;
    browser.until("document.querySelectorAll('.lock-page .scroll').length === 2").await;
    let state = "[...document.querySelectorAll('.lock-page .scroll')].map((box) => [box.isFirst === true, box.scrollLeft, box === document.activeElement])";
    for (index, last) in [(0, 1), (1, 2)] {
        browser.eval("document.querySelectorAll('.lock-page .scroll').forEach((box) => { box.isFirst = true; box.scrollLeft = 20; })").await;
        browser
            .eval(&format!("(document.querySelectorAll('.lock-page .scroll')[{index}].focus(), true)"))
            .await;
        browser.eval(&held_by(last + 1)).await;
        browser.until(&format!("replies.length === {}", last + 1)).await;
        browser.eval(&holds(last, last + 1)).await;
        browser
            .until(&format!("document.querySelectorAll('.lock-page tbody tr').length === {}", last + 1))
            .await;
        assert_eq!(browser.eval(state).await, json!([[false, 20, index == 0], [false, 20, index == 1]]));
    }
}

async fn findings_stay_when_the_checks_fail_and_have_their_age(fixture: Fixture) {
    let (_dashboard, browser) = open(&fixture).await;
    browser.eval("(window.isHeld = (url) => url === '/api/doctor', true)").await;
    browser.go("#/doctor").await;
    browser.until("replies.length === 1").await;
    let report = "{ at: Date.now() - 7_230_000, all: false, servers: [{ address: 'cache:6379', latency_us: 200 }], findings: [{ level: 'warning', topic: 'memory', server: null, text: 'no limit' }] }";
    browser.eval(&format!("(replies[0].done({report}), true)")).await;
    let is_shown = "document.querySelectorAll('.doctor .findings li').length === 1 && document.querySelectorAll('.doctor tbody tr').length === 1";
    browser.until(is_shown).await;
    let ages =
        "[...document.querySelectorAll('.doctor .card .hint .age')].map((age) => age.textContent).join()";
    assert_eq!(browser.eval(ages).await, "2h,2h");
    assert_eq!(browser.text("#doctor-badge").await, "1, 2h ago");
    browser.click(".doctor button").await;
    browser.until("replies.length === 2").await;
    browser.eval("(replies[1].failed(new Error('no reply')), true)").await;
    let failed = "document.querySelectorAll('.doctor .card .outcome.failed').length === 2";
    browser.until(&format!("{failed} && {is_shown}")).await;
    assert_eq!(browser.text("#doctor-badge").await, "1, 2h ago");
    browser.click(".doctor button").await;
    browser.until("replies.length === 3").await;
    browser.eval(&format!("(replies[2].done({{ ...{report}, at: Date.now() }}), true)")).await;
    browser
        .until(&format!(
            "{is_shown} && !({failed}) && document.querySelector('#doctor-badge').textContent === '1'"
        ))
        .await;
}
