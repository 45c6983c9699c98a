use std::fmt;
use std::path::PathBuf;

use crate::agreement::agreed;
use crate::error::Error;

/// How a server proves who it is, and we to it. For [`Builder::tls`](crate::Builder::tls); in a URL the same are parameters
/// of `rediss://`.
///
/// When nothing is said, the server's certificate must be signed by a CA that the system trusts, for the host to which the
/// connection is made. What is wrong with a file is reported when connecting.
///
/// ```
/// let tls = turnlock::Tls::new().ca_file("/etc/redis/ca.pem").server_name("redis.internal");
/// let settings = turnlock::Client::builder().tls(tls);
/// # drop(settings);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "it does nothing until a builder has it"]
pub struct Tls {
    pub(crate) ca: Option<Pem>,
    pub(crate) certificate: Option<Pem>,
    pub(crate) key: Option<Pem>,
    pub(crate) server_name: Option<String>,
    pub(crate) verify: Option<bool>,
}

impl Tls {
    /// With the CAs of the system, and no certificate of our own.
    pub fn new() -> Self {
        Self::default()
    }

    /// A file with the certificates (PEM) of the CAs to trust, and only these.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(Pem::File(path.into()));
        self
    }

    /// The same as bytes.
    pub fn ca_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Bytes(pem.into()));
        self
    }

    /// Files with the certificate chain and the private key (PEM; PKCS#8, PKCS#1 or SEC1, not encrypted) by which the server
    /// knows us.
    pub fn client_certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some(Pem::File(chain.into()));
        self.key = Some(Pem::File(key.into()));
        self
    }

    /// The same as bytes.
    pub fn client_certificate_pem(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.certificate = Some(Pem::Bytes(chain.into()));
        self.key = Some(Pem::Bytes(key.into()));
        self
    }

    /// The name that must stand in the server's certificate, where that is not the host to which the connection is made. In a
    /// cluster, whose servers tell each other's IP addresses, this is the way to have one name for all.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Accepts any server, whatever its certificate says. Whoever can get between us and the server can then read and change
    /// everything, the password too.
    pub fn danger_accept_any_server(mut self) -> Self {
        self.verify = Some(false);
        self
    }

    /// The first setting that was said; `tls` where none was.
    pub(crate) fn first_said(&self) -> &'static str {
        [
            (self.ca.is_some(), "ca_file"),
            (self.certificate.is_some(), "cert_file"),
            (self.key.is_some(), "key_file"),
            (self.server_name.is_some(), "server_name"),
            (self.verify.is_some(), "verify"),
        ]
        .into_iter()
        .find_map(|(said, name)| said.then_some(name))
        .unwrap_or("tls")
    }

    /// What both say together.
    pub(crate) fn and(self, other: Self) -> Result<Self, Error> {
        Ok(Self {
            ca: agreed("ca_file", self.ca, other.ca)?,
            certificate: agreed("cert_file", self.certificate, other.certificate)?,
            key: agreed("key_file", self.key, other.key)?,
            server_name: agreed("server_name", self.server_name, other.server_name)?,
            verify: agreed("verify", self.verify, other.verify)?,
        })
    }

    /// Whether it makes sense by itself; what is in the files is seen later.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.server_name.as_deref() == Some("") {
            return Err(Error::bad_setting("server_name", "is empty; leave it out to take the host"));
        }
        if self.verify == Some(false) && self.ca.is_some() {
            let reason = "any server is accepted, so that the CA has no use; leave out one of `verify=no` and `ca_file`";
            return Err(Error::bad_setting("verify", reason));
        }
        match (&self.certificate, &self.key) {
            (Some(_), None) => {
                Err(Error::bad_setting("cert_file", "a certificate needs its key: set `key_file`"))
            }
            (None, Some(_)) => {
                Err(Error::bad_setting("key_file", "a key needs its certificate: set `cert_file`"))
            }
            _ => Ok(()),
        }
    }
}

/// Certificates or a key, and where they are.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            // A private key may be in it.
            Self::Bytes(_) => f.write_str("(PEM)"),
        }
    }
}
