//! The output of `--json` is what the schema and the tables of the documentation say.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use turnlock_testkit::within;

use crate::fixture::Fixture;
use crate::program::{self, Program};
use crate::schema::Schema;
use crate::{Case, cases};

/// Cases on each store.
pub(crate) const CASES: &[Case] =
    cases![locks_match_the_schema, other_objects_match_the_schema, events_match_the_schema];

/// Cases without a store.
pub(crate) const DOCUMENT_CASES: &[Case] =
    cases![the_schema_has_the_documented_fields, an_undocumented_or_omitted_field_does_not_match_the_schema,];

const OBJECTS: &str = include_str!("../../../../docs/program-json.md");
const EVENTS: &str = include_str!("../../../../docs/program.md");

/// The objects that have a table in `docs/program-json.md`, and its heading.
const TABLES: &[(&str, &str)] = &[
    ("lock", "A lock"),
    ("holder", "A holder"),
    ("waiter", "A waiter"),
    ("wait", "An announced wait"),
    ("task_hold", "What a task holds"),
    ("deadlock", "A deadlock"),
    ("held_lock", "A held lock"),
    ("finding", "A finding"),
    ("status", "A status"),
    ("server", "A server"),
    ("oldest_hold", "The oldest hold"),
    ("measurement", "A measurement"),
    ("ratios", "The ratios of two stores"),
    ("times", "Times"),
    ("bar", "A bar"),
];

/// The objects that are described in the text.
const WITHOUT_TABLE: &[&str] = &["change", "samples"];

/// The fields of all events.
const COMMON: [&str; 3] = ["event", "name", "time"];

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The section under this heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let section = page.split("\n## ").find(|section| section.starts_with(heading));
    section.unwrap_or_else(|| panic!("no section {heading:?}"))
}

/// The fields in the table under this heading of `docs/program-json.md`.
fn table(heading: &str) -> BTreeSet<String> {
    let rows = section(OBJECTS, heading).lines();
    rows.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).flat_map(names).collect()
}

/// The names in this cell of a table: those in backticks.
fn names(cell: &str) -> impl Iterator<Item = String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    quoted.filter(is_name).map(str::to_owned)
}

/// The events in the table of `docs/program.md`, with their fields.
fn documented_events() -> Vec<(String, BTreeSet<String>)> {
    let rows = section(EVENTS, "Events").lines().filter(|line| line.starts_with("| `")).skip(1);
    rows.flat_map(|row| {
        let cells: Vec<_> = row.split('|').collect();
        let fields: BTreeSet<_> = COMMON.map(str::to_owned).into_iter().chain(names(cells[3])).collect();
        names(cells[1]).map(move |event| (event, fields.clone()))
    })
    .collect()
}

async fn the_schema_has_the_documented_fields(_: Fixture) {
    let schema = Schema::load();
    let mut documented: BTreeSet<_> = WITHOUT_TABLE.iter().map(|name| (*name).to_owned()).collect();
    for (object, heading) in TABLES {
        assert_eq!(schema.fields(object), table(heading), "{object}");
        documented.insert((*object).to_owned());
    }
    for (event, fields) in documented_events() {
        let object = format!("event_{event}");
        assert_eq!(schema.fields(&object), fields, "{event}");
        documented.insert(object);
    }
    assert_eq!(schema.objects().into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), documented);
    let mut change = schema.fields("lock");
    change.insert("at".to_owned());
    assert_eq!(schema.fields("change"), change);
    let mut samples = &table("Times") | &table("The quality of a part");
    samples.insert("times".to_owned());
    assert_eq!(schema.fields("samples"), samples);
}

async fn an_undocumented_or_omitted_field_does_not_match_the_schema(_: Fixture) {
    let schema = Schema::load();
    let waiter = parse(r#"{"owner":"x","host":null,"pid":1,"label":null}"#);
    schema.check("waiter", &waiter);
    for wrong in [
        r#"{"owner":"x","host":null,"pid":1,"label":null,"new":null}"#,
        r#"{"owner":"x","host":null,"pid":1}"#,
        r#"{"owner":"x","host":null,"pid":"1","label":null}"#,
    ] {
        assert!(schema.validate("waiter", &parse(wrong)).is_err(), "{wrong}");
    }
    let event = |time: &str| parse(&format!(r#"{{"event":"released","name":"x","time":"{time}"}}"#));
    schema.check("event", &event("2026-11-16T06:13:46.250Z"));
    for wrong in ["2026-11-16T06:13:46Z", "2026-13-16T06:13:46.250Z", "1794964585103"] {
        assert!(schema.validate("event", &event(wrong)).is_err(), "{wrong}");
    }
}

async fn locks_match_the_schema(fixture: Fixture) {
    let schema = Schema::load();
    let client = fixture.client("holder").await;
    let fair = client.fair_lock("fair");
    let guard = fair.lock().await.unwrap();
    guard.announce().await.unwrap();
    let waiter = fixture.client("waiter").await.fair_lock("fair");
    let waiter = tokio::spawn(async move { waiter.lock().await });
    while fair.inspect().await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    let _fenced = client.fenced_lock("fenced").lock().await.unwrap();
    let _reader = client.read_write_lock("read-write").reader().lock().await.unwrap();
    let _plain = client.plain_lock("plain").lock().await.unwrap();
    client.lock("kept").lock().await.unwrap().unlock_after(Duration::from_secs(600)).await.unwrap();
    let slots = client.permit_semaphore("slots");
    slots.set_permits(3).await.unwrap();
    let permits = slots.acquire(2).await.unwrap();
    permits.announce().await.unwrap();
    let listed = fixture.objects(&["ls", "--json"]).await;
    for lock in &listed {
        schema.check("lock", lock);
    }
    let names: Vec<_> = listed.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fair", "fenced", "kept", "plain", "read-write", "slots"]);
    for name in [&names[..], &["unused"]].concat() {
        schema.check("lock", &fixture.objects(&["show", "--json", name]).await[0]);
    }
    // Otherwise, nothing is shown about these.
    assert!(
        listed[0]["queue"][0]["owner"].is_string() && listed[0]["holders"][0]["since"].is_string(),
        "{listed:?}"
    );
    assert!(listed[2]["holders"][0]["kept_until"].is_string(), "{listed:?}");
    assert!(listed[5]["holders"][1]["pid"].is_u64(), "{listed:?}");

    let watch = fixture.program(&["watch", "--json", "--interval", "50ms"]);
    let mut child = watch.printing_to(Stdio::piped(), Stdio::null()).start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in &names {
        let line =
            within(Duration::from_secs(20), "a line of watch", lines.next_line()).await.unwrap().unwrap();
        schema.check("change", &parse(&line));
    }
    waiter.abort();
}

async fn other_objects_match_the_schema(fixture: Fixture) {
    let schema = Schema::load();
    let findings = fixture.run(&["doctor", "--json"]).await.out;
    assert!(!findings.is_empty());
    for line in findings.lines() {
        schema.check("finding", &parse(line));
    }
    schema.check("held_lock", &fixture.objects(&["hold", "--json", "--for", "0", "nightly"]).await[0]);
    let bench = ["bench", "--json", "--time", "0.1", "--tasks", "2", "--compare", fixture.url()];
    let measurements = fixture.objects(&bench).await;
    for measurement in &measurements {
        schema.check("measurement", measurement);
    }
    // Otherwise, nothing is shown about them.
    assert!(measurements[1]["ratio_to_first"].is_object(), "{measurements:?}");
    let _holder = fixture.holding("orders").await;
    // Redis gets the age with the record of the client, a moment after the lock.
    let status = fixture.status_with_age(&[]).await;
    schema.check("status", &status);
    assert!(status["servers"][0].is_object() && status["oldest"]["holder"].is_object(), "{status}");
}

async fn events_match_the_schema(fixture: Fixture) {
    let schema = Schema::load();
    let mut seen = BTreeSet::new();
    let mut check = |text: &str| {
        for line in text.lines() {
            let event = parse(line);
            schema.check("event", &event);
            seen.insert(event["event"].as_str().unwrap().to_owned());
        }
    };
    // The default limit for connecting is short for a busy machine, with a short `--wait`.
    let url = fixture.url();
    let url = if url.starts_with("redis:") { format!("{url}?connect_timeout=1m") } else { url.to_owned() };
    let run = |arguments: &[&str]| -> Program {
        Program::new(&[&["run", "--json"], arguments].concat()).with_env("TURNLOCK_STORE", &url)
    };
    let endless = "trap '' TERM; while :; do sleep 1; done";
    for arguments in [
        &["--fenced", "released", "--", "true"][..],
        &["--permits", "2", "--at-least", "1m", "kept", "--", "true"],
        &["signalled", "--", "sh", "-c", "(kill -TERM $PPID) & exec sleep 60"],
        &["--lease", "2s", "ended", "--", "sh", "-c", endless],
    ] {
        check(&run(arguments).run().await.err);
    }
    let client = fixture.client("holder").await;
    let _guard = client.lock("held").lock().await.unwrap();
    check(&run(&["-w", "500ms", "held", "--", "true"]).run().await.err);
    let unreachable = run(&["-w", "1s", "x", "--", "true"]).with_env("TURNLOCK_STORE", "redis://127.0.0.1:1");
    check(&unreachable.run().await.err);

    let taken = run(&["--on-lost", "warn", "--watchdog", "1s", "taken", "--", "sleep", "60"]);
    let mut child = taken.printing_to(Stdio::null(), Stdio::piped()).start();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut text = String::new();
    while let Some(line) = within(Duration::from_secs(30), "an event", lines.next_line()).await.unwrap() {
        if line.contains(r#""event":"started""#) {
            assert!(client.lock("taken").force_unlock().await.unwrap());
        }
        if line.contains(r#""event":"warning""#) {
            program::signal(&child, "-TERM").await;
        }
        text = text + &line + "\n";
    }
    program::code_of(child).await;
    check(&text);
    let documented: BTreeSet<_> = documented_events().into_iter().map(|(event, _)| event).collect();
    assert_eq!(seen, documented, "each event was seen");
}
