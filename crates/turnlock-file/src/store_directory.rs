use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, flock, fstat, mkdirat, openat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::access::{Access, DIRECTORY, allow, is_group_directory};
use super::accounts;
use super::clients_directory::ClientsDirectory;
use super::file_error::FileError;
use super::store_path::StorePath;

/// The directory of a store, opened: all that is created is created relative to it.
///
/// Others may be able to write to the directory of a private store. So owner and mode are set only through
/// descriptors of files that this process has just created. A directory is opened by its name after that, so it is
/// checked: see [`is_new`].
#[derive(Debug)]
pub(super) struct StoreDirectory<'a> {
    store_path: &'a StorePath,
    directory: OwnedFd,
    found: Stat,
}

impl<'a> StoreDirectory<'a> {
    pub(super) fn open(store_path: &'a StorePath) -> io::Result<Self> {
        let directory = openat(CWD, store_path.directory(), DIRECTORY, Mode::empty())?;
        let found = fstat(&directory)?;
        Ok(Self { store_path, directory, found })
    }

    /// Returns who may use the store, by its directory and the mode of the database.
    pub(super) fn access(&self) -> io::Result<Access> {
        let database = self.stat("", AtFlags::empty())?;
        let is_group_file = |file: &Stat| file.st_mode & 0o060 == 0o060 && file.st_gid == self.found.st_gid;
        if is_group_directory(self.found.st_uid, self.found.st_mode)
            && database.as_ref().is_none_or(is_group_file)
        {
            return Ok(Access::Group);
        }
        Ok(Access::Private(database.map(|file| (Uid::from_raw(file.st_uid), Gid::from_raw(file.st_gid)))))
    }

    /// Describes who may use the store, in a sentence.
    pub(super) fn users(&self) -> io::Result<String> {
        Ok(match self.access()? {
            Access::Group => {
                format!("Root and the members of group {} share it.", accounts::group(self.found.st_gid))
            }
            Access::Private(owner) => {
                let owner = owner.map_or_else(geteuid, |(user, _)| user);
                format!(
                    "It is private to {}, and other users do not share it.",
                    accounts::user(owner.as_raw())
                )
            }
        })
    }

    /// Rejects files that another user may have put there to have this process change something else.
    ///
    /// In a directory that others can write to, they can do that after the check, too. No shared store is in one.
    pub(super) fn check(&self) -> Result<(), FileError> {
        let is_link = |file: &Stat| FileType::from_raw_mode(file.st_mode) == FileType::Symlink;
        let is_foreign = |file: &Stat| ![0, geteuid().as_raw()].contains(&file.st_uid);
        let is_writable_by_others = is_foreign(&self.found) || self.found.st_mode & 0o022 != 0;
        self.reject("", "a symbolic link of another user", |file| is_link(file) && is_foreign(file))?;
        // SQLite deletes the files that are named in it.
        self.reject("-journal", "a file of another user", is_foreign)?;
        for suffix in ["-wal", "-shm"] {
            self.reject(suffix, "a file with another name (a hard link)", |file| {
                is_writable_by_others && file.st_nlink > 1
            })?;
        }
        self.reject(".clients", "a symbolic link, or not a directory", |file| {
            FileType::from_raw_mode(file.st_mode) != FileType::Directory
        })?;
        let access = self.access().map_err(FileError::at(&self.store_path.database))?;
        let owns_store = |user| matches!(access, Access::Private(Some((owner, _))) if owner.as_raw() == user);
        self.reject(".clients", "a directory of another user, who could end locks", |clients| {
            is_foreign(clients) && !owns_store(clients.st_uid)
        })
    }

    /// Rejects a file of the store that is `bad`.
    fn reject(&self, suffix: &str, what: &str, is_bad: impl Fn(&Stat) -> bool) -> Result<(), FileError> {
        let path = self.store_path.directory().join(self.name(suffix));
        match self.stat(suffix, AtFlags::SYMLINK_NOFOLLOW).map_err(FileError::at(&path))? {
            Some(file) if is_bad(&file) => Err(FileError::Denied(format!(
                "{} is {what}; it belongs to {}. Use another path",
                path.display(),
                accounts::owner_and_mode(file.st_uid, file.st_gid, file.st_mode)
            ))),
            _ => Ok(()),
        }
    }

    /// Opens the directory of the clients, to create files in it.
    pub(super) fn clients(&self) -> io::Result<ClientsDirectory> {
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let directory = openat(&self.directory, self.name(".clients"), flags, Mode::empty())?;
        Ok(ClientsDirectory::new(directory, self.access()?))
    }

    /// Creates the directory of the clients, if it does not exist.
    pub(super) fn create_clients(&self) -> io::Result<()> {
        match mkdirat(&self.directory, self.name(".clients"), Mode::RWXU) {
            Err(Errno::EXIST) => return Ok(()),
            // The error of a directory without permission to write may come first.
            Err(_) if self.stat(".clients", AtFlags::empty())?.is_some() => return Ok(()),
            outcome => outcome?,
        }
        let created = self.open_readable(".clients")?;
        let access = self.access()?;
        match access {
            // In the directory of a group, only root can rename.
            Access::Private(Some((owner, _))) if geteuid().is_root() && !is_new(&created)? => {
                // Some file systems give all files to one user.
                if fstat(&created)?.st_uid == owner.as_raw() {
                    return Ok(());
                }
                let reason = "another process has replaced the directory that was just created";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
            }
            _ => allow(&created, access, Mode::from_raw_mode(0o2770)),
        }
    }

    /// Creates the database, and removes what is left of an earlier one. Returns `false` if it exists.
    pub(super) fn create_database(&self) -> Result<bool, FileError> {
        let at = || FileError::at(&self.store_path.database);
        // Locked, so that no process removes what another one has just created.
        let lock = self.open_readable(".clients").map_err(at())?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(FileError::Busy),
            outcome => outcome.map_err(io::Error::from).map_err(at())?,
        }
        self.create_locked().map_err(at())
    }

    fn create_locked(&self) -> io::Result<bool> {
        if self.stat("", AtFlags::empty())?.is_some() {
            return Ok(false);
        }
        for suffix in ["-wal", "-shm"] {
            match unlinkat(&self.directory, self.name(suffix), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let access = self.access()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = openat(&self.directory, self.name(""), flags, Mode::RUSR | Mode::WUSR)?;
        // SQLite gives its other files the owner and the mode of this one.
        allow(&created, access, Mode::from_raw_mode(0o660))?;
        Ok(true)
    }

    fn open_readable(&self, suffix: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.directory, self.name(suffix), flags, Mode::empty())?)
    }

    /// The name of a file of the store: that of the database with a suffix.
    fn name(&self, suffix: &str) -> OsString {
        let mut name = self.store_path.database.file_name().unwrap_or_default().to_owned();
        name.push(suffix);
        name
    }

    fn stat(&self, suffix: &str, flags: AtFlags) -> io::Result<Option<Stat>> {
        match statat(&self.directory, self.name(suffix), flags) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns `true` if a directory can be one that this process has just created: its own, private and empty.
///
/// A user who owns the directory above can rename another directory to its name. One that is empty has nothing to
/// protect.
fn is_new(directory: &OwnedFd) -> io::Result<bool> {
    let found = fstat(directory)?;
    // The bit of a directory of a group is inherited.
    if found.st_uid != geteuid().as_raw() || found.st_mode & 0o5077 != 0 {
        return Ok(false);
    }
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use turnlock_testkit::TempDir;

    use super::*;

    #[test]
    fn only_an_empty_private_directory_of_this_user_counts_as_just_created() {
        let parent = TempDir::new();
        let path = parent.path().join("locks.clients");
        let is_new =
            || is_new(&openat(CWD, &path, OFlags::RDONLY, Mode::empty()).expect("there")).expect("read");
        mkdirat(CWD, &path, Mode::RWXU).expect("created");
        assert!(is_new());
        for (mode, expected) in
            [(0o755, false), (0o710, false), (0o1700, false), (0o2700, true), (0o700, true)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its owner");
            assert_eq!(is_new(), expected, "{mode:o}");
        }
        let entry = path.join("file");
        fs::write(&entry, "").expect("written");
        assert!(!is_new());
        fs::remove_file(&entry).expect("there");
        assert!(is_new());
        if geteuid().is_root() {
            chown(&path, Some(47_001), None).expect("root");
            assert!(!is_new());
        }
    }
}
