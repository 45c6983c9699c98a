//! The store of the machine, which root and the members of a group share.
//!
//! A package creates the directory. The path is fixed: a file elsewhere would be another store.

use turnlock::Error;

/// The URL of the store. It is the same store with `--store`.
pub(crate) const URL: &str = "file:/var/lib/turnlock/locks";

const DIRECTORY: &str = "/var/lib/turnlock";

/// The commands that create the directory, and the store in it.
const CREATE: &str = "getent group turnlock || groupadd --system turnlock; install -d -o root -g turnlock -m 2750 \
                      /var/lib/turnlock; turnlock --system ls";

/// Rejects a directory that does not exist, or in which a store would not be shared.
///
/// Whether this user may use it is reported by the store itself.
#[cfg(unix)]
pub(crate) fn check() -> Result<(), Error> {
    use std::os::unix::fs::MetadataExt;

    use turnlock_file::is_group_directory;

    // Not a symbolic link, and of root: no other user can replace it.
    let reason = match std::fs::symlink_metadata(DIRECTORY) {
        Ok(found) if found.is_dir() && is_group_directory(found.uid(), found.mode()) => return Ok(()),
        Ok(found) => format!(
            "it must be a directory of root with mode 2750. It belongs to user {} and \
             group {}, with mode {:04o}. Run as root: chown root:turnlock {DIRECTORY}; chmod 2750 {DIRECTORY}",
            found.uid(),
            found.gid(),
            found.mode() & 0o7777
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("it does not exist. Run as root: {CREATE}")
        }
        Err(error) => format!("{error}"),
    };
    Err(unusable(&reason))
}

#[cfg(not(unix))]
pub(crate) fn check() -> Result<(), Error> {
    Err(unusable("it needs a Unix system"))
}

fn unusable(reason: &str) -> Error {
    Error::BadConfiguration {
        setting: "--system",
        reason: format!("the store of this machine cannot be used, {DIRECTORY}: {reason}"),
    }
}
