use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use turnlock_store::Secret;
#[cfg(not(feature = "tls"))]
use turnlock_store::{Failure, FailureKind};

use super::handshake::{HandshakeStream, Stream, explain_plain};
#[cfg(feature = "tls")]
pub use super::tls_dialler::TlsDialler;

/// The address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A port of a host.
    Tcp {
        /// The name, or the IP address without brackets.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The address of a port.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// The address of a Unix socket.
    pub fn unix(path: impl AsRef<Path>) -> Self {
        Self::Unix(path.as_ref().to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // An IPv6 address contains colons.
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Credentials and connection settings, the same for every server of one deployment.
#[derive(Clone, Debug)]
pub struct Access {
    /// `None`: the default user.
    pub username: Option<String>,
    /// `None`: no login.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: i64,
    /// The name of the connections on the server.
    pub client_name: Option<String>,
    /// The time limit for connecting, including the handshake.
    pub connect_limit: Duration,
    /// Set if all connections use TLS.
    pub tls: Option<Arc<TlsDialler>>,
}

impl Access {
    /// Opens a stream to the server, with TLS if configured. Sends no Redis command.
    ///
    /// # Errors
    ///
    /// Errors up to the first reply, also those from reading the stream, name the likely remedy.
    pub(super) async fn connect(&self, address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                match &self.tls {
                    None => Ok(Box::pin(HandshakeStream::new(stream, explain_plain))),
                    Some(tls) => tls.encrypt(stream, host, self.connect_limit).await,
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::pin(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "Unix sockets are not available on this system; use a TCP address",
            )),
        }
    }

    /// Returns `true` if a server must be addressed by a name in its certificate.
    pub(super) fn verifies_names(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.verifies_names())
    }
}

/// Has no values: without the feature `tls`, no TLS connection can be made.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub enum TlsDialler {}

#[cfg(not(feature = "tls"))]
impl TlsDialler {
    pub(crate) fn new(_: crate::Tls) -> Result<Self, Failure> {
        let text = "TLS, in a build of turnlock without the feature `tls`; enable the feature";
        Err(Failure::refused(FailureKind::Unsupported(text.to_owned())))
    }

    fn verifies_names(&self) -> bool {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "same signature as with TLS")]
    async fn encrypt(&self, _: TcpStream, _: &str, _: Duration) -> io::Result<Stream> {
        match *self {}
    }
}
