//! Formats owners for tables and messages.

use crate::escape::escape;

/// Number of characters of a client id that are shown.
const SHORT_ID_LEN: usize = 8;
/// Length of a client id that is a UUID. Its first characters are random.
const UUID_LEN: usize = 36;
/// Length of the id of a permit: hexadecimal digits.
const PERMIT_LEN: usize = 32;

/// Formats an owner in one line: its identity and a short id, or the whole id if the identity is unknown.
pub(super) fn short(identity: Option<&str>, owner: &str) -> String {
    match identity {
        None => escape(owner),
        Some(identity) => format!("{identity} {}", short_id(owner)),
    }
}

/// Formats an identity as `host:pid (label)`, or `host (label)` without a process. `None` if it is unknown.
pub(super) fn identity(host: Option<&str>, pid: Option<u32>, label: Option<&str>) -> Option<String> {
    let host = escape(host?);
    let address = pid.map_or_else(|| host.clone(), |pid| format!("{host}:{pid}"));
    Some(match label.filter(|label| !label.is_empty()) {
        None => address,
        Some(label) => format!("{address} ({})", escape(label)),
    })
}

fn short_id(owner: &str) -> String {
    match owner.rsplit_once(':') {
        Some((client, number)) if client.len() == UUID_LEN && client.is_ascii() => {
            format!("{}…:{}", escape(&client[..SHORT_ID_LEN]), escape(number))
        }
        // The id of a permit.
        None if owner.len() == PERMIT_LEN && owner.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("{}…", &owner[..SHORT_ID_LEN])
        }
        _ => escape(owner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_with_an_identity_has_a_short_id() {
        let owner = "07070707-1707-4707-8707-070707070707:12";
        assert_eq!(short(None, owner), owner);
        let known = identity(Some("web-1"), Some(42), Some("deploy.sh"));
        assert_eq!(short(known.as_deref(), owner), "web-1:42 (deploy.sh) 07070707…:12");
        assert_eq!(identity(Some("web-1"), Some(42), Some("")).as_deref(), Some("web-1:42"));
        assert_eq!(identity(Some("web-1"), None, Some("deploy.sh")).as_deref(), Some("web-1 (deploy.sh)"));
        assert_eq!(identity(None, Some(42), Some("deploy.sh")), None);
        let permit = "0123456789abcdef0123456789abcdef";
        assert_eq!(short(known.as_deref(), permit), "web-1:42 (deploy.sh) 01234567…");
        assert_eq!(short(None, permit), permit);
    }

    #[test]
    fn control_characters_in_an_owner_are_escaped() {
        assert_eq!(short(None, "a\n\u{1b}[2J"), r"a\n\u{1b}[2J");
        let known = identity(Some("h\n"), Some(1), Some("\u{1b}c"));
        assert_eq!(short(known.as_deref(), "x\ty"), r"h\n:1 (\u{1b}c) x\ty");
    }
}
