//! Who may use a server.

/// A user and a password, of letters, digits, `-` and `_`. The user of a server that knows only a password is `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// Panics when something is in there that would have to be quoted in an address.
    pub fn new(user: &str, password: &str) -> Self {
        for word in [user, password] {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            assert!(!word.is_empty() && word.chars().all(is_plain), "{word:?} cannot stand in an address");
        }
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    /// The name of the user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// What stands before the host in an address: `USER:PASSWORD@`.
    pub fn in_address(&self) -> String {
        format!("{}:{}@", self.user, self.password)
    }

    /// The lines of a server's configuration by which this user may do everything, also replicate, and nobody else
    /// anything. They stand in a file, since everybody can read the arguments of a process.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Self { user, password } = self;
        let mut lines =
            if user == "default" { Vec::new() } else { vec!["user default reset off".to_owned()] };
        lines.push(format!("user {user} reset on >{password} ~* &* +@all"));
        lines.push(format!("masteruser {user}"));
        lines.push(format!("masterauth {password}"));
        lines
    }
}
