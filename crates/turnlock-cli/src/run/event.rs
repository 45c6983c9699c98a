use serde::Serialize;

/// What happens in a run, as `--json` tells it on standard error: one object a line, each with `event`, `name` and `time`
/// (milliseconds since 1970), and with
///
/// | `event` | when | and |
/// |---|---|---|
/// | `waiting` | the lock was not free at once | |
/// | `acquired` | the lock is held | `owner`, `token` (number or null), `waited_ms` |
/// | `started` | the command runs | `pid` |
/// | `signal` | a signal has come | `signal` (`"TERM"`), `forwarded`: whether it was sent on to the command |
/// | `losing` | the lock ends or has ended, and the command was told to end | `left_ms` until it is killed |
/// | `lost` | the lock is not held any more | `reason` |
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
    Acquired { owner: &'a str, token: Option<u64>, waited_ms: u128 },
    Started { pid: u32 },
    Signal { signal: String, forwarded: bool },
    Losing { left_ms: u128 },
    Lost { reason: String },
    Killed,
    Exited { code: Option<i32>, signal: Option<String> },
    Released,
    Kept { for_ms: u128 },
    GaveUp { waited_ms: u128 },
    Warning { text: &'a str },
    Error { text: &'a str },
}

impl Event<'_> {
    /// What people are told of it, if it concerns them: they see the command come and go by themselves.
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Self::Losing { left_ms } => Some(format!(
                "the lock is about to be lost: the command was told to end, and is killed in {left_ms} ms"
            )),
            Self::Lost { reason } => Some(format!("the lock is lost: {reason}")),
            Self::Killed => Some("the command was killed".to_owned()),
            Self::Warning { text } | Self::Error { text } => Some((*text).to_owned()),
            _ => None,
        }
    }
}
