use serde_json::json;

use super::*;
use crate::history::{LockInfo, LockKind, Mode, ProcessState, Promises, ReleaseBy, Wait, What};

/// An event at a time in milliseconds.
fn at(ms: u64, process: u32, what: What) -> Event {
    Event { t: ms * 1_000, process, what }
}

fn acquire(op: u64, lock: usize) -> What {
    let (mode, wait) = (Mode::Exclusive, Wait::Endless);
    What::Acquire { op, lock, mode, permits: 1, wait, lease_ms: None, owner_number: None }
}

fn granted(op: u64) -> What {
    What::Granted { op, owner: op.to_string(), token: None, valid_until: 100_000_000 }
}

/// Two locks, two processes and two faults. All texts contain `text`.
fn history(text: &str) -> Vec<Event> {
    let lock = |kind| LockInfo { name: format!("{kind:?}{text}"), kind, permits: 2 };
    let locks = vec![lock(LockKind::Lock), lock(LockKind::Permits)];
    let promises =
        Promises { exclusion: true, rising_tokens: true, data: true, order: false, delivery: false };
    let shape = format!("single{text}");
    let run = What::Run { seed: 7, shape, promises, watchdog_ms: 3_000, locks };
    let by = ReleaseBy::Unlock;
    let reason = format!("no renewal for 2.9 s{text}");
    let (promotion, stop) = (format!("promotion{text}"), format!("process 1{text}"));
    vec![
        at(0, 0, run),
        at(1_000, 1, acquire(1, 0)),
        at(1_500, 1, granted(1)),
        at(2_000, 2, acquire(2, 0)),
        at(3_500, 1, What::Release { op: 1, by, valid_until: 90_000_000 }),
        at(4_000, 2, granted(2)),
        at(5_000, 0, What::fault(&promotion, &format!("500ms{text}"), false)),
        at(5_500, 0, What::fault(&promotion, "", true)),
        // The holder is told later than its lease ends.
        at(6_000, 2, What::Lost { op: 2, reason, valid_until: 5_500_000 }),
        at(6_100, 2, What::Release { op: 2, by, valid_until: 5_500_000 }),
        at(6_200, 2, acquire(3, 0)),
        at(6_300, 2, What::Busy { op: 3 }),
        at(6_300, 2, acquire(4, 0)),
        at(6_400, 2, What::Cancelled { op: 4 }),
        at(6_500, 2, acquire(5, 1)),
        at(6_600, 2, What::Failed { op: 5, error: format!("refused by 127.0.0.1:6379{text}") }),
        at(7_000, 1, acquire(6, 1)),
        at(8_000, 0, What::fault("stop", &format!("{stop}, 1s"), false)),
        at(8_000, 1, What::Process { is: ProcessState::Stopped }),
        at(9_000, 1, What::Process { is: ProcessState::Killed }),
        at(9_000, 0, What::fault("stop", &stop, true)),
        at(10_000, 0, What::Healed),
        at(12_000, 0, What::End { left: Vec::new(), available: Vec::new() }),
    ]
}

fn page(events: &[Event], verdict: &Verdict) -> String {
    let spans = Spans::new(events);
    html::page(events, &spans, &Figures::new(&spans, verdict, Some("c0ffee")))
}

fn picture(events: &[Event]) -> String {
    let spans = Spans::new(events);
    let window = Window::of_interest(&spans);
    timeline::draw(&spans, window).file(&timeline::title(&spans, window))
}

/// Fails unless each element is closed, each attribute has quotes, and each ampersand begins an entity.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    for part in xml.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        for piece in [tag, text] {
            let entities = ["amp;", "lt;", "gt;", "quot;", "#39;"];
            let is_entity = |rest: &str| entities.iter().any(|entity| rest.starts_with(entity));
            assert!(piece.split('&').skip(1).all(is_entity), "{part}");
        }
        assert!(!text.contains('>'), "{part}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
            continue;
        }
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let outside: String = attributes.split('"').step_by(2).collect();
        assert!(outside.chars().all(|c| c.is_ascii_lowercase() || " -=/B12".contains(c)), "{part}");
        assert!(attributes.matches('"').count().is_multiple_of(2), "{part}");
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
}

#[test]
fn a_history_gives_its_figures() {
    let events = history("");
    let verdict = checker::check(&events);
    let spans = Spans::new(&events);
    let found = serde_json::to_value(Figures::new(&spans, &verdict, Some("c0ffee"))).expect("JSON");
    let lost = json!({ "no renewal for … s": 1 });
    let errors = json!({ "refused by …:…": 1 });
    let percentiles =
        |low: u64, high: u64| json!({ "p10": low, "p50": low, "p90": high, "p99": high, "max": high });
    let (wait, hold) = (percentiles(500_000, 2_000_000), percentiles(1_500_000, 2_000_000));
    let expected = json!({
        "passed": true, "seed": 7, "shape": "single", "commit": "c0ffee", "duration_us": 12_000_000, "processes": 2,
        "promises_exclusion": true, "promises_rising_tokens": true,
        "locks": [
            { "name": "Lock", "kind": "lock", "permits": 2 },
            { "name": "Permits", "kind": "permits", "permits": 2 },
        ],
        "total": {
            "requests": 6, "granted": 2, "busy": 1, "cancelled": 1, "failed": 1, "unfinished": 1,
            "errors": errors, "lost": lost, "wait_us": wait, "hold_us": hold,
        },
        "kinds": {
            "lock": {
                "requests": 4, "granted": 2, "busy": 1, "cancelled": 1, "failed": 0, "unfinished": 0,
                "errors": {}, "lost": lost, "wait_us": wait, "hold_us": hold,
            },
            "permits": {
                "requests": 2, "granted": 0, "busy": 0, "cancelled": 0, "failed": 1, "unfinished": 1,
                "errors": errors, "lost": {}, "wait_us": null, "hold_us": null,
            },
        },
        "faults": {
            "promotion": { "count": 1, "total_us": 500_000 },
            "stop": { "count": 1, "total_us": 1_000_000 },
        },
        "overlaps": 0, "stalled_percent": 0, "violations": [],
    });
    assert_eq!(found, expected);
    // A request of a stopped process that is killed ends when it was stopped.
    assert_eq!(spans.request(6).map(|request| request.ended), Some(8_000_000));
    assert_eq!(spans.processes[&1], [(8_000_000, 9_000_000)]);
}

#[test]
fn the_window_is_around_a_fail_over_with_a_loss() {
    let events = history("");
    let window = Window::of_interest(&Spans::new(&events));
    assert_eq!(window, Window { from: 3_500_000, to: 7_500_000, lock: None });
    assert_eq!(picture(&events).matches("class=\"lost\"").count(), 2, "one, and the legend");
}

#[test]
fn hostile_texts_are_escaped() {
    let events = history("</title><script>alert(\"1\")</script>&'\u{1b}\u{0}");
    let violations = vec!["op 2 <script> (5, \"&".to_owned(), "no op </p>".to_owned()];
    let page = page(&events, &Verdict { violations, ..Verdict::default() });
    assert!(page.contains("Failed: 2 violations") && page.contains("&lt;script&gt;alert"));
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{0}'));
    for svg in page.split("<svg ").skip(1) {
        let (svg, _) = svg.split_once("</svg>").expect("an end");
        assert_well_formed(&format!("<svg {svg}</svg>"));
    }
    // The timeline of the violation, the timeline and three charts.
    assert_eq!(page.matches("<svg ").count(), 5);
    assert_well_formed(&picture(&events));
}

#[test]
fn a_page_is_the_same_each_time_and_loads_nothing() {
    let events = history("");
    let verdict = checker::check(&events);
    let one = page(&events, &verdict);
    assert_eq!(one, page(&events, &verdict));
    assert!(one.contains("Passed: no rule is broken"));
    for outside in ["src=", "href=", "url(", "@import", "<link"] {
        assert!(!one.contains(outside), "{outside}");
    }
}

#[test]
fn a_history_without_its_end_is_reported() {
    let whole = history("");
    // The checker asks for the end of the faults.
    for length in 0..whole.len() - 1 {
        let events = &whole[..length];
        let verdict = checker::check(events);
        assert!(page(events, &verdict).contains("Failed: "), "{length}");
        assert_well_formed(&picture(events));
    }
    // It was granted, and is held until the history ends.
    let spans = Spans::new(&whole[..6]);
    assert_eq!(spans.request(2).and_then(|request| request.held_until), Some(4_000_000));
}

#[test]
fn times_and_numbers_have_units_and_commas() {
    let times = [0, 50, 1_000, 1_234, 123_456, 1_500_000, 2_000_000, 123_400_000].map(svg::time_text);
    assert_eq!(times, ["0 ms", "0.05 ms", "1 ms", "1.2 ms", "123 ms", "1.5 s", "2 s", "123 s"]);
    assert_eq!([0, 999, 1_000, 1_234_567].map(svg::number), ["0", "999", "1,000", "1,234,567"]);
}
