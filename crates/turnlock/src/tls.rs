use std::fmt;
use std::path::PathBuf;

use crate::agreement::agreed;
use crate::error::Error;

/// The TLS options of a connection, for [`Builder::tls`](crate::Builder::tls).
///
/// In a URL, they are parameters of `rediss://`: see [`Client::connect`](crate::Client::connect).
///
/// By default, the certificate of the server must be signed by a CA that the system trusts, for the host of the
/// connection. Files are read and checked when connecting.
///
/// # Examples
///
/// ```
/// let tls = turnlock::Tls::new().ca_file("/etc/redis/ca.pem").server_name("redis.internal");
/// let builder = turnlock::Client::builder().tls(tls);
/// # drop(builder);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until `Builder::tls` sets them"]
pub struct Tls {
    pub(crate) ca: Option<Pem>,
    pub(crate) certificate: Option<Pem>,
    pub(crate) key: Option<Pem>,
    pub(crate) server_name: Option<String>,
    pub(crate) verify: Option<bool>,
}

impl Tls {
    /// Returns the default options: the CAs of the system, and no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the CAs in this file (PEM), and only these.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(Pem::File(path.into()));
        self
    }

    /// Trusts the CAs in these bytes (PEM), and only these.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Bytes(pem.into()));
        self
    }

    /// Sets the client certificate: files with its chain and its private key (PEM).
    ///
    /// The key is PKCS#8, PKCS#1 or SEC1, and not encrypted.
    pub fn client_certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some(Pem::File(chain.into()));
        self.key = Some(Pem::File(key.into()));
        self
    }

    /// Sets the client certificate by bytes: [`client_certificate_files`](Tls::client_certificate_files).
    pub fn client_certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.certificate = Some(Pem::Bytes(chain.into()));
        self.key = Some(Pem::Bytes(key.into()));
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

    /// Returns the name of the first option that is set, or `tls`.
    pub(crate) fn first_set(&self) -> &'static str {
        [
            (self.ca.is_some(), "ca_file"),
            (self.certificate.is_some(), "cert_file"),
            (self.key.is_some(), "key_file"),
            (self.server_name.is_some(), "server_name"),
            (self.verify.is_some(), "verify"),
        ]
        .into_iter()
        .find_map(|(is_set, name)| is_set.then_some(name))
        .unwrap_or("tls")
    }

    /// Combines the options of the builder and of the URL. Fails if they contradict each other.
    pub(crate) fn merge(self, url: Self) -> Result<Self, Error> {
        Ok(Self {
            ca: agreed("ca_file", self.ca, url.ca)?,
            certificate: agreed("cert_file", self.certificate, url.certificate)?,
            key: agreed("key_file", self.key, url.key)?,
            server_name: agreed("server_name", self.server_name, url.server_name)?,
            verify: agreed("verify", self.verify, url.verify)?,
        })
    }

    /// Checks that the options fit each other. The content of the files is checked later.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.server_name.as_deref() == Some("") {
            return Err(Error::bad_setting("server_name", "empty; leave it out to use the host"));
        }
        if self.verify == Some(false) && self.ca.is_some() {
            let reason = "contradicts `ca_file`: no certificate is checked; leave out one of them";
            return Err(Error::bad_setting("verify", reason));
        }
        match (&self.certificate, &self.key) {
            (Some(_), None) => {
                Err(Error::bad_setting("cert_file", "a certificate needs its key; set `key_file`"))
            }
            (None, Some(_)) => {
                Err(Error::bad_setting("key_file", "a key needs its certificate; set `cert_file`"))
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

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            // Can contain a private key.
            Self::Bytes(_) => f.write_str("(PEM)"),
        }
    }
}
