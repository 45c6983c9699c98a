//! The keys of `watch` on a terminal.

use std::time::Duration;

use turnlock::{Client, Guard};

use crate::fixture::Fixture;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    keys_sort_the_list,
    a_filter_narrows_the_list_until_esc,
    keys_move_the_selection,
    enter_shows_all_of_a_lock,
    a_lock_is_unlocked_after_the_word_yes,
    a_declined_unlock_releases_nothing,
    an_owner_that_was_not_shown_stays,
    a_released_lock_is_not_unlocked,
    all_shown_readers_are_unlocked,
    space_pauses_the_view,
    the_help_lists_the_keys,
    pasted_text_is_no_command,
    options_of_a_list_select_and_sort,
];

const UP: &str = "\u{1b}[A";
const DOWN: &str = "\u{1b}[B";
const END: &str = "\u{1b}[F";
const HOME: &str = "\u{1b}[H";
const PAGE_UP: &str = "\u{1b}[5~";
const PAGE_DOWN: &str = "\u{1b}[6~";
const ESC: &str = "\u{1b}";
const ENTER: &str = "\r";

fn watch(fixture: &Fixture, arguments: &[&str]) -> Terminal {
    let arguments = [&["watch", "--interval", "50ms"], arguments].concat();
    Terminal::start(fixture.program(&arguments).in_own_group(), 80)
}

/// The names in the list, and the selected one. Names here have no spaces.
fn listed(lines: &[String]) -> (Vec<&str>, Option<&str>) {
    let rows = &lines[2..lines.len() - 1];
    // A question or the help is no list.
    let rows = if lines[1].starts_with("  NAME") { rows } else { &[] };
    let names = rows.iter().filter_map(|line| line.get(2..)?.split_whitespace().next()).collect();
    let selected = rows.iter().find_map(|line| line.strip_prefix("> ")?.split_whitespace().next());
    (names, selected)
}

async fn lists(terminal: &Terminal, names: &[&str], selected: &str) {
    let what = format!("the list is {names:?}, and {selected} is selected");
    terminal.until(&what, |lines| listed(lines) == (names.to_vec(), Some(selected))).await;
}

/// Three locks: by name a b c, by lease b c a.
async fn three(client: &Client) -> Vec<Guard> {
    let mut guards = Vec::new();
    for (name, lease) in [("a", 90), ("b", 50), ("c", 70)] {
        let lock = client.fair_lock(name).with_lease(Duration::from_secs(lease));
        guards.push(lock.lock().await.unwrap());
    }
    guards
}

async fn keys_sort_the_list(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guards = three(&client).await;
    let waiter = client.fair_lock("b");
    let waiter = tokio::spawn(async move { waiter.lock().await });
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["a", "b", "c"], "a").await;
    terminal.type_in("t");
    lists(&terminal, &["b", "c", "a"], "a").await;
    terminal.type_in("w");
    lists(&terminal, &["b", "a", "c"], "a").await;
    terminal.type_in("n");
    lists(&terminal, &["a", "b", "c"], "a").await;
    for order in ["by ttl", "by waiters", "by age", "by name"] {
        terminal.type_in("s");
        terminal.until(order, |lines| lines[0].contains(order)).await;
    }
    terminal.type_in("a");
    terminal.displays("by age").await;
    waiter.abort();
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn a_filter_narrows_the_list_until_esc(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let other = fixture.client("importer-7").await;
    let _first = client.lock("orders").lock().await.unwrap();
    let _second = client.lock("prices").lock().await.unwrap();
    let _third = other.lock("stock").lock().await.unwrap();
    fixture.until_identified(&[&client, &other]).await;
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["orders", "prices", "stock"], "orders").await;
    terminal.type_in("/ric");
    lists(&terminal, &["prices"], "prices").await;
    let lines = terminal.displays("/ric_").await;
    assert!(lines[0].starts_with("1 of 3 locks  /ric  by name"), "{lines:#?}");
    terminal.type_in("\u{7f}\u{7f}\u{7f}importer-7");
    lists(&terminal, &["stock"], "stock").await;
    terminal.type_in(ENTER);
    terminal.displays("?: help").await;
    assert!(terminal.lines()[0].contains("/importer-7"), "the filter stays: {:#?}", terminal.lines());
    terminal.type_in(ESC);
    lists(&terminal, &["orders", "prices", "stock"], "stock").await;
    terminal.type_in("/q");
    terminal.until("nothing matches", |lines| lines[0].starts_with("0 of 3 locks  /q")).await;
    terminal.type_in(ESC);
    lists(&terminal, &["orders", "prices", "stock"], "orders").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn keys_move_the_selection(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let mut guards = Vec::new();
    for number in 0..60 {
        guards.push(client.lock(&format!("lock-{number:02}")).lock().await.unwrap());
    }
    let mut terminal = watch(&fixture, &[]);
    // 21 rows are visible.
    for (keys, first, selected) in [
        ("", 0, 0),
        (DOWN, 0, 1),
        ("j", 0, 2),
        (UP, 0, 1),
        ("k", 0, 0),
        (PAGE_DOWN, 1, 21),
        (END, 39, 59),
        (PAGE_UP, 38, 38),
        (HOME, 0, 0),
        ("G", 39, 59),
        ("g", 0, 0),
    ] {
        terminal.type_in(keys);
        let expected: Vec<_> = (first..first + 21).map(|number| format!("lock-{number:02}")).collect();
        let names: Vec<_> = expected.iter().map(String::as_str).collect();
        lists(&terminal, &names, &format!("lock-{selected:02}")).await;
    }
    assert!(terminal.lines()[0].starts_with("60 of 60 locks"), "{:#?}", terminal.lines());
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn enter_shows_all_of_a_lock(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _first = client.lock("a").lock().await.unwrap();
    let guard = client.fenced_lock("b").lock().await.unwrap();
    fixture.until_identified(&[&client]).await;
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["a", "b"], "a").await;
    terminal.type_in(&format!("{DOWN}{ENTER}"));
    let owner = format!("        owner {}", guard.owner_id().as_str());
    let lines = terminal.displays(&owner).await;
    let token = format!("token   {}", guard.token().unwrap());
    assert!(lines.contains(&"name    b".to_owned()) && lines.contains(&token), "{lines:#?}");
    guard.unlock().await.unwrap();
    terminal.displays("held by none").await;
    terminal.type_in(ESC);
    lists(&terminal, &["a"], "a").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn a_lock_is_unlocked_after_the_word_yes(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _other = client.lock("a").lock().await.unwrap();
    for key in ["u", "x", "\ru"] {
        let guard = client.lock("b").lock().await.unwrap();
        fixture.until_identified(&[&client]).await;
        let mut terminal = watch(&fixture, &[]);
        lists(&terminal, &["a", "b"], "a").await;
        terminal.type_in(&format!("j{key}"));
        let lines = terminal.displays("Type yes and Enter").await.concat();
        assert!(lines.contains("Unlock b by force?") && lines.contains("(holder)"), "{lines}");
        assert!(lines.contains(guard.owner_id().as_str()) && lines.contains("not notified"), "{lines}");
        terminal.type_in(&format!("yes{ENTER}"));
        terminal.displays("b was unlocked by force").await;
        assert!(!client.lock("b").is_locked().await.unwrap());
        lists(&terminal, &["a"], "a").await;
        terminal.type_in("q");
        assert_eq!(terminal.end_restored().await, Some(0));
    }
    assert!(client.lock("a").is_locked().await.unwrap());
}

async fn a_declined_unlock_releases_nothing(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["orders"], "orders").await;
    for reply in [ESC, ENTER, "y\r", "n\r", "YES\r", "yess\r", "yes\u{1b}", "q\r"] {
        terminal.type_in("u");
        terminal.displays("Type yes and Enter").await;
        terminal.type_in(reply);
        terminal.displays("orders was not unlocked").await;
        assert!(client.lock("orders").is_locked().await.unwrap(), "{reply:?}");
        terminal.type_in("n");
        terminal.displays("?: help").await;
    }
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn an_owner_that_was_not_shown_stays(fixture: Fixture) {
    let lock = fixture.client("holder").await.lock("orders");
    let first = lock.lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["orders"], "orders").await;
    terminal.type_in("u");
    terminal.displays("Type yes and Enter").await;
    first.unlock().await.unwrap();
    let second = lock.lock().await.unwrap();
    terminal.type_in("yes\r");
    terminal.displays("orders was released meanwhile, or has another holder now").await;
    assert!(lock.is_locked().await.unwrap());
    second.unlock().await.unwrap();
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn a_released_lock_is_not_unlocked(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guard = client.lock("orders").lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["orders"], "orders").await;
    terminal.type_in(" ");
    terminal.displays("paused").await;
    guard.unlock().await.unwrap();
    terminal.type_in("u");
    terminal.displays("orders is not held").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn all_shown_readers_are_unlocked(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let lock = client.read_write_lock("prices");
    let first = lock.reader().lock().await.unwrap();
    let second = lock.reader().lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    terminal.displays("2 holders: ").await;
    terminal.type_in("u");
    let lines = terminal.displays("Type yes and Enter").await.concat();
    assert!([&first, &second].iter().all(|guard| lines.contains(guard.owner_id().as_str())), "{lines}");
    terminal.type_in("yes\r");
    terminal.displays("prices was unlocked by force").await;
    assert!(lock.inspect().await.unwrap().holders.is_empty());
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn space_pauses_the_view(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _first = client.lock("first").lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["first"], "first").await;
    terminal.type_in(" ");
    terminal.displays("1 of 1 locks, paused, ").await;
    let _second = client.lock("second").lock().await.unwrap();
    // Many intervals.
    terminal.displays("paused, 2s old").await;
    assert_eq!(listed(&terminal.lines()).0, ["first"]);
    terminal.type_in(" ");
    lists(&terminal, &["first", "second"], "first").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn the_help_lists_the_keys(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["orders"], "orders").await;
    terminal.type_in("?");
    let lines = terminal.displays("Ctrl-C").await.join("\n");
    assert!(lines.contains("u, x             unlock the selected lock by force"), "{lines}");
    terminal.type_in(ESC);
    lists(&terminal, &["orders"], "orders").await;
    terminal.type_in("?q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn pasted_text_is_no_command(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let mut terminal = watch(&fixture, &[]);
    lists(&terminal, &["orders"], "orders").await;
    terminal.type_in("\u{1b}[200~uyes\rq\u{1b}[201~/");
    terminal.type_in("\u{1b}[200~ord\u{1b}[31mq\u{1b}[201~");
    let lines = terminal.displays(r"/ord\u{1b}[31mq_").await;
    assert!(lines[0].starts_with("0 of 1 locks"), "{lines:#?}");
    assert!(client.lock("orders").is_locked().await.unwrap());
    terminal.type_in("\u{1b}");
    lists(&terminal, &["orders"], "orders").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn options_of_a_list_select_and_sort(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let other = fixture.client("importer-7").await;
    let _guards = three(&client).await;
    let _other = other.lock("other").lock().await.unwrap();
    fixture.until_identified(&[&client, &other]).await;
    let mut terminal = watch(&fixture, &["--sort", "ttl", "--holder", "(hol", "--limit", "100"]);
    // Names of clients have no parentheses of their own.
    terminal.displays("0 of 4 locks").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
    let mut terminal = watch(&fixture, &["--sort", "ttl", "--holder", "holder"]);
    lists(&terminal, &["b", "c", "a"], "b").await;
    let lines = terminal.lines();
    assert!(lines[0].starts_with("3 of 4 locks  by ttl  holder holder"), "{lines:#?}");
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}
