//! Names of users and groups, for error texts.
//!
//! Read from `/etc/passwd` and `/etc/group`. An account of another source is shown by its number.

use rustix::process::{getegid, geteuid, getgroups};

/// Returns the name of a user, or its number.
pub(super) fn user(id: u32) -> String {
    name_in("/etc/passwd", id).unwrap_or_else(|| format!("user {id}"))
}

/// Returns the name of a group, or its number.
pub(super) fn group(id: u32) -> String {
    name_in("/etc/group", id).unwrap_or_else(|| id.to_string())
}

/// Returns the user that this process runs as.
pub(super) fn this_user() -> String {
    user(geteuid().as_raw())
}

/// Returns `true` if this process is in a group.
pub(super) fn is_in_group(id: u32) -> bool {
    getegid().as_raw() == id
        || getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == id))
}

/// Describes who owns a file: `root:turnlock (mode 2750)`.
pub(super) fn owner_and_mode(owner: u32, group_id: u32, mode: impl Into<u32>) -> String {
    format!("{}:{} (mode {:04o})", user(owner), group(group_id), mode.into() & 0o7777)
}

/// Both files have lines of `name:password:id:…`.
fn name_in(file: &str, id: u32) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    find_name(&text, id).map(str::to_owned)
}

fn find_name(text: &str, id: u32) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_its_number() {
        let text =
            "root:x:0:0:root:/root:/bin/sh\n\n# a comment\n+::::::\n:x:7:\ndeploy:x:1001:1001::/:\nbad:x\n";
        assert_eq!(find_name(text, 0), Some("root"));
        assert_eq!(find_name(text, 1001), Some("deploy"));
        assert_eq!((find_name(text, 7), find_name(text, 1)), (None, None));
    }
}
