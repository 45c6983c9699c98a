use std::time::Duration;

use turnlock::{Client, Error, Kind};

use crate::escape::escape;
use crate::exit_code::DataError;
use crate::lock_arguments::LockArguments;

/// The longest time to query what a name is used for.
const QUERY_LIMIT: Duration = Duration::from_secs(1);

/// Explains an error by the flags of `run` if the name is in use as another kind of lock. Other errors are returned.
pub(super) async fn explain(
    error: Error,
    client: &Client,
    name: &str,
    arguments: &LockArguments,
) -> anyhow::Error {
    match conflict(&error, client, name, arguments).await {
        Some(text) => DataError(text).into(),
        None => error.into(),
    }
}

async fn conflict(error: &Error, client: &Client, name: &str, arguments: &LockArguments) -> Option<String> {
    let found = match error {
        Error::WrongKind { found, .. } => *found,
        // On Redis, the keys of some kinds differ only in their types.
        Error::NotALock { .. } => {
            tokio::time::timeout(QUERY_LIMIT, client.inspect(name)).await.ok()?.ok()??.kind
        }
        _ => return None,
    };
    text(name, found, flag(arguments))
}

/// The flag that selects the kind of the lock.
fn flag(arguments: &LockArguments) -> Option<&'static str> {
    match arguments {
        LockArguments { permits: Some(_), .. } => Some("--permits"),
        LockArguments { read: true, .. } => Some("-s"),
        LockArguments { write: true, .. } => Some("-x"),
        LockArguments { fair: true, .. } => Some("--fair"),
        LockArguments { fenced: true, .. } => Some("--fenced"),
        LockArguments { plain: true, .. } => Some("--plain"),
        _ => None,
    }
}

/// `None` if the name is in use as the requested kind.
fn text(name: &str, found: Kind, requested: Option<&str>) -> Option<String> {
    let (noun, flags): (_, &[_]) = match found {
        Kind::Lock | Kind::Spin => ("a lock", &[]),
        Kind::Fair => ("a fair lock", &["--fair"]),
        Kind::Fenced => ("a fenced lock", &["--fenced"]),
        Kind::Read | Kind::Write => ("a read-write lock", &["-s", "-x"]),
        Kind::Plain => ("a plain lock", &["--plain"]),
        Kind::Permits => ("a permit semaphore", &["--permits"]),
        Kind::Semaphore | Kind::Latch => ("a semaphore or latch", &[]),
        _ => return None,
    };
    let is_lock = matches!(found, Kind::Lock | Kind::Spin);
    if requested.map_or(is_lock, |flag| flags.contains(&flag)) {
        return None;
    }
    let advice = match (requested, flags) {
        (_, [_, ..]) => format!("give {} here, or use another name", flags.join(" or ")),
        (Some(flag @ ("-s" | "-x")), []) if is_lock => {
            format!("leave {flag} out here, give -x wherever no flag is given, or use another name")
        }
        (Some(flag), []) if is_lock => format!("leave {flag} out here, or use another name"),
        (_, []) => "use another name".to_owned(),
    };
    let requested = requested.unwrap_or("a lock");
    let name = escape(name);
    Some(format!(
        "\"{name}\" is in use as {noun}; {requested} was asked for. A name has one kind everywhere: {advice}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_of_kinds_names_the_flags() {
        for (found, requested, expected) in [
            (
                Kind::Lock,
                Some("--fair"),
                "a lock; --fair was asked for. A name has one kind everywhere: leave --fair out here",
            ),
            (
                Kind::Fair,
                None,
                "a fair lock; a lock was asked for. A name has one kind everywhere: give --fair here",
            ),
            (
                Kind::Lock,
                Some("-s"),
                "leave -s out here, give -x wherever no flag is given, or use another name",
            ),
            (Kind::Write, Some("--plain"), "give -s or -x here, or use another name"),
            (Kind::Permits, Some("-x"), "a permit semaphore; -x was asked for"),
            (
                Kind::Latch,
                None,
                "a semaphore or latch; a lock was asked for. A name has one kind everywhere: use another",
            ),
        ] {
            let text = text("k", found, requested).expect("a conflict");
            assert!(text.starts_with("\"k\" is in use as ") && text.contains(expected), "{text}");
        }
        for (found, requested) in [(Kind::Read, Some("-s")), (Kind::Read, Some("-x")), (Kind::Spin, None)] {
            assert_eq!(text("k", found, requested), None);
        }
    }
}
