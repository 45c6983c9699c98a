use serde::Serialize;
use turnlock::LostReason;

use crate::commands::LockHolders;

/// An event of a run, as `--json` prints it on standard error.
///
/// One object per line, each with `event`, `name` and `time` (RFC 3339, in UTC), and with these fields:
///
/// | `event` | when | fields |
/// |---|---|---|
/// | `waiting` | the lock was not granted at once | `holders` (list, or null if unknown) |
/// | `acquired` | the lock is held | `owner`, `token` (number or null), `waited_ms` |
/// | `started` | the command is executed; absent if it cannot be, or is killed before | `pid` |
/// | `signal` | a signal was received | `signal` (`"TERM"`), `forwarded`: whether it was forwarded to the command |
/// | `losing` | the lock is about to end, and the command was sent TERM; `hold` exits | `cause`, `reason`, `left_ms` until KILL, or until the end of the lock |
/// | `lost` | the lock is no longer held | `cause`, `reason`, `left_ms` until KILL if the command was sent TERM now, or null |
/// | `killed` | the command was sent KILL | |
/// | `exited` | the command has exited | `code` or null, `signal` or null |
/// | `released` | the store has confirmed the release | |
/// | `kept` | the lock stays held after this program exits (`--at-least`) | `for_ms` |
/// | `gave_up` | the lock was not acquired in time | `waited_ms`, `holders` (list, or null if unknown) |
/// | `warning`, `error` | a problem; after an error the program ends | `text` |
///
/// The lines of the command on standard error come between these. Further events and fields may be added.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Waiting {
        holders: Option<&'a LockHolders>,
    },
    Acquired {
        owner: &'a str,
        token: Option<u64>,
        waited_ms: u128,
    },
    Started {
        pid: i32,
    },
    Signal {
        signal: String,
        forwarded: bool,
    },
    Losing {
        #[serde(flatten)]
        cause: LossCause,
        left_ms: u128,
        #[serde(skip)]
        term_sent: bool,
    },
    Lost {
        #[serde(flatten)]
        cause: LossCause,
        left_ms: Option<u128>,
    },
    Killed,
    Exited {
        code: Option<i32>,
        signal: Option<String>,
    },
    Released,
    #[serde(rename = "kept")]
    UnlockDelayed {
        for_ms: u128,
    },
    GaveUp {
        waited_ms: u128,
        holders: Option<&'a LockHolders>,
        /// The flag that limits the wait, if it was not another reason.
        #[serde(skip)]
        flag: Option<&'static str>,
    },
    Warning {
        text: &'a str,
    },
    Error {
        text: &'a str,
    },
}

/// Why the lock is lost, or about to be lost.
#[derive(Debug, Serialize)]
pub(crate) struct LossCause {
    /// Identifier of the cause, for programs.
    #[serde(rename = "cause")]
    id: &'static str,
    /// The cause as text.
    reason: String,
}

impl LossCause {
    /// The cause of a loss.
    pub(crate) fn lost(reason: LostReason) -> Self {
        let id = match reason {
            LostReason::Expired => "lease_ended",
            LostReason::NotRenewed { .. } => "not_renewed",
            LostReason::Taken => "taken",
            LostReason::GoneAfterReconnect => "gone_after_reconnect",
            _ => "other",
        };
        Self { id, reason: reason.to_string() }
    }

    /// The cause of a loss that is about to happen.
    pub(crate) fn losing(reason: LostReason) -> Self {
        let cause = Self::lost(reason);
        match reason {
            LostReason::Expired => Self { reason: "its lease ends".to_owned(), ..cause },
            _ => cause,
        }
    }
}

impl Event<'_> {
    /// The text to print without `--json`, for events that are printed.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Self::Losing { cause, left_ms, term_sent } => {
                let next = if *term_sent { sent_term(*left_ms) } else { format!("it ends in {left_ms} ms") };
                Some(format!("the lock is about to be lost: {}; {next}", cause.reason))
            }
            Self::Lost { cause, left_ms: None } => Some(format!("the lock is lost: {}", cause.reason)),
            Self::Lost { cause, left_ms: Some(left_ms) } => {
                Some(format!("the lock is lost: {}; {}", cause.reason, sent_term(*left_ms)))
            }
            Self::Killed => Some("sent KILL to the command".to_owned()),
            Self::Warning { text } | Self::Error { text } => Some((*text).to_owned()),
            _ => None,
        }
    }
}

fn sent_term(left_ms: u128) -> String {
    format!("sent TERM to the command, KILL follows in {left_ms} ms")
}
