use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use turnlock_testkit::TempDir;

use crate::packages::output;

/// The root of a system that has nothing but what a case puts there.
#[derive(Debug)]
pub(crate) struct CleanRoot(TempDir);

impl CleanRoot {
    /// An empty root.
    pub(crate) fn empty() -> Self {
        let directory = TempDir::new();
        output(Command::new("chmod").arg("755").arg(directory.path()));
        Self(directory)
    }

    /// A root with these programs of this machine and the libraries that they load, and without users.
    pub(crate) fn with_programs(programs: &[&str]) -> Self {
        let root = Self::empty();
        for program in programs {
            let libraries = output(Command::new("ldd").arg(program));
            let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
            for file in libraries.chain([*program]) {
                root.add(Path::new(file), file);
            }
        }
        for directory in ["dev", "etc"] {
            fs::create_dir_all(root.path(directory)).unwrap();
        }
        fs::write(root.path("dev/null"), "").unwrap();
        fs::write(root.path("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        fs::write(root.path("etc/group"), "root:x:0:\n").unwrap();
        root
    }

    /// The path on this machine of a path in the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    /// Copies a file to a path in the root.
    pub(crate) fn add(&self, file: &Path, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(file, path).unwrap();
    }

    /// Runs a program in the root, as this user and group, with these variables only. Returns its output.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        user: &str,
        variables: &[(&str, &str)],
        command: &[S],
    ) -> String {
        let mut chroot = Command::new("/usr/sbin/chroot");
        chroot.arg(format!("--userspec={user}")).arg(self.0.path()).args(command);
        output(chroot.env_clear().envs(variables.iter().copied()))
    }
}
