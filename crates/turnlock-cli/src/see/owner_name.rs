//! How an owner is called.

use crate::visible::visible;

/// How many characters of a client's id tell it from others.
const SHORT: usize = 8;
/// An id in this form is random at its beginning, so that its first characters are enough.
const UUID: usize = 36;

/// An owner to a person who reads many: who it is with a short id, or the whole id where that is all there is.
pub(super) fn brief(who: Option<&str>, owner: &str) -> String {
    match who {
        None => visible(owner),
        Some(who) => format!("{who} {}", shortened(owner)),
    }
}

/// `host:pid (label)`, if that is known.
pub(super) fn who(host: Option<&str>, pid: Option<u32>, label: Option<&str>) -> Option<String> {
    let (host, pid) = (visible(host?), pid?);
    Some(match label.filter(|label| !label.is_empty()) {
        None => format!("{host}:{pid}"),
        Some(label) => format!("{host}:{pid} ({})", visible(label)),
    })
}

fn shortened(owner: &str) -> String {
    match owner.rsplit_once(':') {
        Some((client, number)) if client.len() == UUID && client.is_ascii() => {
            format!("{}…:{}", visible(&client[..SHORT]), visible(number))
        }
        _ => visible(owner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_short_where_more_is_known() {
        let owner = "07070707-1707-4707-8707-070707070707:12";
        assert_eq!(brief(None, owner), owner);
        let known = who(Some("web-1"), Some(42), Some("deploy.sh"));
        assert_eq!(brief(known.as_deref(), owner), "web-1:42 (deploy.sh) 07070707…:12");
        assert_eq!(who(Some("web-1"), Some(42), Some("")).as_deref(), Some("web-1:42"));
        assert_eq!(who(None, Some(42), Some("deploy.sh")), None);
    }

    #[test]
    fn a_hostile_owner_is_written_out() {
        assert_eq!(brief(None, "a\n\u{1b}[2J"), r"a\n\u{1b}[2J");
        let known = who(Some("h\n"), Some(1), Some("\u{1b}c"));
        assert_eq!(brief(known.as_deref(), "x\ty"), r"h\n:1 (\u{1b}c) x\ty");
    }
}
