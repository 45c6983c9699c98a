use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// An event of turnlock, as a line of a log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// How severe it is.
    pub level: Level,
    /// What happened.
    pub message: String,
    /// The other fields, as `name=value ` one after the other.
    pub fields: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.message, self.fields)
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            write!(self.fields, "{}={value:?} ", field.name()).expect("a string grows");
        }
    }
}

/// A subscriber of `tracing` that passes the events of turnlock to a function, and does nothing with spans.
pub struct LogSubscriber<F> {
    max_level: Level,
    receive: F,
}

impl<F: Fn(LogLine) + Send + Sync + 'static> LogSubscriber<F> {
    /// Passes events of `max_level`, and more severe ones, to `receive`.
    pub fn new(max_level: Level, receive: F) -> Self {
        Self { max_level, receive }
    }
}

impl<F> fmt::Debug for LogSubscriber<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogSubscriber").field("max_level", &self.max_level).finish_non_exhaustive()
    }
}

impl<F: Fn(LogLine) + Send + Sync + 'static> Subscriber for LogSubscriber<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.max_level && metadata.target().starts_with("turnlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (message, fields) = (String::new(), String::new());
        let mut line = LogLine { level: *event.metadata().level(), message, fields };
        event.record(&mut line);
        (self.receive)(line);
    }
}
