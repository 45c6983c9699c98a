//! What `docs/program-json.md` promises, and what is really printed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::ground::Ground;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![the_objects_have_the_documented_fields];

const TEXT: &str = include_str!("../../../../docs/program-json.md");

/// The fields in the first column of the table below this heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let section = TEXT.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("a section {heading:?}"));
    let fields = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    fields.map(|(field, _)| field.to_owned()).collect()
}

fn fields(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

async fn the_objects_have_the_documented_fields(ground: Ground) {
    let client = ground.client("holder").await;
    let lock = client.fair_lock("tickets");
    let _guard = lock.lock().await.unwrap();
    let waiter = ground.client("waiter").await.fair_lock("tickets");
    let waiter = tokio::spawn(async move { waiter.lock().await });
    while lock.inspect().await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    for arguments in [&["ls", "--json"][..], &["show", "--json", "tickets"]] {
        let objects = ground.objects(arguments).await;
        let object = &objects[0];
        assert_eq!(fields(object), documented("A lock"), "{object}");
        assert_eq!(fields(&object["holders"][0]), documented("A holder"), "{object}");
        assert_eq!(fields(&object["queue"][0]), documented("A waiter"), "{object}");
    }
    waiter.abort();
    let findings = ground.run(&["doctor", "--json"]).await;
    let finding: Value = serde_json::from_str(findings.out.lines().next().unwrap()).unwrap();
    assert_eq!(fields(&finding), documented("A finding"), "{finding}");
    let measures = ground.objects(&["bench", "--json", "--time", "0.1", "--tasks", "2"]).await;
    let measure = &measures[0];
    assert_eq!(fields(measure), documented("A measurement"), "{measure}");
    assert_eq!(fields(&measure["histogram"][0]), documented("A bar"), "{measure}");
    let times = fields(&measure["latency"]);
    assert_eq!(times, documented("Times"), "{measure}");
    assert!(fields(&measure["hand_over"]).is_superset(&times), "{measure}");
}
