//! The credentials of a server.

/// A user name and a password, of letters, digits, `-` and `_`.
///
/// The user of a server with a password only is `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// Creates the credentials. Panics if a character would have to be escaped in a URL.
    pub fn new(user: &str, password: &str) -> Self {
        for word in [user, password] {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            assert!(
                !word.is_empty() && word.chars().all(is_plain),
                "{word:?} would have to be escaped in a URL"
            );
        }
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    /// Returns the user name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Returns the part of a URL before the host: `USER:PASSWORD@`.
    pub fn userinfo(&self) -> String {
        format!("{}:{}@", self.user, self.password)
    }

    /// Returns the lines of a server's configuration that allow this user only.
    ///
    /// The user may do everything, including replication. The lines belong in a file: the arguments of a
    /// process are visible to all users of the machine.
    pub(crate) fn config_lines(&self) -> Vec<String> {
        let Self { user, password } = self;
        let mut lines =
            if user == "default" { Vec::new() } else { vec!["user default reset off".to_owned()] };
        lines.push(format!("user {user} reset on >{password} ~* &* +@all"));
        lines.push(format!("masteruser {user}"));
        lines.push(format!("masterauth {password}"));
        lines
    }
}
