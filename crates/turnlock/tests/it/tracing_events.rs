//! The `tracing` events of this crate.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use turnlock::Client;
use turnlock_testkit::{FaultProxy, eventually};

use crate::fixture::{Fixture, PROMPT, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![every_state_change_is_logged_and_no_password_is];

/// Collects the events of this crate: the message of each, with its level and fields.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<BTreeMap<String, (Level, String)>>>);

impl EventLog {
    fn has(&self, message: &str) -> bool {
        self.0.lock().unwrap().keys().any(|logged| logged.starts_with(message))
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

impl Subscriber for EventLog {
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

async fn every_state_change_is_logged_and_no_password_is(fixture: Fixture) {
    let log = EventLog::default();
    let subscriber = log.clone();
    // With a single subscriber, `tracing` caches the interest of the thread that first reaches an event, which may belong to
    // another case.
    let _second = tracing::Dispatch::new(EventLog::default());
    // One thread, so that a thread-local subscriber receives all events.
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tracing::subscriber::with_default(subscriber.clone(), || {
            runtime.block_on(cause_events(&fixture, &subscriber));
        });
    };
    tokio::task::spawn_blocking(body).await.unwrap();
    for (message, level) in [
        ("acquired", Level::DEBUG),
        ("waiting for the lock", Level::DEBUG),
        ("renewed", Level::TRACE),
        ("released", Level::DEBUG),
        ("lost", Level::WARN),
        ("request in doubt", Level::WARN),
    ] {
        let logged = log.0.lock().unwrap();
        let (_, (logged_level, fields)) = logged
            .iter()
            .find(|(text, _)| text.starts_with(message))
            .unwrap_or_else(|| panic!("{message:?} was not logged: {logged:?}"));
        assert_eq!(*logged_level, level, "{message}");
        assert!(fields.contains("name="), "{message}: {fields}");
    }
    let everything = format!("{:?}", log.0.lock().unwrap());
    assert!(!everything.contains("c4n4ry"), "{everything}");
}

async fn cause_events(fixture: &Fixture, log: &EventLog) {
    let mut plain = fixture.raw_connection().await;
    let set = ["SETUSER", "worker", "on", ">c4n4ry", "~*", "&*", "+@all"];
    let _: () = redis::cmd("ACL").arg(&set).query_async(&mut plain).await.unwrap();
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let url = format!("redis://worker:c4n4ry@127.0.0.1:{}", proxy.port());
    let client =
        Client::builder().watchdog_timeout(ms(3_000)).retry_for(ms(100)).connect(&url).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    let other = Client::connect(&fixture.server().url()).await.unwrap();
    assert!(other.lock("a").try_lock_for(ms(20)).await.unwrap().is_busy());
    eventually("it is renewed", PROMPT, async || log.has("renewed")).await;
    guard.unlock().await.unwrap();
    let guard = client.lock("a").with_lease(ms(300)).lock().await.unwrap();
    guard.lost().await;
    proxy.hold_request(b"held-back");
    assert!(tokio::time::timeout(ms(30), client.lock("held-back").lock()).await.is_err());
    eventually("it is in doubt", PROMPT, async || log.has("request in doubt")).await;
}
