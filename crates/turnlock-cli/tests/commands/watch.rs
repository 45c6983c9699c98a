//! `watch`, without a terminal.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use turnlock_testkit::within;

use crate::fixture::Fixture;
use crate::program::{code_of, signal};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![each_change_is_a_line, watch_with_a_name_shows_only_that_lock, a_signal_ends_watch];

pub(crate) const CLUSTER_CASES: &[Case] =
    cases![each_change_is_a_line, watch_with_a_name_shows_only_that_lock];

pub(crate) const FILE_CASES: &[Case] = cases![a_stuck_holder_is_marked_in_all_lists];

pub(crate) fn watch(fixture: &Fixture, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let arguments = [&["watch", "--interval", "50ms"], arguments].concat();
    let mut child = fixture.program(&arguments).printing_to(Stdio::piped(), Stdio::null()).start();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

pub(crate) async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    within(Duration::from_secs(10), "a line of watch", lines.next_line()).await.unwrap().unwrap()
}

async fn each_change_is_a_line(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let first = client.lock("first").lock().await.unwrap();
    // An identity that becomes known later would be a change of its own.
    fixture.until_identified(&[&client]).await;
    let (_child, mut lines) = watch(&fixture, &["--json"]);
    let mut object = async || -> Value { serde_json::from_str(&line(&mut lines).await).unwrap() };
    let seen = object().await;
    assert_eq!((&seen["name"], &seen["locked"]), (&"first".into(), &true.into()), "{seen}");
    assert!(seen["at"].as_str().unwrap().ends_with('Z'), "{seen}");
    let second = client.lock("second").lock().await.unwrap();
    let seen = object().await;
    assert_eq!(seen["holders"][0]["owner"], second.owner_id().as_str(), "{seen}");
    first.unlock().await.unwrap();
    let seen = object().await;
    assert_eq!((&seen["name"], &seen["locked"]), (&"first".into(), &false.into()), "{seen}");
    assert_eq!(seen["holders"], Value::Array(Vec::new()), "{seen}");
}

async fn watch_with_a_name_shows_only_that_lock(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _other = client.lock("other").lock().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    fixture.until_identified(&[&client]).await;
    let (_child, mut lines) = watch(&fixture, &["orders"]);
    let held = line(&mut lines).await;
    assert!(held.contains("orders: held by") && held.contains("(holder)"), "{held}");
    guard.unlock().await.unwrap();
    assert!(line(&mut lines).await.ends_with("orders: free"));
}

async fn a_stuck_holder_is_marked_in_all_lists(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let lock = client.lock("orders");
    // On a runtime of its own: it blocks its thread.
    let blocking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(lock.run(|_| async move { blocked.recv().unwrap() })).unwrap();
    });
    let (_child, mut lines) = watch(&fixture, &["--plain", "orders"]);
    // After 10 s, and the period of checks.
    within(Duration::from_secs(60), "it is marked", async {
        while !lines.next_line().await.unwrap().unwrap().contains(" (stuck)") {}
    })
    .await;
    let listed = fixture.run(&["ls"]).await.out;
    assert!(listed.lines().any(|line| line.starts_with("orders ") && line.contains(" (stuck)")), "{listed}");
    let shown = fixture.run(&["show", "orders"]).await.out;
    assert!(shown.contains("seems to be stuck"), "{shown}");
    unblock.send(()).unwrap();
    // The release needs the threads of this runtime.
    tokio::task::spawn_blocking(move || blocking.join().unwrap()).await.unwrap();
}

async fn a_signal_ends_watch(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let (child, mut lines) = watch(&fixture, &[]);
        line(&mut lines).await;
        signal(&child, name).await;
        assert_eq!(code_of(child).await, Some(code));
    }
}
