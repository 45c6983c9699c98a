use std::fmt;
use std::path::{Path, PathBuf};

use turnlock_store::{SettingError, percent_decode, settings};

settings! {
    /// The settings of a file store.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct FileSettings;
    pub in_text {
        /// `true` to accept a file system that is not known to be local.
        any_file_system: bool,
    }
    in_code {}
    parts {}
}

impl FileSettings {
    /// Parses what follows `file:` in a URL. Returns the path too; an empty one is the default store of this user.
    ///
    /// `file:PATH` is a path as it is; `file://` starts a standard URL. A `?` can be a part of both, so only a
    /// setting of a file store is parsed as a parameter.
    pub fn parse_url(rest: &str) -> Result<(PathBuf, Self), SettingError> {
        let mut settings = Self::default();
        let parameter = rest.rsplit_once('?').and_then(|(path, pair)| Some((path, pair.split_once('=')?)));
        let rest = match parameter {
            Some((path, (name, value))) if settings.set(name, value)? => path,
            _ => rest,
        };
        let Some(standard) = rest.strip_prefix("//") else { return Ok((rest.into(), settings)) };
        let path = standard.strip_prefix("localhost").unwrap_or(standard);
        if !path.starts_with('/') {
            let reason = "not a path; write it as file:/var/lib/jobs.locks or file:///var/lib/jobs.locks";
            return Err(bad_url(reason));
        }
        Ok((PathBuf::from(&*percent_decode("url", path)?), settings))
    }
}

/// The location of a store: a file, and beside it a directory with the files of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePath {
    pub(super) database: PathBuf,
    pub(super) clients: PathBuf,
    /// `true` for the default path, whose parent directory is created if it does not exist.
    pub(super) is_default: bool,
    /// `true` to accept a file system that is not known to be local.
    pub(super) any_file_system: bool,
}

impl StorePath {
    /// Resolves a path. An empty path is the default store of this user.
    ///
    /// The default is in the state directory and not in the runtime directory, which cron jobs do not have: a
    /// cron job and a shell of the same user must use the same store.
    pub fn new(path: &Path, settings: &FileSettings) -> Result<Self, SettingError> {
        let any_file_system = settings.any_file_system.unwrap_or_default();
        if path.as_os_str().is_empty() {
            let state = state_directory().ok_or_else(|| {
                bad_url(
                    "the default store needs a home directory, and there is none: give a path, as in \
                     file:/var/lib/jobs.locks",
                )
            })?;
            let database = state.join("turnlock").join("locks");
            return Ok(Self { any_file_system, is_default: true, ..Self::at(database) });
        }
        let path = std::path::absolute(path)
            .map_err(|error| bad_url(format!("the path {} cannot be resolved: {error}", path.display())))?;
        if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(bad_url(format!(
                "the path {} is a directory: give a file in it, as in file:/var/lib/jobs.locks",
                path.display()
            )));
        }
        Ok(Self { any_file_system, ..Self::at(path) })
    }

    /// Returns `true` if there is a file. It is also `true` if that cannot be found out.
    pub fn exists(&self) -> bool {
        self.database.try_exists().unwrap_or(true)
    }

    fn at(database: PathBuf) -> Self {
        let mut clients = database.clone().into_os_string();
        clients.push(".clients");
        Self { database, clients: clients.into(), is_default: false, any_file_system: false }
    }

    /// The directory of the store.
    pub(super) fn directory(&self) -> &Path {
        self.database.parent().unwrap_or(Path::new("/"))
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.database.display().fmt(f)
    }
}

fn state_directory() -> Option<PathBuf> {
    let xdg = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    xdg.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".local/state")))
}

/// The `SQLite` application id of a store, which is in the header of the file.
pub(super) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"turn");

fn bad_url(reason: impl Into<String>) -> SettingError {
    SettingError::new("url", reason)
}
