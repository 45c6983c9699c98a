use std::time::Duration;

use anstream::adapter::strip_str;
use clap::Parser;
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::arguments::{Arguments, Command};
use crate::commands::lock_view::WaiterView;
use crate::commands::lock_view::tests::held;

const NOW: Duration = Duration::from_secs(135);

fn view(options: &str, locks: Vec<LockView>) -> WatchView {
    let words = ["turnlock", "watch"].into_iter().chain(options.split_whitespace());
    let Ok(Command::Watch(arguments)) = Arguments::try_parse_from(words).map(|arguments| arguments.command)
    else {
        panic!("{options}")
    };
    let mut view = WatchView::new(arguments.list);
    view.update(locks, true, SystemTime::UNIX_EPOCH + NOW);
    view
}

fn screen_of(view: &mut WatchView, width: usize, height: usize) -> Vec<String> {
    let lines = view.lines(width, height, SystemTime::UNIX_EPOCH + NOW);
    lines.iter().map(|line| strip_str(line).to_string()).collect()
}

fn screen(view: &mut WatchView) -> Vec<String> {
    screen_of(view, 80, 24)
}

fn press(view: &mut WatchView, code: KeyCode) -> Action {
    view.handle(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(view: &mut WatchView, text: &str) {
    for character in text.chars() {
        press(view, KeyCode::Char(character));
    }
}

fn names(view: &WatchView) -> String {
    view.shown.iter().map(|lock| lock.name.as_str()).collect()
}

fn selected(view: &WatchView) -> &str {
    view.selected().map_or("", |lock| &lock.name)
}

/// Three locks with another order for each key: by name abc, by age cab, by ttl bca, by waiters acb.
fn three() -> Vec<LockView> {
    let waiter = WaiterView { owner: "x".into(), host: None, pid: None, label: None };
    let mut locks = ["a", "b", "c"].map(held);
    for (index, (since, ttl, waiters)) in [(2, 9, 2), (3, 5, 0), (1, 7, 1)].into_iter().enumerate() {
        locks[index].holders[0].since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since));
        locks[index].ttl = Some(Duration::from_secs(ttl));
        locks[index].queue = vec![waiter.clone(); waiters];
    }
    locks.to_vec()
}

fn many(count: usize) -> Vec<LockView> {
    (0..count).map(|number| held(&format!("lock-{number:04}"))).collect()
}

#[test]
fn keys_sort_the_list_and_the_selection_stays_on_its_lock() {
    let mut view = view("", three());
    press(&mut view, KeyCode::Down);
    assert_eq!((names(&view).as_str(), selected(&view)), ("abc", "b"));
    for (key, order) in [('a', "cab"), ('n', "abc"), ('t', "bca"), ('w', "acb")] {
        press(&mut view, KeyCode::Char(key));
        assert_eq!((names(&view).as_str(), selected(&view)), (order, "b"), "{key}");
    }
    for order in ["cab", "abc", "bca", "acb"] {
        press(&mut view, KeyCode::Char('s'));
        assert_eq!(names(&view), order);
    }
    assert_eq!(names(&self::view("--sort ttl", three())), "bca");
}

#[test]
fn a_filter_matches_names_and_holders_and_is_shown() {
    let mut locks = three();
    locks[2].holders[0].host = Some("db-9".to_owned());
    let mut view = view("", locks);
    type_in(&mut view, "/db-9");
    assert_eq!(names(&view), "c");
    let shown = screen(&mut view);
    assert!(shown[0].starts_with("1 of 3 locks  /db-9  by name"), "{shown:?}");
    assert_eq!(shown[23], "/db-9_");
    press(&mut view, KeyCode::Enter);
    assert_eq!(names(&view), "c", "Enter keeps the filter");
    press(&mut view, KeyCode::Esc);
    assert_eq!(names(&view), "abc", "Esc clears it");
    type_in(&mut view, "/we");
    assert_eq!((names(&view).as_str(), selected(&view)), ("ab", "b"), "web-1 does not hold c");
    press(&mut view, KeyCode::Backspace);
    press(&mut view, KeyCode::Backspace);
    type_in(&mut view, "q/s u");
    assert_eq!((view.filter.as_str(), names(&view).as_str()), ("q/s u", ""), "these are no commands");
    press(&mut view, KeyCode::Esc);
    assert_eq!(names(&view), "abc");
}

#[test]
fn options_filter_and_are_shown() {
    let mut locks = three();
    locks[1].kind = Some("fair-lock");
    let mut view = view("--kind fair-lock --holder web-1 --older-than 2m", locks);
    assert_eq!(names(&view), "b");
    let header = screen_of(&mut view, 120, 24).remove(0);
    assert!(header.starts_with("1 of 3 locks  by name  holder web-1  older than 2m"), "{header}");
    assert!(header.contains("kind fair-lock"), "{header}");
}

#[test]
fn the_list_scrolls_with_the_selection() {
    let mut view = view("", many(5_000));
    // The header, the headings and the footer leave 21 rows.
    let rows = |view: &mut WatchView| -> (String, String, String) {
        let shown = screen(view);
        let marked: Vec<_> = shown.iter().filter(|line| line.starts_with("> ")).collect();
        assert_eq!(marked.len(), 1, "{shown:#?}");
        let name = |line: &str| line[2..11].to_owned();
        (name(&shown[2]), name(marked[0]), name(&shown[22]))
    };
    let expected = |first: usize, marked: usize, last: usize| {
        let name = |number: usize| format!("lock-{number:04}");
        (name(first), name(marked), name(last))
    };
    assert_eq!(rows(&mut view), expected(0, 0, 20));
    for (key, first, marked) in [
        (KeyCode::Down, 0, 1),
        (KeyCode::Char('j'), 0, 2),
        (KeyCode::Up, 0, 1),
        (KeyCode::Char('k'), 0, 0),
        (KeyCode::Up, 0, 0),
        (KeyCode::PageDown, 1, 21),
        (KeyCode::PageDown, 22, 42),
        (KeyCode::PageUp, 21, 21),
        (KeyCode::End, 4_979, 4_999),
        (KeyCode::Down, 4_979, 4_999),
        (KeyCode::Home, 0, 0),
        (KeyCode::Char('G'), 4_979, 4_999),
        (KeyCode::Char('g'), 0, 0),
    ] {
        press(&mut view, key);
        assert_eq!(rows(&mut view), expected(first, marked, first + 20), "{key:?}");
    }
    press(&mut view, KeyCode::End);
    view.update(many(30), true, SystemTime::UNIX_EPOCH);
    assert_eq!(rows(&mut view), expected(9, 29, 29), "the list became shorter");
    view.update(Vec::new(), true, SystemTime::UNIX_EPOCH);
    assert!(screen(&mut view)[0].starts_with("no locks"));
    assert!(matches!(press(&mut view, KeyCode::Char('u')), Action::None), "there is nothing to unlock");
    press(&mut view, KeyCode::Enter);
    assert!(matches!(view.mode, Mode::List));
}

#[test]
fn details_have_full_owner_ids_and_follow_the_lock() {
    let mut view = view("", three());
    press(&mut view, KeyCode::Enter);
    let shown = screen(&mut view).join("\n");
    assert!(
        shown.contains("held by web-1:42 (deploy.sh)\n        owner 07070707-1707-4707-8707-070707070707:12")
    );
    assert!(
        shown.contains("for 2m 13s") && shown.contains("\nttl     9s") && shown.contains("\nqueue   1. x")
    );
    view.update(Vec::new(), true, SystemTime::UNIX_EPOCH);
    assert!(screen(&mut view).join("\n").contains("name    a\nheld by none"));
    press(&mut view, KeyCode::Esc);
    assert!(matches!(view.mode, Mode::List));
}

#[test]
fn help_lists_all_keys() {
    let mut view = view("", three());
    press(&mut view, KeyCode::Char('?'));
    let shown = screen_of(&mut view, 100, 30).join("\n");
    assert!(KEYS.iter().all(|(keys, effect)| shown.contains(keys) && shown.contains(effect)), "{shown}");
    press(&mut view, KeyCode::Esc);
    assert!(matches!(view.mode, Mode::List));
}

#[test]
fn the_documentation_has_all_keys() {
    let documentation = include_str!("../../../../../../docs/program-commands.md");
    for (keys, _) in KEYS {
        let row = keys.split(", ").map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        assert!(documentation.contains(&format!("\n| {row} | ")), "{row}");
    }
}

#[test]
fn a_pause_and_an_outage_show_the_age_of_the_state() {
    let mut view = view("", three());
    assert!(matches!(press(&mut view, KeyCode::Char(' ')), Action::None));
    let later = SystemTime::UNIX_EPOCH + NOW + Duration::from_secs(12);
    let header = |view: &mut WatchView| strip_str(&view.lines(200, 24, later)[0]).to_string();
    assert!(header(&mut view).starts_with("3 of 3 locks, paused, 12s old"), "{}", header(&mut view));
    assert!(matches!(press(&mut view, KeyCode::Char(' ')), Action::Query));
    let source = Arc::new(std::io::Error::other("\u{1b}[2Jrefused"));
    view.show_outage(&Error::Unavailable { what: "a search".to_owned(), source });
    let expected = r"3 of 3 locks, 12s old: the store is not available for a search: \u{1b}[2Jrefused";
    assert_eq!(header(&mut view), expected);
    assert!(screen(&mut view)[2].contains("web-1"), "the last known state stays");
    view.update(three(), false, SystemTime::UNIX_EPOCH);
    assert!(header(&mut view).starts_with("3 of 3 locks, incomplete  by name"));
}

#[test]
fn pasted_text_is_never_a_key() {
    let mut view = view("", three());
    view.paste("q/b");
    assert_eq!((view.filter.as_str(), names(&view).as_str()), ("", "abc"));
    press(&mut view, KeyCode::Char('/'));
    view.paste("c\n\u{1b}[2J");
    assert_eq!(view.filter, "c\n\u{1b}[2J");
    assert!(screen(&mut view)[0].contains(r"/c\n\u{1b}[2J"));
    view.paste(&"x".repeat(1_000_000));
    assert_eq!(view.filter.chars().count(), MAX_TYPED);
}

#[test]
fn keys_of_the_terminal_work_in_every_mode() {
    for open in ["", "/", "?", "u"] {
        let mut view = view("", three());
        type_in(&mut view, open);
        let mut control = |key| view.handle(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
        assert!(
            matches!(control('c'), Action::Interrupt) && matches!(control('z'), Action::Suspend),
            "{open}"
        );
        assert!(matches!(control('l'), Action::Redraw), "{open}");
    }
    let mut view = view("", three());
    assert!(matches!(view.handle(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT)), Action::None));
    assert!(matches!(press(&mut view, KeyCode::Char('q')), Action::Quit));
}

#[tokio::test]
async fn a_second_unlock_waits_for_the_outcome_of_the_first() {
    let client = turnlock::Client::connect("memory://").await.unwrap();
    let _guard = client.lock("a").lock().await.unwrap();
    let lock = client.inspect("a").await.unwrap().unwrap();
    let mut view = view("", three());
    assert!(matches!(press(&mut view, KeyCode::Char('u')), Action::Inspect(_)));
    view.show_inspected("a", Ok(Some(Box::new((lock, held("a"))))));
    type_in(&mut view, "yes");
    assert!(matches!(press(&mut view, KeyCode::Enter), Action::Unlock(_)));
    for keys in ["u", "ju", "\nx"] {
        let codes = keys.chars().map(|key| if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) });
        let action = codes.map(|key| press(&mut view, key)).last();
        assert!(matches!(action, Some(Action::None)), "{keys:?}");
        assert_eq!(screen(&mut view)[23], "the unlock of a has not ended: try again later", "{keys:?}");
    }
    press(&mut view, KeyCode::Esc);
    // The outcome is shown after a filter that is being typed.
    type_in(&mut view, "/b");
    view.show_unlocked("a", Ok(Ok("a was unlocked by force".to_owned())));
    type_in(&mut view, "c");
    press(&mut view, KeyCode::Esc);
    assert_eq!(screen(&mut view)[23], "a was unlocked by force");
    assert!(matches!(press(&mut view, KeyCode::Char('u')), Action::Inspect(_)));
}

#[test]
fn every_screen_fits_into_every_size() {
    let mut locks =
        ["a\nb", "\u{1b}[2J\u{1b}]0;t\u{7}", "\u{202e}evil", "注文注文", "🦀", "e\u{301}"].map(held).to_vec();
    locks.push(held(&"x".repeat(4_096)));
    locks[0].holders = vec![locks[0].holders[0].clone(); 1_000];
    locks[1].holders[0].label = Some("\u{1b}[31m\nred".repeat(300));
    for keys in ["", "?", "\n", "/注文注文\u{1b}[2J", "u", "jj\n"] {
        for (width, height) in [(80, 24), (20, 5), (7, 3), (2, 2), (1, 1), (0, 0), (300, 100), (30, 0)] {
            let mut view = view("", locks.clone());
            for key in keys.chars() {
                press(&mut view, if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) });
            }
            let lines = screen_of(&mut view, width, height);
            assert_eq!(lines.len(), height, "{keys:?} {width}x{height}");
            for line in lines {
                assert!(!line.contains(char::is_control) && !line.contains('\u{202e}'), "{line}");
                assert!(line.width() <= width, "{keys:?} {width}x{height}: {line}");
            }
        }
    }
}
