use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use turnlock::Client;
use turnlock::doctor::{Finding, Level};

use crate::arguments::{DoctorArguments, StoreArguments};
use crate::store;
use crate::visible::{harmless, json};

/// There is something to be done.
const TROUBLE: u8 = 1;

/// A finding, as an object.
#[derive(Serialize)]
struct FindingObject<'a> {
    level: String,
    topic: String,
    server: Option<&'a str>,
    text: &'a str,
}

/// `turnlock doctor`: what endangers locks on this store.
pub(crate) async fn doctor(store: &StoreArguments, arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let client = store::connect(store, Client::builder()).await?;
    let report = match &arguments.names {
        None => client.doctor().await,
        Some(beginning) => client.doctor_for_names(beginning).await,
    };
    let mut out = anstream::stdout().lock();
    for (at, finding) in report.findings.iter().enumerate() {
        if arguments.json {
            writeln!(out, "{}", json(&FindingObject::of(finding))?)?;
        } else {
            let end = if at == 0 { "" } else { "\n" };
            let style = style(finding.level);
            // The server's own words may be among ours.
            let text = harmless(&finding.to_string());
            let (level, rest) = text.split_once(':').unwrap_or(("", &text));
            writeln!(out, "{end}{style}{level}{style:#}:{rest}")?;
        }
    }
    out.flush()?;
    let has_trouble = report.troubles().next().is_some();
    Ok(if has_trouble { ExitCode::from(TROUBLE) } else { ExitCode::SUCCESS })
}

impl<'a> FindingObject<'a> {
    fn of(finding: &'a Finding) -> Self {
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
