use std::fmt;
use std::path::PathBuf;

use turnlock_store::{FromText, SettingError, settings};

settings! {
    /// The TLS options of a connection, for `Builder::tls`.
    ///
    /// In a URL, they are parameters of `rediss://`: see `Client::connect`.
    ///
    /// By default, the certificate of the server must be signed by a CA that the system trusts, for the host of the
    /// connection. Files are read and checked when connecting.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod turnlock { pub use turnlock_redis::Tls; }
    /// let tls = turnlock::Tls::new().ca_file("/etc/redis/ca.pem").server_name("redis.internal");
    /// # drop(tls); // let builder = turnlock::Client::builder().tls(tls);
    /// ```
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[must_use = "options do nothing until `Builder::tls` sets them"]
    pub struct Tls;
    pub(crate) in_text {
        ca_file: Pem,
        cert_file: Pem,
        key_file: Pem,
        server_name: String,
        verify: bool,
    }
    in_code {}
    parts {}
}

impl Tls {
    /// Returns the default options: the CAs of the system, and no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the CAs in this file (PEM), and only these.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(Pem::File(path.into()));
        self
    }

    /// Trusts the CAs in these bytes (PEM), and only these.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_file = Some(Pem::Bytes(pem.into()));
        self
    }

    /// Sets the client certificate: files with its chain and its private key (PEM).
    ///
    /// The key is PKCS#8, PKCS#1 or SEC1, and not encrypted.
    pub fn client_certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.cert_file = Some(Pem::File(chain.into()));
        self.key_file = Some(Pem::File(key.into()));
        self
    }

    /// Sets the client certificate by bytes: [`client_certificate_files`](Tls::client_certificate_files).
    pub fn client_certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.cert_file = Some(Pem::Bytes(chain.into()));
        self.key_file = Some(Pem::Bytes(key.into()));
        self
    }

    /// Sets the name that the server's certificate must have. The host of the connection by default.
    ///
    /// The nodes of a cluster report each other by IP address: this sets one name for all of them.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Accepts any server, whatever its certificate.
    ///
    /// **Risk.** An attacker between the client and the server can read and change everything, including the password.
    pub fn danger_accept_any_server(mut self) -> Self {
        self.verify = Some(false);
        self
    }

    /// Checks that the options fit each other. The content of the files is checked later.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        if self.server_name.as_deref() == Some("") {
            return Err(SettingError::new("server_name", "empty; leave it out to use the host"));
        }
        if self.verify == Some(false) && self.ca_file.is_some() {
            let reason = "contradicts `ca_file`: no certificate is checked; leave out one of them";
            return Err(SettingError::new("verify", reason));
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => {
                Err(SettingError::new("cert_file", "a certificate needs its key; set `key_file`"))
            }
            (None, Some(_)) => {
                Err(SettingError::new("key_file", "a key needs its certificate; set `cert_file`"))
            }
            _ => Ok(()),
        }
    }
}

/// Certificates or a private key, in a file or as bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl FromText for Pem {
    fn from_text(text: &str) -> Result<Self, &'static str> {
        Ok(Self::File(text.into()))
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            // Can contain a private key.
            Self::Bytes(_) => f.write_str("(PEM)"),
        }
    }
}
