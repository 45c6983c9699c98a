use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use turnlock_store::{Secret, SettingError};

/// A user, and the source of its password, as configured: each setting with its name, for errors.
pub(super) struct Credentials<'a> {
    pub(super) user: (&'static str, &'a Option<String>),
    pub(super) password: (&'static str, &'a Option<Secret>),
    pub(super) file: (&'static str, &'a Option<PathBuf>),
    pub(super) variable: (&'static str, &'a Option<String>),
}

impl Credentials<'_> {
    /// Returns the name of the first setting that is set.
    pub(super) fn first_set(&self) -> Option<&'static str> {
        self.user.1.as_ref().map(|_| self.user.0).or_else(|| self.sources().next())
    }

    /// Returns the names of the settings that give a password.
    fn sources(&self) -> impl Iterator<Item = &'static str> {
        let Self { password, file, variable, .. } = self;
        let sources = [
            (password.0, password.1.is_some()),
            (file.0, file.1.is_some()),
            (variable.0, variable.1.is_some()),
        ];
        sources.into_iter().filter_map(|(name, is_set)| is_set.then_some(name))
    }

    /// Returns the user and the password. Reads the file or the variable.
    pub(super) fn resolve(&self) -> Result<(Option<String>, Option<Secret>), SettingError> {
        let mut sources = self.sources();
        if let (Some(first), Some(second)) = (sources.next(), sources.next()) {
            let reason = format!("set by `{first}` and by `{second}`; leave one of them out");
            return Err(SettingError::new(self.password.0, reason));
        }
        let password = match (self.password, self.file, self.variable) {
            ((name, Some(password)), _, _) => Some(check_not_empty(name, password)?),
            (_, (name, Some(path)), _) => Some(from_file(name, path)?),
            (_, _, (name, Some(variable))) => Some(from_environment(name, variable)?),
            _ => None,
        };
        // The user is not shown: it can be a password without the colon before it.
        let (name, user) = self.user;
        match (user, &password) {
            (Some(user), _) if user.is_empty() => {
                Err(SettingError::new(name, "empty; leave it out for the default user"))
            }
            (Some(_), None) => Err(SettingError::new(
                name,
                "a user needs a password; in a URL, a password is written after a colon, with or without a user \
                 (redis://:PASSWORD@host). For a user without a password, set any text",
            )),
            _ => Ok((user.clone(), password)),
        }
    }
}

fn check_not_empty(setting: &'static str, password: &Secret) -> Result<Secret, SettingError> {
    if password.reveal().is_empty() {
        return Err(SettingError::new(setting, "empty; leave it out, or set a password"));
    }
    Ok(password.clone())
}

/// The longest file with a password, in bytes. A device has no end.
const MAX_FILE_LEN: u64 = 64 * 1024;

fn from_file(setting: &'static str, path: &Path) -> Result<Secret, SettingError> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_FILE_LEN + 1).read_to_string(&mut text));
    let len = read.map_err(|error| match error.kind() {
        // The error must not show the content.
        io::ErrorKind::InvalidData => {
            SettingError::new(setting, format!("{} is not UTF-8 text", path.display()))
        }
        _ => SettingError::new(setting, format!("{} cannot be read: {error}", path.display())),
    })?;
    if u64::try_from(len).is_ok_and(|len| len > MAX_FILE_LEN) {
        return Err(SettingError::new(setting, format!("{} is too long for a password", path.display())));
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(SettingError::new(setting, format!("{} is empty", path.display())));
    }
    Ok(Secret::new(line))
}

fn from_environment(setting: &'static str, variable: &str) -> Result<Secret, SettingError> {
    let bad =
        |reason: &str| SettingError::new(setting, format!("the environment variable {variable} {reason}"));
    // `var_os` can panic on such a name.
    if variable.is_empty() || variable.contains(['=', '\0']) {
        return Err(SettingError::new(
            setting,
            "this cannot be the name of an environment variable: it is empty, or contains = or NUL",
        ));
    }
    match std::env::var_os(variable).map(std::ffi::OsString::into_string) {
        None => Err(bad("is not set")),
        Some(Err(_)) => Err(bad("is not UTF-8 text")),
        Some(Ok(password)) if password.is_empty() => Err(bad("is empty")),
        Some(Ok(password)) => Ok(Secret::new(password)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RedisSettings;

    fn file(content: &str) -> PathBuf {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("turnlock-password-{}-{count}", std::process::id()));
        fs::write(&path, content).expect("a file can be written");
        path
    }

    fn password_in_file(content: &str) -> Result<Option<Secret>, SettingError> {
        let path = file(content);
        let settings = RedisSettings { password_file: Some(path.clone()), ..RedisSettings::default() };
        let outcome = settings.credentials().resolve().map(|(_, password)| password);
        fs::remove_file(path).expect("a temporary file");
        outcome
    }

    #[test]
    fn one_line_end_is_removed() {
        for (content, password) in
            [("pass", "pass"), ("pass\n", "pass"), ("pass\r\n", "pass"), ("pass \n\n", "pass \n")]
        {
            assert_eq!(
                password_in_file(content).expect("a password"),
                Some(Secret::new(password)),
                "{content:?}"
            );
        }
    }

    #[test]
    fn an_empty_file_is_named() {
        for content in ["", "\n", "\r\n"] {
            let error = password_in_file(content).expect_err("an empty file").to_string();
            assert!(error.contains("password_file") && error.contains("turnlock-password-"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_password_is_named_and_not_shown() {
        let long = "quokka".repeat(20_000);
        for (content, text) in [(&*long, "too long"), ("quokka\n", "")] {
            match password_in_file(content) {
                Ok(password) => assert_eq!(password, Some(Secret::new("quokka"))),
                Err(error) => {
                    assert!(error.reason.contains(text) && !error.reason.contains("quokka"), "{error}");
                }
            }
        }
        assert!(password_in_file(&long).is_err() && password_in_file(&"q".repeat(64 * 1024)).is_ok());
    }

    #[test]
    fn a_missing_file_is_named() {
        let path = Some("/nowhere/at/all".into());
        let settings = RedisSettings { sentinel_password_file: path, ..RedisSettings::default() };
        let error = settings.sentinel_credentials().resolve().expect_err("no file").to_string();
        assert!(error.contains("sentinel_password_file") && error.contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn a_missing_variable_is_named() {
        for (variable, text) in [("TURNLOCK_NO_SUCH_VARIABLE", "TURNLOCK_NO_SUCH_VARIABLE"), ("a=b", "name")]
        {
            let settings =
                RedisSettings { password_env: Some(variable.to_owned()), ..RedisSettings::default() };
            let error = settings.credentials().resolve().expect_err("no variable").to_string();
            assert!(error.contains("password_env") && error.contains(text), "{error}");
        }
    }
}
