//! Who holds a permit, and until when a lock is kept, in all views.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncBufReadExt, BufReader};
use turnlock_testkit::within;

use crate::fixture::Fixture;
use crate::program::{code_of, signal};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_held_permit_is_shown_with_its_holder,
    a_permit_of_another_library_is_shown_by_its_id,
    a_lock_kept_by_at_least_is_shown_with_its_end,
    a_permit_kept_by_at_least_is_shown_with_its_end,
];

async fn a_held_permit_is_shown_with_its_holder(fixture: Fixture) {
    let arguments = ["run", "--permits", "2", "--label", "im\u{1b}port", "slots", "--", "sleep", "60"];
    let child = fixture.program(&arguments).printing_to(Stdio::null(), Stdio::null()).start();
    let pid = child.id().unwrap();
    let before = SystemTime::now() - Duration::from_secs(60);
    let holder = within(Duration::from_secs(20), "the permit is announced", async {
        loop {
            let objects = fixture.objects(&["show", "--json", "slots"]).await;
            let holder = objects[0]["holders"][0].clone();
            if holder["pid"].is_u64() {
                return holder;
            }
        }
    })
    .await;
    // A client replaces control characters in its label.
    assert_eq!((&holder["pid"], &holder["label"]), (&pid.into(), &"im\u{fffd}port".into()), "{holder}");
    let since = humantime::parse_rfc3339(holder["since"].as_str().unwrap()).unwrap();
    assert!(since > before && since <= SystemTime::now(), "{holder}");
    assert_eq!(holder["kept_until"], serde_json::Value::Null, "{holder}");
    let name = format!(":{pid} (im\u{fffd}port)");
    let id = holder["owner"].as_str().unwrap();
    let listed = fixture.run(&["ls"]).await.out;
    assert!(
        listed.contains(&name) && listed.contains(&format!("{}…", &id[..8])) && !listed.contains(id),
        "{listed}"
    );
    let shown = fixture.run(&["show", "slots"]).await.out;
    assert!(shown.contains(&name) && shown.contains(id) && shown.contains("since "), "{shown}");
    signal(&child, "-TERM").await;
    code_of(child).await;
}

async fn a_permit_of_another_library_is_shown_by_its_id(fixture: Fixture) {
    let client = fixture.client("silent").await;
    let slots = client.permit_semaphore("slots");
    slots.set_permits(2).await.unwrap();
    // Not announced, as the permits of Redisson.
    let permit = slots.acquire(1).await.unwrap();
    let objects = fixture.objects(&["show", "--json", "slots"]).await;
    let holder = &objects[0]["holders"][0];
    assert!(holder["host"].is_null() && holder["owner"] == permit.ids()[0].as_str(), "{holder}");
    let listed = fixture.run(&["ls"]).await.out;
    assert!(listed.contains(&permit.ids()[0]), "{listed}");
}

async fn a_lock_kept_by_at_least_is_shown_with_its_end(fixture: Fixture) {
    is_shown_with_its_end(&fixture, &[]).await;
}

async fn a_permit_kept_by_at_least_is_shown_with_its_end(fixture: Fixture) {
    is_shown_with_its_end(&fixture, &["--permits", "1"]).await;
}

/// Runs a short command with `--at-least`, and checks all views.
async fn is_shown_with_its_end(fixture: &Fixture, flags: &[&str]) {
    let before = SystemTime::now();
    let run = [&["run", "--at-least", "1h", "--label", "nightly"], flags, &["report", "--", "true"]].concat();
    let ended = fixture.run(&run).await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let hour = Duration::from_secs(3_600);
    // Each program that connects to a file cleans up after those that have exited.
    for _ in 0..2 {
        let objects = fixture.objects(&["show", "--json", "report"]).await;
        let holder = &objects[0]["holders"][0];
        let end = humantime::parse_rfc3339(holder["kept_until"].as_str().unwrap()).unwrap();
        let slack = Duration::from_secs(1);
        assert!(end + slack >= before + hour && end <= SystemTime::now() + hour + slack, "{holder}");
        assert_eq!(holder["label"], "nightly", "{holder}");
        assert!(holder["since"].is_string() && holder["pid"].is_u64(), "{holder}");
        let pid = holder["pid"].to_string();
        let text = humantime::format_rfc3339_seconds(end).to_string();
        // Today without the date.
        let time = text.split_once('T').unwrap().1;
        let listed = fixture.run(&["ls"]).await.out;
        let shown = fixture.run(&["show", "report"]).await.out;
        let watch = fixture.program(&["watch", "report"]).printing_to(Stdio::piped(), Stdio::null());
        let mut child = watch.start();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let watched =
            within(Duration::from_secs(20), "a line of watch", lines.next_line()).await.unwrap().unwrap();
        for view in [&listed, &shown, &watched] {
            assert!(
                view.contains("kept until ") && view.contains(time) && view.contains("(nightly)"),
                "{view}"
            );
            assert!(!view.contains(&format!(":{pid} ")), "the process has exited: {view}");
        }
    }
}
