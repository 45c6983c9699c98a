//! The lines between a participant and the driver.

use std::io::{self, Write};

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::report::{Refused, Report};

/// What the driver says.
pub(crate) struct Orders(Lines<BufReader<Stdin>>);

impl Orders {
    /// Says that everything is warm and waits for the beginning.
    pub(crate) fn ready() -> Self {
        say("ready");
        Self(BufReader::new(tokio::io::stdin()).lines())
    }

    /// The next line; nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.next_line().await.ok().flatten()
    }

    /// Says how it went, and stays until the driver has seen all that it wants to see of this process.
    pub(crate) async fn finish(mut self, report: &Report) {
        say_json(report);
        while self.next().await.is_some() {}
    }
}

/// One line to the driver.
pub(crate) fn say(line: &str) {
    let mut out = io::stdout().lock();
    // If nobody listens any more, the end of the input will tell.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Says that there is no such thing here.
pub(crate) fn refuse(why: String) {
    say_json(&Refused { cannot: why });
}

fn say_json(said: &impl Serialize) {
    say(&serde_json::to_string(said).expect("numbers and words can be written as JSON"));
}
