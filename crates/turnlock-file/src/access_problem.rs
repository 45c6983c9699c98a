//! Why the files of a store cannot be used: which file, who owns it, and what to do.
//!
//! `SQLite` and the operating system report only that something failed. So the files are examined after a failure.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::io::Errno;
use turnlock_store::FailureKind;

use super::access::is_group_directory;
use super::accounts;
use super::store_path::StorePath;

/// Explains why the directory of a store cannot be one, if it does not exist.
pub(super) fn of_missing_directory(directory: &Path) -> Option<String> {
    if directory.is_dir() {
        return None;
    }
    for path in from_the_root(directory) {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Some(format!("{} is not a directory: use another path", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Some(format!(
                    "the directory {} does not exist: create it, or use another path",
                    directory.display()
                ));
            }
            // It may exist.
            Err(_) => return None,
        }
    }
    None
}

/// Finds out why the files of a store cannot be used. `None` if there is no known reason.
pub(super) fn find(store_path: &StorePath) -> Option<FailureKind> {
    let directory = store_path.directory();
    let of_parents = from_the_root(directory)
        .find_map(|path| find_at(store_path, path, Access::EXEC_OK, "cannot use files below"));
    let path_of = |suffix: &str| {
        let mut path = store_path.database.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    };
    let of_file = |suffix: &str| {
        let path = path_of(suffix);
        let of_reading = find_at(store_path, &path, Access::READ_OK, "cannot read");
        of_reading.or_else(|| find_at(store_path, &path, Access::WRITE_OK, "cannot write to"))
    };
    // The directory of a shared store is not writable, and need not be if all files exist.
    let is_incomplete = || ["", "-wal", "-shm", ".clients"].iter().any(|suffix| !path_of(suffix).exists());
    // The directory of the default store may have to be created.
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(directory);
    let create = Access::WRITE_OK | Access::EXEC_OK;
    of_parents
        .or_else(|| of_file(""))
        .or_else(|| {
            is_incomplete().then(|| find_at(store_path, existing, create, "cannot create files in")).flatten()
        })
        .or_else(|| {
            find_at(store_path, &store_path.clients, create | Access::READ_OK, "cannot create files in")
        })
        .or_else(|| of_file("-wal"))
        .or_else(|| of_file("-shm"))
        .or_else(|| are_files_scarce().then(|| too_many_files(store_path)))
        .or_else(|| is_full(directory).then(|| full_disk(store_path)))
}

/// Returns `true` if this process cannot open as many files as a store needs.
///
/// A connection that failed has closed its files by now.
fn are_files_scarce() -> bool {
    const NEEDED: usize = 8;
    let opened: io::Result<Vec<File>> = (0..NEEDED).map(|_| File::open("/")).collect();
    let errno = opened.err().and_then(|error| error.raw_os_error());
    [Errno::MFILE, Errno::NFILE].iter().any(|scarce| errno == Some(scarce.raw_os_error()))
}

fn too_many_files(store_path: &StorePath) -> FailureKind {
    let text = format!(
        "cannot open {store_path}: too many open files. Close some, or raise the limit of this process (ulimit -n)"
    );
    unavailable(io::ErrorKind::Other, text)
}

/// The failure of a file system without free space.
pub(super) fn full_disk(store_path: &StorePath) -> FailureKind {
    let text = format!(
        "no space is left for {store_path}: free some on the file system of {}, or use another path",
        store_path.directory().display()
    );
    unavailable(io::ErrorKind::StorageFull, text)
}

fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|found| {
        found.f_blocks > 0 && found.f_bavail == 0 || found.f_files > 0 && found.f_favail == 0
    })
}

/// Explains why this process has no such access to a path, if it has none.
fn find_at(store_path: &StorePath, path: &Path, access: Access, what: &str) -> Option<FailureKind> {
    let shown = path.display();
    match accessat(CWD, path, access, AtFlags::EACCESS) {
        Err(Errno::ROFS) => {
            let text = format!(
                "{what} {shown}: its file system is mounted read-only. Use a path on another file system"
            );
            Some(denied(io::ErrorKind::ReadOnlyFilesystem, text))
        }
        Err(Errno::ACCESS | Errno::PERM) => {
            // Without access to its directory, which is examined first, there would be none.
            let found = fs::metadata(path).ok()?;
            let owner = accounts::owner_and_mode(found.uid(), found.gid(), found.mode());
            let (user, advice) = (accounts::this_user(), advice(store_path, &found));
            let text =
                format!("{what} {shown}: it belongs to {owner}, and this process runs as {user}. {advice}");
            Some(denied(io::ErrorKind::PermissionDenied, text))
        }
        _ => None,
    }
}

fn advice(store_path: &StorePath, found: &Metadata) -> String {
    if !is_group_directory(found.uid(), found.mode()) {
        return "Use another path, or share a store: root can create one for a group, in a directory of mode 2750"
            .to_owned();
    }
    let (group, user) = (accounts::group(found.gid()), accounts::this_user());
    if accounts::is_in_group(found.gid()) {
        return format!("Root creates the files: run `turnlock --store file:{store_path} ls` as root once");
    }
    if group.parse::<u32>().is_ok() || user.contains(' ') {
        return format!("Add the user to group {group}, and log in again; or use another path");
    }
    format!("Run `usermod -aG {group} {user}` as root, and log in again; or use another path")
}

/// A path and its parents, from the root.
fn from_the_root(path: &Path) -> impl Iterator<Item = &Path> {
    let paths: Vec<_> = path.ancestors().collect();
    paths.into_iter().rev()
}

fn denied(kind: io::ErrorKind, text: String) -> FailureKind {
    FailureKind::Denied(Arc::new(io::Error::new(kind, text)))
}

fn unavailable(kind: io::ErrorKind, text: String) -> FailureKind {
    FailureKind::Unavailable(Arc::new(io::Error::new(kind, text)))
}
