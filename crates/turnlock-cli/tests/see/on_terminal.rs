//! What is other on a terminal: colours, widths, the question, the live table.

use unicode_width::UnicodeWidthStr;

use crate::ground::Ground;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    colours_are_for_terminals_that_want_them,
    no_line_is_wider_than_the_terminal,
    the_question_is_asked_and_obeyed,
    who_was_not_shown_keeps_the_lock,
    the_table_lives_and_leaves_the_terminal_as_it_was,
    a_bar_shows_progress,
];

async fn colours_are_for_terminals_that_want_them(ground: Ground) {
    let client = ground.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let (code, text) = Terminal::start(ground.program(&["ls"]), 80).end().await;
    assert!(code == Some(0) && text.contains("\u{1b}["), "{text:?}");
    for (variable, value) in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        let program = ground.program(&["ls"]).with(variable, value);
        let (code, text) = Terminal::start(program, 80).end().await;
        assert!(
            code == Some(0) && text.contains("orders") && !text.contains('\u{1b}'),
            "{variable}: {text:?}"
        );
    }
}

async fn no_line_is_wider_than_the_terminal(ground: Ground) {
    let client = ground.client("holder").await;
    let mut guards = Vec::new();
    for name in ["a".repeat(300), "注文".repeat(40), "\u{1b}[2J".repeat(30), "b".to_owned()] {
        guards.push(client.lock(&name).lock().await.unwrap());
    }
    for columns in [30, 60, 120] {
        let program = ground.program(&["ls"]).with("NO_COLOR", "1");
        let (_, text) = Terminal::start(program, columns).end().await;
        assert_eq!(text.lines().count(), 1 + guards.len(), "{text}");
        assert!(text.lines().all(|line| line.width() <= columns.into()), "{columns}: {text}");
    }
}

async fn the_question_is_asked_and_obeyed(ground: Ground) {
    let client = ground.client("holder").await;
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    for (answer, code) in [("n\n", 1), ("\n", 1), ("maybe\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::start(ground.program(&["unlock", "--force", "orders"]), 80);
        terminal.shows("[y/N]").await;
        assert!(terminal.text().contains(guard.owner_id().as_str()), "{}", terminal.text());
        assert!(lock.is_locked().await.unwrap());
        terminal.type_in(answer);
        let (ended, text) = terminal.end().await;
        assert_eq!(ended, Some(code), "{text}");
        assert_eq!(lock.is_locked().await.unwrap(), code == 1, "{text}");
    }
}

async fn who_was_not_shown_keeps_the_lock(ground: Ground) {
    let lock = ground.client("holder").await.lock("orders");
    let first = lock.lock().await.unwrap();
    let mut terminal = Terminal::start(ground.program(&["unlock", "--force", "orders"]), 80);
    terminal.shows("[y/N]").await;
    first.unlock().await.unwrap();
    let second = lock.lock().await.unwrap();
    terminal.type_in("y\n");
    let (ended, text) = terminal.end().await;
    assert_eq!(ended, Some(1), "{text}");
    second.unlock().await.unwrap();
}

async fn the_table_lives_and_leaves_the_terminal_as_it_was(ground: Ground) {
    let client = ground.client("holder").await;
    let guard = client.lock("first").lock().await.unwrap();
    let terminal = Terminal::start(ground.program(&["watch", "--interval", "50ms"]), 80);
    terminal.shows("first").await;
    guard.unlock().await.unwrap();
    let _guard = client.lock("second").lock().await.unwrap();
    terminal.shows("second").await;
    terminal.signal("-INT").await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, Some(130), "{text:?}");
    assert!(text.starts_with("\u{1b}[?1049h\u{1b}[?25l"), "{text:?}");
    assert!(text.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{text:?}");
}

async fn a_bar_shows_progress(ground: Ground) {
    let terminal = Terminal::start(ground.program(&["bench", "--time", "1", "--tasks", "2"]), 80);
    terminal.shows("concurrent pairs").await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("pairs/s") && text.contains("p99.9"), "{text}");
}
