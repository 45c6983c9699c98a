use serde::Serialize;
use turnlock::LostReason;

/// What happens in a run, as `--json` tells it on standard error: one object a line, each with `event`, `name` and `time`
/// (milliseconds since 1970), and with
///
/// | `event` | when | and |
/// |---|---|---|
/// | `waiting` | the lock was not free at once | |
/// | `acquired` | the lock is held | `owner`, `token` (number or null), `waited_ms` |
/// | `started` | the command runs | `pid` |
/// | `signal` | a signal has come | `signal` (`"TERM"`), `forwarded`: whether it was sent on to the command |
/// | `losing` | the lock is about to end, and the command got TERM | `cause`, `reason`, `left_ms` until KILL |
/// | `lost` | the lock is not held any more | `cause`, `reason`, `left_ms` until KILL if the command got TERM now, or null |
/// | `killed` | the command was sent KILL | |
/// | `exited` | the command has ended | `code`, or null and `signal`, or null |
/// | `released` | the store has confirmed that the lock is free | |
/// | `kept` | the lock stays held without this program | `for_ms` |
/// | `gave_up` | the lock was not free in time | `waited_ms` |
/// | `warning`, `error` | something is not as it should be; after an error the program ends | `text` |
///
/// What the command itself writes on standard error stands between these lines. Further events and fields may be added.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Waiting,
    Acquired {
        owner: &'a str,
        token: Option<u64>,
        waited_ms: u128,
    },
    Started {
        pid: u32,
    },
    Signal {
        signal: String,
        forwarded: bool,
    },
    Losing {
        #[serde(flatten)]
        why: Why,
        left_ms: u128,
    },
    Lost {
        #[serde(flatten)]
        why: Why,
        left_ms: Option<u128>,
    },
    Killed,
    Exited {
        code: Option<i32>,
        signal: Option<String>,
    },
    Released,
    Kept {
        for_ms: u128,
    },
    GaveUp {
        waited_ms: u128,
    },
    Warning {
        text: &'a str,
    },
    Error {
        text: &'a str,
    },
}

/// Why the lock is lost, or is about to be.
#[derive(Debug, Serialize)]
pub(crate) struct Why {
    /// One of a few words, for programs.
    cause: &'static str,
    /// The same as a sentence.
    reason: String,
}

impl Why {
    /// Of a lock that is lost.
    pub(crate) fn lost(reason: LostReason) -> Self {
        let cause = match reason {
            LostReason::Expired => "lease_ended",
            LostReason::NotRenewed { .. } => "not_renewed",
            LostReason::Taken => "taken",
            LostReason::GoneAfterReconnect => "gone_after_reconnect",
            _ => "other",
        };
        Self { cause, reason: reason.to_string() }
    }

    /// Of a lock that is going to end in this way.
    pub(crate) fn losing(reason: LostReason) -> Self {
        let why = Self::lost(reason);
        match reason {
            LostReason::Expired => Self { reason: "its lease ends".to_owned(), ..why },
            _ => why,
        }
    }
}

impl Event<'_> {
    /// What people are told of it, if it concerns them: they see the command come and go by themselves.
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Self::Losing { why, left_ms } => {
                Some(format!("the lock is about to be lost: {}; {}", why.reason, told_to_end(*left_ms)))
            }
            Self::Lost { why, left_ms: None } => Some(format!("the lock is lost: {}", why.reason)),
            Self::Lost { why, left_ms: Some(left_ms) } => {
                Some(format!("the lock is lost: {}; {}", why.reason, told_to_end(*left_ms)))
            }
            Self::Killed => Some("the command was killed".to_owned()),
            Self::Warning { text } | Self::Error { text } => Some((*text).to_owned()),
            _ => None,
        }
    }
}

fn told_to_end(left_ms: u128) -> String {
    format!("the command was told to end, and is killed in {left_ms} ms")
}
