//! The terminal of `watch`: its mode, its size, its signals, and what it shows of untrusted names.

use std::time::Duration;

use turnlock_testkit::eventually;

use crate::fixture::Fixture;
use crate::program::Program;
use crate::terminal::Terminal;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    the_list_follows_the_store,
    the_terminal_is_restored_however_watch_ends,
    the_terminal_is_restored_while_watch_is_stopped,
    a_mode_that_changed_during_a_stop_is_set_again,
    a_shell_stops_and_continues_watch,
    without_a_shell_watch_is_not_stopped,
    the_screen_follows_the_size_of_the_terminal,
    names_of_others_do_not_break_the_screen,
    no_colours_are_used_if_they_are_disabled,
    plain_output_and_other_input_have_no_screen,
];

/// Cases that need a server.
pub(crate) const REDIS_CASES: &[Case] = cases![
    an_outage_shows_the_last_known_state_and_its_age,
    the_terminal_is_restored_after_an_error,
    thousands_of_locks_are_listed,
];

const LIMIT: Duration = Duration::from_secs(20);

fn watch(fixture: &Fixture, columns: u16, rows: u16) -> Terminal {
    let program = fixture.program(&["watch", "--interval", "50ms", "--limit", "10000"]).in_own_group();
    Terminal::start_sized(program, columns, rows)
}

async fn is_taken(terminal: &Terminal) {
    eventually("the program has taken the terminal", LIMIT, || async { terminal.is_taken() }).await;
}

async fn is_restored(terminal: &Terminal) {
    eventually("the terminal is restored", LIMIT, || async { terminal.is_restored() }).await;
}

async fn the_list_follows_the_store(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guard = client.lock("first").lock().await.unwrap();
    let mut terminal = watch(&fixture, 80, 24);
    terminal.displays("> first").await;
    guard.unlock().await.unwrap();
    let _guard = client.lock("second").lock().await.unwrap();
    let lines = terminal.displays("> second").await;
    assert!(!lines.concat().contains("first"), "{lines:#?}");
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn the_terminal_is_restored_however_watch_ends(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    for (keys, signal, code) in [
        ("q", "", 0),
        ("\u{3}", "", 130),
        ("/q\u{3}", "", 130),
        ("", "-INT", 130),
        ("", "-TERM", 143),
        ("", "-HUP", 129),
    ] {
        let mut terminal = watch(&fixture, 80, 24);
        terminal.displays("> orders").await;
        assert!(terminal.is_taken() && terminal.screen().hide_cursor(), "{keys:?} {signal}");
        if signal.is_empty() {
            terminal.type_in(keys);
        } else {
            terminal.signal(signal).await;
        }
        assert_eq!(terminal.end_restored().await, Some(code), "{keys:?} {signal}");
    }
}

async fn the_terminal_is_restored_while_watch_is_stopped(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("first").lock().await.unwrap();
    let mut terminal = watch(&fixture, 80, 24);
    for number in 0..3 {
        terminal.displays("> first").await;
        assert!(terminal.is_taken());
        if number == 0 {
            terminal.signal("-TSTP").await;
        } else {
            terminal.type_in("\u{1a}");
        }
        is_restored(&terminal).await;
        terminal.signal("-CONT").await;
        is_taken(&terminal).await;
    }
    // The list is drawn again and is current.
    let _second = client.lock("second").lock().await.unwrap();
    terminal.displays("  second").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn a_mode_that_changed_during_a_stop_is_set_again(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("first").lock().await.unwrap();
    let mut terminal = watch(&fixture, 80, 24);
    terminal.displays("> first").await;
    // A stop that the program cannot see, after which a shell sets its own mode.
    terminal.signal("-STOP").await;
    terminal.reset_mode();
    assert!(!terminal.is_taken());
    terminal.signal("-CONT").await;
    is_taken(&terminal).await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn a_shell_stops_and_continues_watch(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    // With a terminal of its own, bash has job control.
    let shell = Program::of("setsid", &["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
    let shell = shell.with_env("TURNLOCK_STORE", fixture.url()).with_env("PS1", "ready$ ");
    let mut terminal = Terminal::start_sized(shell, 80, 24);
    terminal.displays("ready$").await;
    terminal.type_in(&format!("'{}' watch --interval 50ms\n", env!("CARGO_BIN_EXE_turnlock")));
    terminal.displays("> orders").await;
    terminal.type_in("\u{1a}");
    terminal.displays("Stopped").await;
    // The mode of the shell is line by line, with an echo.
    terminal.type_in("echo $((40 + 2))\n");
    terminal.displays("42").await;
    assert!(!terminal.screen().alternate_screen(), "{:#?}", terminal.lines());
    terminal.type_in("fg\n");
    terminal.displays("> orders").await;
    terminal.type_in("?");
    terminal.displays("unlock the selected lock by force").await;
    terminal.type_in("q");
    terminal.displays("ready$").await;
    assert!(!terminal.screen().alternate_screen());
    terminal.type_in("exit 7\n");
    let (code, text) = terminal.end().await;
    assert_eq!(code, Some(7), "{text:?}");
}

async fn without_a_shell_watch_is_not_stopped(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    // The first process of a session, as in a container: no other process of it could continue this one.
    let program = env!("CARGO_BIN_EXE_turnlock");
    let program = Program::of("setsid", &["--ctty", program, "watch", "--interval", "50ms"]);
    let mut terminal = Terminal::start_sized(program.with_env("TURNLOCK_STORE", fixture.url()), 80, 24);
    for entered in 1..=3 {
        let has_entered = || async { terminal.text().matches("\u{1b}[?1049h").count() == entered };
        eventually("the screen is entered again", LIMIT, has_entered).await;
        terminal.displays("> orders").await;
        if entered < 3 {
            terminal.type_in("\u{1a}");
        }
    }
    is_taken(&terminal).await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn the_screen_follows_the_size_of_the_terminal(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(client.lock(&format!("lock-{number:02}")).lock().await.unwrap());
    }
    let mut terminal = watch(&fixture, 80, 24);
    terminal.displays("  lock-20").await;
    terminal.type_in("G");
    terminal.displays("> lock-49").await;
    // A key that arrives together with a new size is seen with the next key only, so each size is awaited.
    for (columns, rows, shown) in [(20, 5, 2), (100, 40, 37), (2, 1, 0), (10, 3, 1), (80, 24, 21), (20, 5, 2)]
    {
        terminal.resize(columns, rows).await;
        let is_drawn = |lines: &[String]| {
            let names = lines.iter().filter(|line| line.contains("lock-")).count();
            names == shown && (shown == 0 || lines.iter().any(|line| line.starts_with("> lock-49")))
        };
        terminal.until(&format!("{shown} locks in {columns}x{rows}"), is_drawn).await;
    }
    terminal.type_in("u");
    terminal.until("the end of the question", |lines| lines[4].ends_with('_')).await;
    terminal.type_in("yes");
    terminal.until("what is typed", |lines| lines[4].ends_with("yes_")).await;
    // The owner is shown in full, in parts.
    terminal.type_in("\u{1b}");
    terminal.displays("lock-49 was not").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn names_of_others_do_not_break_the_screen(fixture: Fixture) {
    let client = fixture.client("\u{1b}[31mred\n\u{202e}").await;
    let long = "x".repeat(4_000);
    let names = ["\u{1b}[2J\u{1b}]0;title\u{7}", "a\nb\r\tc", "\u{202e}evil", "z注文🦀", &long];
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.lock(name).lock().await.unwrap());
    }
    fixture.until_identified(&[&client]).await;
    let mut terminal = watch(&fixture, 80, 24);
    let lines = terminal.displays("5 of 5 locks").await;
    assert!(lines[1].starts_with("  NAME") && lines[2].starts_with(r"> \u{1b}[2J"), "{lines:#?}");
    for shown in [r"  a\nb\r\tc", r"  \u{202e}evil", "  z注文🦀", "  xxxxxxxx"] {
        assert!(lines.iter().any(|line| line.starts_with(shown)), "{shown}: {lines:#?}");
    }
    assert!(lines[7].is_empty(), "one row per lock: {lines:#?}");
    assert!(!terminal.text().contains("\u{1b}]"), "the title is not set");
    terminal.type_in("\r");
    terminal.displays(r"name    \u{1b}[2J\u{1b}]0;title\u{7}").await;
    terminal.type_in("u");
    terminal.displays(r"Unlock \u{1b}[2J\u{1b}]0;title\u{7} by force?").await;
    terminal.type_in("yes\r");
    terminal.displays(r"\u{1b}[2J\u{1b}]0;title\u{7} was unlocked by force").await;
    terminal.displays("4 of 4 locks").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn no_colours_are_used_if_they_are_disabled(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    for (variable, value, has_styles) in [("NO_COLOR", "1", false), ("TERM", "xterm", true)] {
        let program = fixture.program(&["watch", "--interval", "50ms"]).with_env(variable, value);
        let mut terminal = Terminal::start(program.in_own_group(), 80);
        terminal.displays("> orders").await;
        terminal.type_in("q");
        let (code, text) = terminal.end().await;
        assert_eq!(code, Some(0));
        assert_eq!(text.contains("\u{1b}[7m") || text.contains("\u{1b}[1m"), has_styles, "{text:?}");
    }
}

async fn plain_output_and_other_input_have_no_screen(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let plain = Terminal::start(fixture.program(&["watch", "--plain"]), 80);
    let dumb = Terminal::start(fixture.program(&["watch"]).with_env("TERM", "dumb"), 80);
    for terminal in [plain, dumb] {
        terminal.shows("orders: held by").await;
        terminal.signal("-INT").await;
        let (code, text) = terminal.end().await;
        assert!(code == Some(130) && !text.contains('\u{1b}'), "{text:?}");
    }
}

async fn an_outage_shows_the_last_known_state_and_its_age(mut fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let mut terminal = watch(&fixture, 120, 24);
    terminal.displays("> orders").await;
    fixture.server().stop().await;
    let lines = terminal.displays("s old: the store is not available").await;
    assert!(lines[0].starts_with("1 of 1 locks, ") && lines[2].starts_with("> orders"), "{lines:#?}");
    terminal.type_in("u");
    terminal.until("the failure of the query", |lines| lines[23].contains("not available")).await;
    fixture.server().restart().await;
    let client = fixture.client("holder").await;
    let _guard = client.lock("later").lock().await.unwrap();
    let lines = terminal.displays("> later").await;
    assert!(lines[0].contains("  by name"), "{lines:#?}");
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}

async fn the_terminal_is_restored_after_an_error(mut fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let terminal = watch(&fixture, 80, 24);
    terminal.displays("> orders").await;
    let _: String = fixture.server().query(&["ACL", "SETUSER", "default", "-scan"]).await.unwrap();
    terminal.shows("turnlock: ").await;
    assert_eq!(terminal.end_restored().await, Some(77));
}

async fn thousands_of_locks_are_listed(mut fixture: Fixture) {
    const COUNT: usize = 5_000;
    let server = fixture.server();
    for first in (0..COUNT).step_by(100) {
        // As a lock of Redisson: a hash of the owner and its count.
        let script = "for i = ARGV[1], ARGV[1] + 99 do local key = string.format('lock-%04d', i); \
                      redis.call('hset', key, '07070707-1707-4707-8707-070707070707:1', 1); \
                      redis.call('pexpire', key, 600000) end return 1";
        let _: i64 = server.query(&["EVAL", script, "0", &first.to_string()]).await.unwrap();
    }
    let mut terminal = watch(&fixture, 80, 24);
    // A query of so many takes long on a busy machine.
    let limit = Duration::from_secs(90);
    terminal.displays_within(limit, "5000 of 5000 locks").await;
    terminal.type_in("G");
    terminal.displays_within(limit, "> lock-4999").await;
    terminal.type_in("/lock-42");
    terminal.displays_within(limit, "100 of 5000 locks  /lock-42").await;
    terminal.type_in("\rgu");
    terminal.displays_within(limit, "Unlock lock-4200 by force?").await;
    terminal.type_in("yes\r");
    terminal.displays_within(limit, "lock-4200 was unlocked by force").await;
    terminal.displays_within(limit, "99 of 4999 locks").await;
    terminal.type_in("q");
    assert_eq!(terminal.end_restored().await, Some(0));
}
