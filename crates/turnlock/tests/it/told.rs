//! Nothing happens in silence: the events that a subscriber of `tracing` hears.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use turnlock::Client;
use turnlock_testkit::{FaultProxy, eventually};

use crate::rig::{PROMPT, Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![every_turn_of_events_is_told_and_no_password_with_it];

/// Writes down every event of this crate: its message, with its level and fields.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<BTreeMap<String, (Level, String)>>>);

impl Diary {
    fn has(&self, message: &str) -> bool {
        self.0.lock().unwrap().keys().any(|told| told.starts_with(message))
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.fields, "{}={value:?} ", field.name()).unwrap();
        }
    }
}

impl Subscriber for Diary {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("turnlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().insert(line.message, (*event.metadata().level(), line.fields));
    }
}

async fn every_turn_of_events_is_told_and_no_password_with_it(rig: Rig) {
    let diary = Diary::default();
    let told = diary.clone();
    // With one subscriber alone, `tracing` asks the thread that comes by an event first whether anybody listens, and that may
    // be one of another case.
    let _second = tracing::Dispatch::new(Diary::default());
    // One thread, so that a subscriber of that thread hears everything.
    let scene = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tracing::subscriber::with_default(told.clone(), || runtime.block_on(scene(&rig, &told)));
    };
    tokio::task::spawn_blocking(scene).await.unwrap();
    for (message, level) in [
        ("acquired", Level::DEBUG),
        ("held by another: waiting", Level::DEBUG),
        ("renewed", Level::TRACE),
        ("released", Level::DEBUG),
        ("lost", Level::WARN),
        ("in doubt", Level::WARN),
    ] {
        let told = diary.0.lock().unwrap();
        let (_, (at, fields)) = told
            .iter()
            .find(|(told, _)| told.starts_with(message))
            .unwrap_or_else(|| panic!("{message:?} was not told: {told:?}"));
        assert_eq!(*at, level, "{message}");
        assert!(fields.contains("name="), "{message}: {fields}");
    }
    let everything = format!("{:?}", diary.0.lock().unwrap());
    assert!(!everything.contains("c4n4ry"), "{everything}");
}

async fn scene(rig: &Rig, diary: &Diary) {
    let mut plain = rig.plain().await;
    let set = ["SETUSER", "worker", "on", ">c4n4ry", "~*", "&*", "+@all"];
    let _: () = redis::cmd("ACL").arg(&set).query_async(&mut plain).await.unwrap();
    let proxy = FaultProxy::start(rig.server().port()).await;
    let url = format!("redis://worker:c4n4ry@127.0.0.1:{}", proxy.port());
    let client = Client::builder().watchdog(ms(3_000)).retry_for(ms(100)).connect(&url).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    let other = Client::connect(&rig.server().url()).await.unwrap();
    assert!(other.lock("a").try_lock_for(ms(20)).await.unwrap().is_none());
    eventually("it is renewed", PROMPT, async || diary.has("renewed")).await;
    guard.unlock().await.unwrap();
    let guard = client.lock("a").lease(ms(300)).lock().await.unwrap();
    guard.lost().await;
    proxy.hold_request(b"held-back");
    assert!(tokio::time::timeout(ms(30), client.lock("held-back").lock()).await.is_err());
    eventually("it is in doubt", PROMPT, async || diary.has("in doubt")).await;
}
