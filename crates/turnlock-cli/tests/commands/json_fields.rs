//! JSON output has the fields that `docs/program-json.md` documents.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![json_objects_have_the_documented_fields, the_json_object_of_status_has_the_documented_fields,];

const DOCUMENTATION: &str = include_str!("../../../../docs/program-json.md");

/// The fields in the first column of the table under this heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let section = DOCUMENTATION.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("no section {heading:?}"));
    let fields = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    fields.map(|(field, _)| field.to_owned()).collect()
}

fn fields(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

async fn json_objects_have_the_documented_fields(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let lock = client.fair_lock("tickets");
    let _guard = lock.lock().await.unwrap();
    let waiter = fixture.client("waiter").await.fair_lock("tickets");
    let waiter = tokio::spawn(async move { waiter.lock().await });
    while lock.inspect().await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    for arguments in [&["ls", "--json"][..], &["show", "--json", "tickets"]] {
        let objects = fixture.objects(arguments).await;
        let object = &objects[0];
        assert_eq!(fields(object), documented("A lock"), "{object}");
        assert_eq!(fields(&object["holders"][0]), documented("A holder"), "{object}");
        assert_eq!(fields(&object["queue"][0]), documented("A waiter"), "{object}");
    }
    waiter.abort();
    let findings = fixture.run(&["doctor", "--json"]).await;
    let finding: Value = serde_json::from_str(findings.out.lines().next().unwrap()).unwrap();
    assert_eq!(fields(&finding), documented("A finding"), "{finding}");
    let measurements = fixture.objects(&["bench", "--json", "--time", "0.1", "--tasks", "2"]).await;
    let measurement = &measurements[0];
    assert_eq!(fields(measurement), documented("A measurement"), "{measurement}");
    assert_eq!(fields(&measurement["histogram"][0]), documented("A bar"), "{measurement}");
    assert_eq!(fields(&measurement["servers"][0]), documented("A server"), "{measurement}");
    let quality = documented("The quality of a part");
    for part in ["ping", "serial", "concurrent", "hand_over"] {
        assert!(fields(&measurement[part]).is_superset(&quality), "{part}: {measurement}");
    }
    let times = fields(&measurement["latency"]);
    assert_eq!(times, documented("Times"), "{measurement}");
    assert!(fields(&measurement["hand_over"]).is_superset(&times), "{measurement}");
    assert!(fields(&measurement["ping"]).is_superset(&times), "{measurement}");
    let arguments = ["bench", "--json", "--time", "0.1", "--tasks", "2", "--compare", fixture.url()];
    let ratios = &fixture.objects(&arguments).await[1]["ratio_to_first"];
    assert_eq!(fields(ratios), documented("The ratios of two stores"), "{ratios}");
}

async fn the_json_object_of_status_has_the_documented_fields(fixture: Fixture) {
    let _holder = fixture.holding("orders").await;
    // Redis gets the age with the record of the client, a moment after the lock.
    let status = fixture.status_with_age(&[]).await;
    assert_eq!(fields(&status), documented("A status"), "{status}");
    assert_eq!(fields(&status["servers"][0]), documented("A server"), "{status}");
    assert_eq!(fields(&status["oldest"]), documented("The oldest hold"), "{status}");
    assert_eq!(fields(&status["oldest"]["holder"]), documented("A holder"), "{status}");
    if let Some(finding) = status["findings"].get(0) {
        assert_eq!(fields(finding), documented("A finding"), "{status}");
    }
}
