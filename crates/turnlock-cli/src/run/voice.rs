use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::event::Event;
use super::scribe::Scribe;
use super::waiting_line::WaitingLine;
use crate::exit_code;
use crate::run_arguments::RunArguments;
use crate::visible::{self, harmless, visible};

/// How long to wait for a reader before the command starts, so that what was said before stands before what the command says.
const BEFORE_THE_COMMAND: Duration = Duration::from_millis(100);
/// How long to wait for a reader at the end of the program.
const AT_THE_END: Duration = Duration::from_millis(500);

/// How a run speaks, on standard error. Whether anybody reads it makes no difference to the run.
pub(crate) struct Voice {
    name: String,
    manner: Manner,
    scribe: Scribe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Words,
    Json,
    Silent,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: &'a Event<'a>,
    name: &'a str,
    time: u128,
}

impl Voice {
    pub(crate) fn new(name: &str, arguments: &RunArguments) -> io::Result<Self> {
        let manner = match arguments {
            RunArguments { json: true, .. } => Manner::Json,
            RunArguments { quiet: true, .. } => Manner::Silent,
            _ => Manner::Words,
        };
        Ok(Self { name: name.to_owned(), manner, scribe: Scribe::start(io::stderr())? })
    }

    /// Tells an event to a program, and the words of it, if there are any, to people.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        match self.manner {
            Manner::Json => self.line(event),
            Manner::Words => {
                if let Some(words) = event.words() {
                    self.say(&format!("\"{}\": {}", visible(&self.name), harmless(&words)));
                }
            }
            Manner::Silent => {}
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        self.tell(&Event::Warning { text });
    }

    /// Tells why nothing came of it, which is told to people in any case.
    pub(crate) fn fail(&self, error: &anyhow::Error) {
        let text = exit_code::words_of(error);
        match self.manner {
            Manner::Json => self.line(&Event::Error { text: &text }),
            Manner::Words | Manner::Silent => self.say(&harmless(&text)),
        }
    }

    /// Says to people, in any case, why the command cannot be run.
    pub(crate) fn refuse(&self, text: &str) {
        self.say(text);
    }

    /// Waits until what was said is written, so that the command speaks after us; not for long.
    pub(crate) async fn make_way(&self) {
        self.scribe.settle(BEFORE_THE_COMMAND).await;
    }

    /// Waits until the last words are written; not for long.
    pub(crate) async fn finish(&self) {
        self.scribe.settle(AT_THE_END).await;
    }

    /// A line for those who look on while something is waited for.
    pub(crate) fn waiting_line(&self) -> WaitingLine<'_> {
        WaitingLine::new(&self.scribe)
    }

    /// Whether somebody looks on who would like to know what is waited for.
    pub(crate) fn has_audience(&self) -> bool {
        self.manner == Manner::Words && io::stderr().is_terminal()
    }

    fn line(&self, event: &Event<'_>) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let line = visible::json(&Line { event, name: &self.name, time });
        self.scribe.write(format!("{}\n", line.unwrap_or_default()));
    }

    fn say(&self, words: &str) {
        self.scribe.write(format!("turnlock: {words}\n"));
    }
}
