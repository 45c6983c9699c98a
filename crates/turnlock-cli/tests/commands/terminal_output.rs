//! Output on a terminal: colours, widths, the confirmation prompt.

use unicode_width::UnicodeWidthStr;

use crate::fixture::Fixture;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    colours_are_used_unless_disabled,
    no_line_is_wider_than_the_terminal,
    eighty_columns_show_the_whole_name_and_holder,
    unlock_asks_for_confirmation,
    a_holder_that_was_not_shown_is_not_unlocked,
    bench_shows_a_progress_bar,
];

async fn colours_are_used_unless_disabled(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let (code, text) = Terminal::start(fixture.program(&["ls"]), 80).end().await;
    assert!(code == Some(0) && text.contains("\u{1b}["), "{text:?}");
    for (variable, value) in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        let program = fixture.program(&["ls"]).with_env(variable, value);
        let (code, text) = Terminal::start(program, 80).end().await;
        assert!(
            code == Some(0) && text.contains("orders") && !text.contains('\u{1b}'),
            "{variable}: {text:?}"
        );
    }
}

async fn no_line_is_wider_than_the_terminal(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let mut guards = Vec::new();
    for name in ["a".repeat(300), "注文".repeat(40), "\u{1b}[2J".repeat(30), "b".to_owned()] {
        guards.push(client.lock(&name).lock().await.unwrap());
    }
    for columns in [30, 60, 120] {
        let program = fixture.program(&["ls"]).with_env("NO_COLOR", "1");
        let (_, text) = Terminal::start(program, columns).end().await;
        assert_eq!(text.lines().count(), 1 + guards.len(), "{text}");
        assert!(text.lines().all(|line| line.width() <= columns.into()), "{columns}: {text}");
    }
}

async fn eighty_columns_show_the_whole_name_and_holder(fixture: Fixture) {
    let client = fixture.client("deploy").await;
    let name = "orders:eu-central-1:nightly";
    let guard = client.fenced_lock(name).lock().await.unwrap();
    fixture.until_identified(&[&client]).await;
    let holder = format!(":{} (deploy)", std::process::id());
    let program = || fixture.program(&["ls"]).with_env("NO_COLOR", "1");
    let (_, text) = Terminal::start(program(), 80).end().await;
    assert!(text.contains(name) && text.contains(&holder) && !text.contains("TOKEN"), "{text}");
    let wide = fixture.program(&["ls", "--wide"]).with_env("NO_COLOR", "1");
    let (_, text) = Terminal::start(wide, 80).end().await;
    assert!(text.contains(name) && text.contains(&guard.token().unwrap().to_string()), "{text}");
}

async fn unlock_asks_for_confirmation(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    for (reply, code) in [("n\n", 1), ("\n", 1), ("maybe\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::start(fixture.program(&["unlock", "--force", "orders"]), 80);
        terminal.shows("[y/N]").await;
        assert!(terminal.text().contains(guard.owner_id().as_str()), "{}", terminal.text());
        assert!(lock.is_locked().await.unwrap());
        terminal.type_in(reply);
        let (ended, text) = terminal.end().await;
        assert_eq!(ended, Some(code), "{text}");
        assert_eq!(lock.is_locked().await.unwrap(), code == 1, "{text}");
    }
}

async fn a_holder_that_was_not_shown_is_not_unlocked(fixture: Fixture) {
    let lock = fixture.client("holder").await.lock("orders");
    let first = lock.lock().await.unwrap();
    let mut terminal = Terminal::start(fixture.program(&["unlock", "--force", "orders"]), 80);
    terminal.shows("[y/N]").await;
    first.unlock().await.unwrap();
    let second = lock.lock().await.unwrap();
    terminal.type_in("y\n");
    let (ended, text) = terminal.end().await;
    assert_eq!(ended, Some(1), "{text}");
    second.unlock().await.unwrap();
}

async fn bench_shows_a_progress_bar(fixture: Fixture) {
    let terminal = Terminal::start(fixture.program(&["bench", "--time", "1", "--tasks", "2"]), 80);
    terminal.shows("concurrent pairs").await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("x ping") && text.contains("p99.9"), "{text}");
}
