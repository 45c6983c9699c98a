use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::backend::redis::Secret;
use crate::error::Error;

/// A user, and the source of its password, as configured. Files and variables are not read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) password_env: Option<String>,
}

/// The names of the settings, for errors.
#[derive(Debug)]
pub(crate) struct CredentialNames {
    pub(crate) user: &'static str,
    pub(crate) password: &'static str,
    pub(crate) password_file: &'static str,
    pub(crate) password_env: &'static str,
}

/// The settings for the servers.
pub(crate) const SERVER_SETTINGS: CredentialNames = CredentialNames {
    user: "user",
    password: "password",
    password_file: "password_file",
    password_env: "password_env",
};

/// The settings for the sentinels.
pub(crate) const SENTINEL_SETTINGS: CredentialNames = CredentialNames {
    user: "sentinel_user",
    password: "sentinel_password",
    password_file: "sentinel_password_file",
    password_env: "sentinel_password_env",
};

impl Credentials {
    /// Returns the name of the first setting that is set.
    pub(crate) fn first_set(&self, names: &CredentialNames) -> Option<&'static str> {
        [
            (self.user.is_some(), names.user),
            (self.password.is_some(), names.password),
            (self.password_file.is_some(), names.password_file),
            (self.password_env.is_some(), names.password_env),
        ]
        .into_iter()
        .find_map(|(is_set, name)| is_set.then_some(name))
    }

    /// Returns the user and the password. Reads the file or the variable.
    pub(crate) fn resolve(self, names: &CredentialNames) -> Result<(Option<String>, Option<Secret>), Error> {
        let sources = [
            (self.password.is_some(), names.password),
            (self.password_file.is_some(), names.password_file),
            (self.password_env.is_some(), names.password_env),
        ];
        let mut set = sources.into_iter().filter_map(|(is_set, name)| is_set.then_some(name));
        if let (Some(first), Some(second)) = (set.next(), set.next()) {
            let reason = format!("set by `{first}` and by `{second}`; leave one of them out");
            return Err(Error::bad_setting(names.password, reason));
        }
        let password = match (self.password, self.password_file, self.password_env) {
            (Some(password), _, _) => Some(check_not_empty(names.password, password)?),
            (_, Some(path), _) => Some(from_file(names.password_file, &path)?),
            (_, _, Some(variable)) => Some(from_environment(names.password_env, &variable)?),
            (None, None, None) => None,
        };
        // The user is not shown: it can be a password without the colon before it.
        match (&self.user, &password) {
            (Some(user), _) if user.is_empty() => {
                Err(Error::bad_setting(names.user, "empty; leave it out for the default user"))
            }
            (Some(_), None) => Err(Error::bad_setting(
                names.user,
                "a user needs a password; in a URL, a password is written after a colon, with or without a user \
                 (redis://:PASSWORD@host). For a user without a password, set any text",
            )),
            _ => Ok((self.user, password)),
        }
    }
}

fn check_not_empty(setting: &'static str, password: Secret) -> Result<Secret, Error> {
    if password.reveal().is_empty() {
        return Err(Error::bad_setting(setting, "empty; leave it out, or set a password"));
    }
    Ok(password)
}

fn from_file(setting: &'static str, path: &Path) -> Result<Secret, Error> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        // The error must not show the content.
        io::ErrorKind::InvalidData => {
            Error::bad_setting(setting, format!("{} is not UTF-8 text", path.display()))
        }
        _ => Error::bad_setting(setting, format!("{} cannot be read: {error}", path.display())),
    })?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(Error::bad_setting(setting, format!("{} is empty", path.display())));
    }
    Ok(Secret::new(line))
}

fn from_environment(setting: &'static str, variable: &str) -> Result<Secret, Error> {
    let bad =
        |reason: &str| Error::bad_setting(setting, format!("the environment variable {variable} {reason}"));
    // `var_os` can panic on such a name.
    if variable.is_empty() || variable.contains(['=', '\0']) {
        return Err(Error::bad_setting(
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

    fn file(content: &str) -> PathBuf {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("turnlock-password-{}-{count}", std::process::id()));
        fs::write(&path, content).expect("a file can be written");
        path
    }

    fn password_in_file(content: &str) -> Result<Option<Secret>, Error> {
        let path = file(content);
        let credentials = Credentials { password_file: Some(path.clone()), ..Credentials::default() };
        let outcome = credentials.resolve(&SERVER_SETTINGS).map(|(_, password)| password);
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
    fn a_missing_file_is_named() {
        let credentials =
            Credentials { password_file: Some("/nowhere/at/all".into()), ..Credentials::default() };
        let error = credentials.resolve(&SENTINEL_SETTINGS).expect_err("no file").to_string();
        assert!(error.contains("sentinel_password_file") && error.contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn a_missing_variable_is_named() {
        for (variable, text) in [("TURNLOCK_NO_SUCH_VARIABLE", "TURNLOCK_NO_SUCH_VARIABLE"), ("a=b", "name")]
        {
            let credentials =
                Credentials { password_env: Some(variable.to_owned()), ..Credentials::default() };
            let error = credentials.resolve(&SERVER_SETTINGS).expect_err("no variable").to_string();
            assert!(error.contains("password_env") && error.contains(text), "{error}");
        }
    }
}
