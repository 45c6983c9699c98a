//! The list of locks in the browser.

use turnlock::Client;

use crate::browser::Browser;
use crate::dashboard::Dashboard;
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![all_pages_follow_the_store, the_list_is_filtered_and_sorted];

pub(crate) const CLUSTER_CASES: &[Case] = cases![all_pages_follow_the_store];

pub(crate) const FILE_CASES: &[Case] = cases![
    the_page_reconnects_after_a_restart,
    a_restart_with_other_flags_changes_the_buttons,
    the_page_fits_a_phone,
    the_page_follows_the_colour_scheme,
    all_pages_work_with_the_keyboard,
    elements_have_roles_and_names,
    a_browser_asks_for_the_token_once,
];

pub(crate) const NAMES: &str =
    "[...document.querySelectorAll('.spacer .row .name')].map((name) => name.textContent)";
pub(crate) const ENTER: &str = "\u{e007}";
const DOWN: &str = "\u{e015}";
const TAB: &str = "\u{e004}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
const END: &str = "\u{e010}";

async fn all_pages_follow_the_store(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(0).await;
    assert_eq!(browser.text(".empty").await, "No lock is held.");
    let client = fixture.client("nightly report").await;
    let guard = client.lock("orders").lock().await.unwrap();
    let fair = client.fair_lock("deploy").lock().await.unwrap();
    // Not what a client locks for a moment when it connects.
    browser.until(&format!("{NAMES}.join() === 'deploy,orders'")).await;
    browser.until_locks(2).await;
    let pid = std::process::id();
    let holder = browser.text("[role=row][aria-rowindex='3'] .holder").await;
    assert!(holder.ends_with(&format!(":{pid} (nightly report)")), "{holder}");
    let lease = browser.text("[role=row][aria-rowindex='3'] .lease-text").await;
    assert!(lease.ends_with('s') && lease != "0s", "{lease}");
    let other = fixture.client("other").await;
    let lock = other.fair_lock("deploy");
    let waiting = tokio::spawn(async move { lock.lock().await });
    browser
        .until("document.querySelector(\"[role=row][aria-rowindex='2'] .waiters\").textContent === '1'")
        .await;
    let (slots, has_slots) = (other.semaphore("slots"), format!("{NAMES}.join() === 'deploy,orders,slots'"));
    let waiting_for_slots = tokio::spawn(async move { slots.acquire(1).await.map(drop) });
    let primaries = if fixture.url().contains("+cluster:") { 3 } else { 1 };
    the_other_pages_show_it(&browser, [&client, &other], primaries).await;
    // A semaphore has no holder: it is in the list for its waiter.
    browser.until(&has_slots).await;
    let waiters = "document.querySelector(\"[role=row][aria-rowindex='4'] .waiters\").textContent";
    assert_eq!(browser.eval(waiters).await, "1");
    assert_eq!(browser.text(".tile b").await, "2", "held locks");
    waiting_for_slots.abort();
    guard.unlock().await.unwrap();
    browser.until_locks(1).await;
    fair.unlock().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    browser.until("document.querySelector('.spacer .row .holder').textContent.endsWith('(other)')").await;
    drop(second);
    assert!(browser.console_errors().await.is_empty(), "{:?}", browser.console_errors().await);
}

/// The pages of a lock, of a client and of the doctor, of the lock `deploy` that a client holds and another one waits for.
async fn the_other_pages_show_it(browser: &Browser, [holder, waiter]: [&Client; 2], primaries: usize) {
    browser.go("#/lock/deploy").await;
    browser.until("document.querySelector('ul.people')?.textContent.includes('(nightly report)')").await;
    browser.until("document.querySelector('ol.people')?.textContent.includes('(other)')").await;
    browser.until("document.querySelectorAll('.graph .edge.wait').length === 1").await;
    let cards = "[...document.querySelectorAll('.client-page .card')].map((card) => [...card.querySelectorAll('.person')].map((name) => name.textContent).sort().join('+')).join()";
    browser.go(&format!("#/client/{}", holder.id())).await;
    browser.until(&format!("{cards} === 'deploy+orders,'")).await;
    browser.go(&format!("#/client/{}", waiter.id())).await;
    // Waits for the semaphore are announced after a second.
    browser.until(&format!("{cards} === ',deploy+slots'")).await;
    browser.go("#/doctor").await;
    let servers = "document.querySelectorAll('.doctor .findings').length === 1 && document.querySelectorAll('.doctor tbody tr').length";
    browser.until(&format!("({servers}) === {primaries}")).await;
    browser.go("#/").await;
}

async fn the_list_is_filtered_and_sorted(fixture: Fixture) {
    let (one, other) = (fixture.client("billing").await, fixture.client("search").await);
    let _guards = [
        one.lock("orders").lock().await.unwrap(),
        one.fenced_lock("stock").lock().await.unwrap(),
        other.lock("index").lock().await.unwrap(),
    ];
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(3).await;
    browser.click("#search").await;
    browser.keys("BILL").await;
    browser.until(&format!("{NAMES}.join() === 'orders,stock'")).await;
    assert_eq!(browser.text("#count").await, "2 of 3 locks");
    browser.keys("ing sto").await;
    browser.until(&format!("{NAMES}.join() === 'stock'")).await;
    browser.keys(ESCAPE).await;
    browser.until(&format!("{NAMES}.length === 3")).await;
    let choose = |id: &str, value: &str| {
        format!(
            "(document.getElementById('{id}').value = '{value}', document.getElementById('{id}').dispatchEvent(new Event('change')))"
        )
    };
    browser.eval(&choose("kind", "fenced-lock")).await;
    browser.until(&format!("{NAMES}.join() === 'stock'")).await;
    browser.eval(&choose("kind", "")).await;
    browser.until(&format!("{NAMES}.length === 3")).await;
    browser.click("#waiting").await;
    browser.until(&format!("{NAMES}.length === 0")).await;
    assert_eq!(browser.text(".empty").await, "No lock passes the filters.");
}

async fn the_page_reconnects_after_a_restart(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    let port = dashboard.address.port();
    assert_eq!(dashboard.stop("-TERM").await, Some(0));
    browser.until("document.querySelector('#connection').dataset.state !== 'live'").await;
    assert_eq!(browser.text(".spacer .row .name").await, "orders", "the list stays");
    let guard = client.lock("stock").lock().await.unwrap();
    let restarted = Dashboard::start(fixture.url(), port, &["--allow-unlock"]).await;
    browser.until_locks(2).await;
    // The page has the secret of the new process.
    browser.go("#/lock/stock").await;
    browser.click("button.danger").await;
    browser.until("document.querySelector('dialog').open").await;
    browser.keys("yes").await;
    browser.keys(ENTER).await;
    browser
        .until("document.querySelector('dialog .outcome').textContent.includes('unlocked by force')")
        .await;
    drop((guard, restarted));
}

async fn a_restart_with_other_flags_changes_the_buttons(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    for hash in ["#/lock/orders", "#/doctor"] {
        let mut dashboard = fixture.dashboard(&["--allow-unlock"]).await;
        let browser = Browser::open(&format!("{}{hash}", dashboard.url())).await;
        let port = dashboard.address.port();
        // Those that release a lock, and that runs the checks that lock names of their own.
        let has_button = "[...document.querySelectorAll('main button')].some((button) => button.matches('.danger') || button.textContent === 'Run all checks')";
        browser.until(has_button).await;
        for (flags, expected) in [(&[][..], false), (&["--allow-unlock"], true)] {
            assert_eq!(dashboard.stop("-TERM").await, Some(0));
            dashboard = Dashboard::start(fixture.url(), port, flags).await;
            browser.until(&format!("({has_button}) === {expected}")).await;
        }
    }
}

async fn the_page_fits_a_phone(fixture: Fixture) {
    let client = fixture.client("a label that is rather long for a phone").await;
    let name = "a-name-without-any-space-that-is-much-longer-than-a-phone-is-wide-0123456789";
    let _guards = [client.lock(name).lock().await.unwrap(), client.fair_lock("orders").lock().await.unwrap()];
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.set_size(360, 740, true).await;
    browser.until_locks(2).await;
    let hashes = [
        "#/".to_owned(),
        format!("#/lock/{name}"),
        "#/clients".to_owned(),
        format!("#/client/{}", client.id()),
        "#/doctor".to_owned(),
    ];
    for hash in hashes {
        browser.go(&hash).await;
        browser.until("document.querySelector('main').children.length === 1").await;
        let too_wide = browser
            .eval("[...document.querySelectorAll('body, main, main > *, .card, .row, .toolbar, .top')].filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5).map((element) => element.className)")
            .await;
        assert_eq!(too_wide, serde_json::json!([]), "{hash}");
        let overflow = browser.eval("[document.documentElement.scrollWidth, document.querySelector('main').scrollWidth].map((width) => width > innerWidth)").await;
        assert_eq!(overflow, serde_json::json!([false, false]), "{hash} scrolls sideways");
    }
}

async fn the_page_follows_the_colour_scheme(fixture: Fixture) {
    let dashboard = fixture.dashboard(&[]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(0).await;
    let mut backgrounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.set_scheme(scheme).await;
        // The sum of red, green and blue.
        let brightness = |element: &str, property: &str| {
            format!(
                "getComputedStyle(document.querySelector('{element}')).{property}.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)"
            )
        };
        let page = browser.eval(&brightness("body", "backgroundColor")).await.as_u64().unwrap();
        let text = browser.eval(&brightness("body", "color")).await.as_u64().unwrap();
        assert!(page.abs_diff(text) > 400, "{scheme}: {page} and {text}");
        backgrounds.push(page);
    }
    assert!(backgrounds[0] > 600 && backgrounds[1] < 150, "{backgrounds:?}");
}

async fn all_pages_work_with_the_keyboard(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let mut guards = Vec::new();
    for index in 0..100 {
        guards.push(client.lock(&format!("orders:{index:03}")).lock().await.unwrap());
    }
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(100).await;
    browser.keys("/").await;
    assert_eq!(browser.eval("document.activeElement.id").await, "search");
    browser.keys(DOWN).await;
    assert_eq!(browser.eval("document.activeElement.id").await, "grid");
    browser.keys(&[DOWN, DOWN, END].concat()).await;
    let active =
        "document.getElementById(document.getElementById('grid').getAttribute('aria-activedescendant'))";
    assert_eq!(browser.eval(&format!("{active}.querySelector('.name').textContent")).await, "orders:099");
    let is_visible = format!(
        "((row, grid) => row.top >= grid.top && row.bottom <= grid.bottom + 1)({active}.getBoundingClientRect(), document.getElementById('grid').getBoundingClientRect())"
    );
    assert_eq!(browser.eval(&is_visible).await, true);
    browser.keys(ENTER).await;
    browser.until("document.querySelector('h1.name')?.textContent === 'orders:099'").await;
    assert_eq!(browser.eval("document.activeElement.id").await, "main");
    // With Tab to the button, and through its dialog.
    browser.until("document.querySelector('button.danger') !== null").await;
    for _ in 0..20 {
        if browser.eval("document.activeElement.matches('button.danger')").await == true {
            break;
        }
        browser.keys(TAB).await;
    }
    browser.keys(ENTER).await;
    browser.until("document.querySelector('dialog').open").await;
    browser.keys(ESCAPE).await;
    browser.until("!document.querySelector('dialog').open").await;
    browser.until("document.activeElement.matches('button.danger')").await;
    browser.keys(ESCAPE).await;
    browser.until("document.activeElement.id === 'grid'").await;
    assert_eq!(browser.eval(&format!("{active}.querySelector('.name').textContent")).await, "orders:099");
    assert!(client.lock("orders:099").is_locked().await.unwrap());
}

/// Elements that can be used, and do not have a name for a screen reader.
const NAMELESS: &str = "[...document.querySelectorAll('a, button, input, select, [role=img], [role=grid], nav, dialog[open]')]
    .filter((element) => element.checkVisibility())
    .filter((element) => !(element.getAttribute('aria-label') || element.textContent.trim() || element.labels?.length
        || document.getElementById(element.getAttribute('aria-labelledby'))?.textContent))
    .map((element) => element.outerHTML.slice(0, 200))";

async fn elements_have_roles_and_names(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.fair_lock("orders").lock().await.unwrap();
    let dashboard = fixture.dashboard(&["--allow-unlock"]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until_locks(1).await;
    assert_eq!(browser.eval("document.documentElement.lang").await, "en");
    let row = "document.querySelector('[role=grid] [role=row] [role=gridcell]') !== null";
    assert_eq!(browser.eval(row).await, true);
    assert_eq!(
        browser.eval("document.querySelector('[role=grid]').getAttribute('aria-rowcount')").await,
        "2"
    );
    assert_eq!(browser.eval("document.querySelectorAll('[role=columnheader]').length").await, 6);
    for hash in ["#/", "#/lock/orders", "#/clients", &format!("#/client/{}", client.id()), "#/doctor"] {
        browser.go(hash).await;
        browser.until("document.querySelectorAll('main h1').length === 1").await;
        assert_eq!(browser.eval(NAMELESS).await, serde_json::json!([]), "{hash}");
        assert_eq!(
            browser.eval("document.querySelectorAll('nav [aria-current=page]').length").await,
            1,
            "{hash}"
        );
        let ids = "(([ids]) => ids.length === new Set(ids).size)([[...document.querySelectorAll('[id]')].map((element) => element.id)])";
        assert_eq!(browser.eval(ids).await, true, "{hash} has an id twice");
    }
    // What changed is read to those who do not see it.
    browser.go("#/").await;
    browser.click("#search").await;
    browser.keys("nothing").await;
    browser
        .until("document.querySelector('[role=status][aria-live=polite]').textContent === '0 locks shown'")
        .await;
    let tree = browser.devtools("Accessibility.getFullAXTree", serde_json::json!({})).await;
    let roles: Vec<_> =
        tree["nodes"].as_array().unwrap().iter().filter_map(|node| node["role"]["value"].as_str()).collect();
    for role in ["banner", "navigation", "main", "grid", "searchbox", "columnheader", "status"] {
        assert!(roles.contains(&role), "{role} in {roles:?}");
    }
}

async fn a_browser_asks_for_the_token_once(fixture: Fixture) {
    let token = fixture.file("token", "0123456789abcdef\n");
    let dashboard = fixture.dashboard(&["--token-file", &*token]).await;
    let browser = Browser::open(dashboard.url()).await;
    browser.until("document.activeElement.id === 'token'").await;
    browser.keys("wrong").await;
    browser.keys(ENTER).await;
    browser.until("document.querySelector('.outcome').textContent === 'This is not the token.'").await;
    browser.eval("(document.getElementById('token').value = '', true)").await;
    browser.keys("0123456789abcdef").await;
    browser.keys(ENTER).await;
    browser.until_locks(0).await;
    assert_eq!(browser.eval("document.cookie").await, "", "scripts cannot read the cookie");
    browser.eval("(location.reload(), true)").await;
    browser.until_locks(0).await;
    // Another process has another session, and needs the token again. Without it, no token is wrong.
    let port = dashboard.address.port();
    assert_eq!(dashboard.stop("-TERM").await, Some(0));
    let restarted = Dashboard::start(fixture.url(), port, &["--token-file", &*token]).await;
    browser.until("document.activeElement.id === 'token'").await;
    assert_eq!(restarted.stop("-TERM").await, Some(0));
    browser.keys("0123456789abcdef").await;
    browser.keys(ENTER).await;
    browser.until("document.querySelector('.outcome').textContent === 'The dashboard does not reply.'").await;
}
