//! Who may use a store, and how its files show that.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown};
use rustix::process::geteuid;

/// Who may use a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The user who created it, and root. Holds the owner and group of the database, if it exists.
    Private(Option<(Uid, Gid)>),
    /// Root and the group of its directory.
    Group,
}

/// Allows others to use a file or directory that this process has created.
///
/// Root may use the private store of any user, who must be able to check whether root's client is alive.
pub(super) fn allow(created: &OwnedFd, access: Access, group_mode: Mode) -> io::Result<()> {
    match access {
        Access::Group => fchmod(created, group_mode)?,
        Access::Private(Some((user, group))) if geteuid().is_root() => {
            // Fails where the owner is unknown, as in some containers, and then its user cannot be here either.
            let _ = fchown(created, Some(user), Some(group));
        }
        Access::Private(_) => {}
    }
    Ok(())
}

/// Flags to open a directory whose entries are used. Needs no permission to list it where the system can do that.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns `true` for a directory in which new stores are those of its group: of root, with mode 2750.
///
/// Members of the group cannot create files in it. If they could, they could have other users of the store delete
/// or overwrite files elsewhere, by a rollback journal that names them, or by links in place of the files of `SQLite`.
pub fn is_group_directory(owner: u32, mode: impl Into<u32>) -> bool {
    owner == 0 && mode.into() & 0o2077 == 0o2050
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_of_root_with_mode_2750_is_shared() {
        assert!(is_group_directory(0, 0o042_750_u32));
        assert!(!is_group_directory(1, 0o042_750_u32));
        for mode in [0o700, 0o750, 0o755, 0o770, 0o2700, 0o2755, 0o2770, 0o2775, 0o3770, 0o1777, 0o777] {
            assert!(!is_group_directory(0, 0o040_000_u32 | mode), "{mode:o}");
        }
    }
}
