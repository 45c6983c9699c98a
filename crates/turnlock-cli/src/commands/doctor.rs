use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use turnlock::Client;
use turnlock::doctor::{Finding, Level};

use crate::arguments::{DoctorArguments, StoreArguments};
use crate::escape::{escape_message, json_line};
use crate::store;

/// Exit code if there are warnings or dangers.
const PROBLEMS_FOUND: u8 = 1;

/// A finding, as printed with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct FindingObject<'a> {
    level: String,
    topic: String,
    server: Option<&'a str>,
    text: &'a str,
}

/// `turnlock doctor`: checks the store for settings that endanger locks.
pub(crate) async fn doctor(store: &StoreArguments, arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let client = store::connect(store, Client::builder()).await?;
    let report = match &arguments.names {
        None => client.doctor().await,
        Some(prefix) => client.doctor_with_prefix(prefix).await,
    };
    let mut out = anstream::stdout().lock();
    for (index, finding) in report.findings.iter().enumerate() {
        if arguments.json {
            writeln!(out, "{}", json_line(&FindingObject::new(finding))?)?;
        } else {
            let separator = if index == 0 { "" } else { "\n" };
            let style = style(finding.level);
            // A finding may quote the server.
            let text = escape_message(&finding.to_string());
            let (level, rest) = text.split_once(':').unwrap_or(("", &text));
            writeln!(out, "{separator}{style}{level}{style:#}:{rest}")?;
        }
    }
    out.flush()?;
    let has_problems = report.problems().next().is_some();
    Ok(if has_problems { ExitCode::from(PROBLEMS_FOUND) } else { ExitCode::SUCCESS })
}

impl<'a> FindingObject<'a> {
    pub(super) fn new(finding: &'a Finding) -> Self {
        Self {
            level: finding.level.to_string().to_lowercase(),
            topic: finding.topic.to_string(),
            server: finding.server.as_deref(),
            text: &finding.text,
        }
    }
}

fn style(level: Level) -> Style {
    match level {
        Level::Fine => AnsiColor::Green.on_default(),
        Level::Warning => AnsiColor::Yellow.on_default().bold(),
        Level::Danger => AnsiColor::Red.on_default().bold(),
        _ => Style::new().dimmed(),
    }
}
