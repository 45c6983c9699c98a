use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use turnlock_core::error_chain;

use super::event::Event;
use super::stderr_writer::StderrWriter;
use super::waiting_line::WaitingLine;
use crate::escape::{escape, escape_message, json_line};
use crate::lock_arguments::LockArguments;

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
            _ => Format::Text,
        };
        Self { name: name.to_owned(), format, stderr_writer: StderrWriter::new(io::stderr()) }
    }

    /// Reports an event: as JSON, or its message if it has one.
    pub(crate) fn report(&self, event: &Event<'_>) {
        match self.format {
            Format::Json => self.write_json(event),
            Format::Text => {
                if let Some(message) = event.message() {
                    self.write_text(&format!("\"{}\": {}", escape(&self.name), escape_message(&message)));
                }
            }
            Format::Quiet => {}
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
            Format::Text | Format::Quiet => self.write_text(&escape_message(&text)),
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

    /// Returns `true` if the waiting line is shown: text format on a terminal.
    pub(crate) fn shows_waiting_line(&self) -> bool {
        self.format == Format::Text && io::stderr().is_terminal()
    }

    fn write_json(&self, event: &Event<'_>) {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let line = json_line(&JsonEvent { event, name: &self.name, time });
        self.stderr_writer.write(format!("{}\n", line.unwrap_or_default()));
    }

    fn write_text(&self, message: &str) {
        self.stderr_writer.write(format!("turnlock: {message}\n"));
    }
}
