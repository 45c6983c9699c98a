//! The modules of the page, called by themselves in the browser.

use serde_json::json;

use crate::browser::Browser;
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![the_page_is_bounded_keeps_its_order_and_connects_once];

/// Imports what the modules export, and a lock and a message for the model.
const SETUP: &str = "Promise.all(['model', 'connection', 'list'].map((name) => import(`/${name}.js`))).then(async (modules) => {
    const { Model, Connection, LockList } = Object.assign({}, ...modules);
    const lock = (id, name, ttl, holders = []) => ({ id, name, kind: 'lock', ttl_ms: ttl, lease_ms: ttl, hold_seen_ms: holders.map(() => 1), holders, waiters: [], queue: [] });
    const snapshot = (locks) => ({ at: 1_000, now: 5_000, outage: null, complete: true, locks, rates: [], deadlocks: [] });
    const change = (at, parts) => ({ at, complete: true, grants: 0, set: [], gone: [], leases: [], ...parts });
";

async fn the_page_is_bounded_keeps_its_order_and_connects_once(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(0).await;
    locks_that_are_free_for_long_are_forgotten(&browser).await;
    two_connections_at_once_are_one(&browser).await;
    leases_end_when_the_store_says(&browser).await;
    locks_are_in_the_chosen_order(&browser).await;
    a_stuck_holder_is_named_as_such(&browser).await;
}

async fn run(browser: &Browser, script: &str) -> serde_json::Value {
    browser.eval(&format!("{SETUP}{script}}})")).await
}

async fn locks_that_are_free_for_long_are_forgotten(browser: &Browser) {
    let script = "
        const model = new Model();
        model.applySnapshot(snapshot([lock(0, 'first', 1), lock(1, 'held', 1)]));
        model.applyChange(change(2_000, { gone: [0] }));
        const isKnown = model.names.has('first');
        for (let id = 2; id < 5_000; id += 1) {
            model.applyChange(change(id * 1_000, { set: [lock(id, `lock ${id}`, 1)] }));
            model.applyChange(change(id * 1_000, { gone: [id] }));
        }
        // Locked again, it is not forgotten with its last end.
        model.applyChange(change(9_000_000, { set: [lock(4_999, 'lock 4999', 1)] }));
        const free = Array.from({ length: 300 }, (_, index) => lock(6_000 + index, `other ${index}`, 1));
        model.applyChange(change(9_000_000, { set: free }));
        model.applyChange(change(9_000_000, { gone: free.map(({ id }) => id) }));
        return [isKnown, model.names.size, model.locks.size, model.names.has('held'), model.names.has('lock 4999')];
    ";
    assert_eq!(run(browser, script).await, json!([true, 202, 2, true, true]));
}

async fn leases_end_when_the_store_says(browser: &Browser) {
    let script = "
        const model = new Model();
        const reader = { owner: 'a:1', mode: 'read', ttl_ms: 9_000, since: null };
        model.applySnapshot(snapshot([lock(1, 'a', 9_000, [reader]), lock(2, 'b', 8_000), lock(3, 'c', 7_000)]));
        const clock = Math.round((model.now() - 5_000) / 1_000);
        const list = new LockList(model);
        document.getElementById('main').replaceChildren(list.element);
        list.opened();
        list.order.value = 'ttl';
        list.order.dispatchEvent(new Event('change'));
        const names = () => [...list.element.querySelectorAll('.spacer .row .name')].map((name) => name.textContent).join('');
        const before = names();
        model.applyChange(change(4_000, { leases: [[3, 30_000, 30_000]] }));
        list.update();
        return [clock, before, names(), model.names.get('a').holders[0].ends];
    ";
    assert_eq!(run(browser, script).await, json!([0, "cba", "bac", 10_000]));
}

async fn locks_are_in_the_chosen_order(browser: &Browser) {
    let script = "
        const model = new Model();
        const person = (number, since) => ({ owner: `a:${number}`, mode: 'exclusive', ttl_ms: null, since: since && new Date(since).toISOString() });
        const waited = (id, name, since, count) => ({ ...lock(id, name, 9_000, [person(id, since)]), waiters: Array.from({ length: count }, (_, number) => person(10 + number, 1_000)) });
        model.applySnapshot(snapshot([waited(1, 'a', 3_000, 1), waited(2, 'b', null, 3), waited(3, 'c', 1_000, 0), waited(4, 'd', 2_000, 3)]));
        const list = new LockList(model);
        document.getElementById('main').replaceChildren(list.element);
        list.opened();
        return ['age', 'waiters', 'name'].map((order) => {
            list.order.value = order;
            list.order.dispatchEvent(new Event('change'));
            return [...list.element.querySelectorAll('.spacer .row .name')].map((name) => name.textContent).join('');
        });
    ";
    assert_eq!(run(browser, script).await, json!(["cdab", "bdac", "abcd"]));
}

async fn a_stuck_holder_is_named_as_such(browser: &Browser) {
    let script = "
        const model = new Model();
        const holder = (stuck) => ({ owner: 'a:1', mode: 'exclusive', ttl_ms: null, since: null, host: 'web-1', pid: 42, label: 'importer', stuck });
        model.applySnapshot(snapshot([lock(1, 'a', 9_000, [holder(false), holder(true)]), lock(2, 'b', 9_000, [holder(false)])]));
        const list = new LockList(model);
        document.getElementById('main').replaceChildren(list.element);
        list.opened();
        list.order.value = 'name';
        list.order.dispatchEvent(new Event('change'));
        const texts = () => [...list.element.querySelectorAll('.spacer .c-holder')].map((cell) => cell.innerText.replaceAll('\\n', ' '));
        const before = texts();
        model.applyChange(change(4_000, { set: [lock(1, 'a', 9_000, [holder(false)])] }));
        list.update();
        return [before, texts()];
    ";
    let (stuck, not) = ("stuck web-1:42 (importer) and 1 more", "web-1:42 (importer)");
    assert_eq!(run(browser, script).await, json!([[stuck, not], [not, not]]));
}

async fn two_connections_at_once_are_one(browser: &Browser) {
    let script = "
        const sources = [];
        const Original = EventSource;
        window.EventSource = class extends Original {
            constructor(url) { super(url); sources.push(this); }
        };
        const live = Promise.withResolvers();
        const handlers = { session() {}, snapshot() {}, change() {}, outage() {}, login() {}, state: (state) => state === 'live' && live.resolve() };
        const connection = new Connection(handlers);
        await Promise.all([connection.open(), connection.open()]);
        await live.promise;
        return sources.filter((source) => source.readyState !== Original.CLOSED).length;
    ";
    assert_eq!(run(browser, script).await, 1);
}
