use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, mknodat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::access::{Access, DIRECTORY, allow};
use super::store_path::StorePath;

/// The directory with the files of the clients, opened.
///
/// Others may be able to write to it: no symbolic link is followed, no open blocks, and what is opened is checked.
#[derive(Debug)]
pub(super) struct ClientsDirectory {
    directory: OwnedFd,
    access: Access,
}

impl ClientsDirectory {
    pub(super) fn new(directory: OwnedFd, access: Access) -> Self {
        Self { directory, access }
    }

    /// Opens the directory, to read and remove files.
    pub(super) fn open(store_path: &StorePath) -> io::Result<Self> {
        let directory = openat(CWD, &store_path.clients, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self::new(directory, Access::Private(None)))
    }

    /// Opens a file that exists.
    pub(super) fn open_file(&self, name: &str, access_mode: OFlags) -> io::Result<File> {
        let flags = access_mode | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(openat(&self.directory, name, flags, Mode::empty())?.into())
    }

    /// Creates a file, in place of one that this client had before.
    pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?;
        // Reading is enough for the shared lock of another client.
        allow(&file, self.access, Mode::from_raw_mode(0o640))?;
        Ok(file.into())
    }

    /// Creates a named pipe. Returns its reading and its writing end.
    pub(super) fn create_pipe(&self, name: &str) -> io::Result<(File, File)> {
        self.remove(name)?;
        mknodat(&self.directory, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let receiver = OwnedFd::from(self.open_file(name, OFlags::RDONLY)?);
        let created = fstat(&receiver)?;
        // It was opened by its name, which may be that of another file by now.
        if !is_pipe(&created) || created.st_uid != geteuid().as_raw() || created.st_nlink > 1 {
            return Err(replaced());
        }
        allow(&receiver, self.access, Mode::from_raw_mode(0o620))?;
        let sender = self.open_file(name, OFlags::WRONLY)?;
        let same = fstat(&sender)?;
        if (same.st_dev, same.st_ino) != (created.st_dev, created.st_ino) {
            return Err(replaced());
        }
        Ok((receiver.into(), sender))
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the names of the files. Names that are not UTF-8 are left out.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = openat(&self.directory, ".", flags, Mode::empty());
        let entries = readable.and_then(Dir::new).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
    }
}

/// Returns `true` if this is a named pipe.
pub(super) fn is_pipe(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Fifo
}

fn replaced() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "another process has replaced the pipe of this client")
}
