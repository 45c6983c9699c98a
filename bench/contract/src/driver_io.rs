//! The lines between a participant and the driver, on stdin and stdout.

use std::io::{self, Write};

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::report::{Report, Unsupported};

/// The lines from the driver.
pub(crate) struct DriverInput(Lines<BufReader<Stdin>>);

impl DriverInput {
    /// Reports that the participant is ready, and opens the input.
    pub(crate) fn ready() -> Self {
        send("ready");
        Self(BufReader::new(tokio::io::stdin()).lines())
    }

    /// The next line, or `None` at the end of the input.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.next_line().await.ok().flatten()
    }

    /// Sends the report, and waits until the driver has inspected this process and closes its input.
    pub(crate) async fn finish(mut self, report: &Report) {
        send_json(report);
        while self.next().await.is_some() {}
    }
}

/// Sends one line to the driver.
pub(crate) fn send(line: &str) {
    let mut out = io::stdout().lock();
    // A driver that is gone is noticed by the end of the input.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Reports that the library does not support the workload.
pub(crate) fn send_unsupported(why: String) {
    send_json(&Unsupported { unsupported: why });
}

fn send_json(message: &impl Serialize) {
    send(&serde_json::to_string(message).expect("serializable as JSON"));
}
