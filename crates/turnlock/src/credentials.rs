use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::backend::redis::Secret;
use crate::error::Error;

/// Who connects, and where the password comes from: as it was said, not looked up yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) password_env: Option<String>,
}

/// What the settings are called, for errors.
#[derive(Debug)]
pub(crate) struct CredentialNames {
    pub(crate) user: &'static str,
    pub(crate) password: &'static str,
    pub(crate) password_file: &'static str,
    pub(crate) password_env: &'static str,
}

/// Those for the servers that keep the locks.
pub(crate) const OF_SERVERS: CredentialNames = CredentialNames {
    user: "user",
    password: "password",
    password_file: "password_file",
    password_env: "password_env",
};

/// Those for the sentinels.
pub(crate) const OF_SENTINELS: CredentialNames = CredentialNames {
    user: "sentinel_user",
    password: "sentinel_password",
    password_file: "sentinel_password_file",
    password_env: "sentinel_password_env",
};

impl Credentials {
    /// The first setting that was said.
    pub(crate) fn first_said(&self, names: &CredentialNames) -> Option<&'static str> {
        [
            (self.user.is_some(), names.user),
            (self.password.is_some(), names.password),
            (self.password_file.is_some(), names.password_file),
            (self.password_env.is_some(), names.password_env),
        ]
        .into_iter()
        .find_map(|(said, name)| said.then_some(name))
    }

    /// The user and the password, read from wherever it is.
    pub(crate) fn resolve(self, names: &CredentialNames) -> Result<(Option<String>, Option<Secret>), Error> {
        let sources = [
            (self.password.is_some(), names.password),
            (self.password_file.is_some(), names.password_file),
            (self.password_env.is_some(), names.password_env),
        ];
        let mut said = sources.into_iter().filter_map(|(said, name)| said.then_some(name));
        if let (Some(first), Some(second)) = (said.next(), said.next()) {
            let reason =
                format!("the password comes from `{first}` and from `{second}`; leave one of them out");
            return Err(Error::bad_setting(names.password, reason));
        }
        let password = match (self.password, self.password_file, self.password_env) {
            (Some(password), _, _) => Some(filled(names.password, password)?),
            (_, Some(path), _) => Some(from_file(names.password_file, &path)?),
            (_, _, Some(variable)) => Some(from_environment(names.password_env, &variable)?),
            (None, None, None) => None,
        };
        // The user is not shown: it may be a password that lacks the colon before it.
        match (&self.user, &password) {
            (Some(user), _) if user.is_empty() => {
                Err(Error::bad_setting(names.user, "is empty; leave it out for the default user"))
            }
            (Some(_), None) => Err(Error::bad_setting(
                names.user,
                "there is a user and no password; in a URL the password stands after a colon, also where there is no \
                 user (redis://:PASSWORD@host). For a user who needs none, any text will do",
            )),
            _ => Ok((self.user, password)),
        }
    }
}

fn filled(setting: &'static str, password: Secret) -> Result<Secret, Error> {
    if password.reveal().is_empty() {
        return Err(Error::bad_setting(setting, "the password is empty; leave it out, or give one"));
    }
    Ok(password)
}

fn from_file(setting: &'static str, path: &Path) -> Result<Secret, Error> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        // What was found there is none of our business.
        io::ErrorKind::InvalidData => Error::bad_setting(setting, format!("{} is not text", path.display())),
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
    let problem =
        |what: &str| Error::bad_setting(setting, format!("the environment variable {variable} {what}"));
    // An odd name would make the look-up panic.
    if variable.is_empty() || variable.contains(['=', '\0']) {
        return Err(Error::bad_setting(setting, "this cannot be the name of an environment variable"));
    }
    match std::env::var_os(variable).map(std::ffi::OsString::into_string) {
        None => Err(problem("is not set")),
        Some(Err(_)) => Err(problem("is not text")),
        Some(Ok(password)) if password.is_empty() => Err(problem("is empty")),
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

    fn from(content: &str) -> Result<Option<Secret>, Error> {
        let path = file(content);
        let credentials = Credentials { password_file: Some(path.clone()), ..Credentials::default() };
        let outcome = credentials.resolve(&OF_SERVERS).map(|(_, password)| password);
        fs::remove_file(path).expect("it is ours");
        outcome
    }

    #[test]
    fn one_line_end_is_cut_off() {
        for (content, password) in
            [("pass", "pass"), ("pass\n", "pass"), ("pass\r\n", "pass"), ("pass \n\n", "pass \n")]
        {
            assert_eq!(from(content).expect("a password"), Some(Secret::new(password)), "{content:?}");
        }
    }

    #[test]
    fn an_empty_file_is_an_error_that_names_it() {
        for content in ["", "\n", "\r\n"] {
            let error = from(content).expect_err("nothing in it").to_string();
            assert!(error.contains("password_file") && error.contains("turnlock-password-"), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let credentials =
            Credentials { password_file: Some("/nowhere/at/all".into()), ..Credentials::default() };
        let error = credentials.resolve(&OF_SENTINELS).expect_err("no file").to_string();
        assert!(error.contains("sentinel_password_file") && error.contains("/nowhere/at/all"), "{error}");
    }

    #[test]
    fn a_variable_that_is_not_there_is_named() {
        for (variable, word) in [("TURNLOCK_NO_SUCH_VARIABLE", "TURNLOCK_NO_SUCH_VARIABLE"), ("a=b", "name")]
        {
            let credentials =
                Credentials { password_env: Some(variable.to_owned()), ..Credentials::default() };
            let error = credentials.resolve(&OF_SERVERS).expect_err("no variable").to_string();
            assert!(error.contains("password_env") && error.contains(word), "{error}");
        }
    }
}
