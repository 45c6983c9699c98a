use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use turnlock_core::error_chain;

use super::event::Event;
use super::stderr_writer::StderrWriter;
use super::verbose;
use super::waiting_line::WaitingLine;
use crate::escape::{escape, escape_message, json_line};
use crate::lock_arguments::LockArguments;
use crate::timestamp::rfc_3339;

/// How long to wait for a slow reader before the command starts, so that our lines come before those of the command.
const FLUSH_BEFORE_COMMAND: Duration = Duration::from_millis(100);
/// How long to wait for a slow reader before the program exits.
const FLUSH_AT_EXIT: Duration = Duration::from_millis(500);

/// Reports the events of a run on standard error.
///
/// A reader that is slow or gone does not delay the run.
pub(crate) struct Reporter {
    name: String,
    format: Format,
    stderr_writer: StderrWriter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Verbose,
    Json,
    Quiet,
}

#[derive(Serialize)]
struct JsonEvent<'a> {
    #[serde(flatten)]
    event: &'a Event<'a>,
    name: &'a str,
    time: String,
}

impl Reporter {
    pub(crate) fn new(name: &str, arguments: &LockArguments) -> Self {
        let format = match arguments {
            LockArguments { json: true, .. } => Format::Json,
            LockArguments { quiet: true, .. } => Format::Quiet,
            LockArguments { verbose: true, .. } => Format::Verbose,
            _ => Format::Text,
        };
        Self { name: name.to_owned(), format, stderr_writer: StderrWriter::new(io::stderr()) }
    }

    /// Reports an event: as JSON, or its message if it has one.
    pub(crate) fn report(&self, event: &Event<'_>) {
        if self.format == Format::Json {
            self.write_json(event);
        } else if let Some(message) = self.message(event) {
            self.write_text(&format!("\"{}\": {}", escape(&self.name), escape_message(&message)));
        }
    }

    /// Returns `true` if this event is printed.
    pub(crate) fn prints(&self, event: &Event<'_>) -> bool {
        self.format == Format::Json || self.message(event).is_some()
    }

    fn message(&self, event: &Event<'_>) -> Option<String> {
        match self.format {
            // As flock(1), a conflict is not reported without a terminal: cron mails what a job prints.
            Format::Text if io::stderr().is_terminal() => event.message().or_else(|| verbose::gave_up(event)),
            Format::Text => event.message(),
            Format::Verbose => verbose::message(event),
            Format::Json | Format::Quiet => None,
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        self.report(&Event::Warning { text });
    }

    /// Reports the error that ends the run, also with `--quiet`.
    pub(crate) fn report_error(&self, error: &anyhow::Error) {
        let text = error_chain(error.as_ref());
        match self.format {
            Format::Json => self.write_json(&Event::Error { text: &text }),
            Format::Text | Format::Verbose | Format::Quiet => self.write_text(&escape_message(&text)),
        }
    }

    /// Reports that the command cannot be executed, as text in every format.
    pub(crate) fn report_spawn_error(&self, message: &str) {
        self.write_text(message);
    }

    /// Waits briefly until all lines are written, so that they come before those of the command.
    pub(crate) async fn flush_before_command(&self) {
        self.stderr_writer.flush(FLUSH_BEFORE_COMMAND).await;
    }

    /// Waits briefly until all lines are written.
    pub(crate) async fn finish(&self) {
        self.stderr_writer.flush(FLUSH_AT_EXIT).await;
    }

    /// The status line that is shown during the wait.
    pub(crate) fn waiting_line(&self) -> WaitingLine<'_> {
        WaitingLine::new(&self.stderr_writer)
    }

    /// Returns `true` if the waiting line is shown: text on a terminal.
    pub(crate) fn shows_waiting_line(&self) -> bool {
        matches!(self.format, Format::Text | Format::Verbose) && io::stderr().is_terminal()
    }

    fn write_json(&self, event: &Event<'_>) {
        let time = rfc_3339(SystemTime::now());
        let line = json_line(&JsonEvent { event, name: &self.name, time });
        self.stderr_writer.write(format!("{}\n", line.unwrap_or_default()));
    }

    fn write_text(&self, message: &str) {
        self.stderr_writer.write(format!("turnlock: {message}\n"));
    }
}
