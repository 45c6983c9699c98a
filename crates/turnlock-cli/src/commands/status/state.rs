use std::fmt;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

/// Exit code of [`State::Unknown`], and of usage errors.
pub(crate) const UNKNOWN: u8 = 3;

/// The state of a store, by the convention of Nagios plugins. The worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Unknown,
    Warning,
    Critical,
}

impl State {
    pub(super) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => UNKNOWN,
        })
    }

    pub(super) fn style(self) -> Style {
        match self {
            Self::Ok => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default().bold(),
            Self::Critical => AnsiColor::Red.on_default().bold(),
            Self::Unknown => AnsiColor::Magenta.on_default(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        })
    }
}
