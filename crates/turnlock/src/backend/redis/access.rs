use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::AsyncStream;
use redis::{ProtocolVersion, RedisConnectionInfo};
use tokio::net::TcpStream;

use super::address::Address;
use super::handshake::HandshakeStream;
use super::secret::Secret;
use super::tls_dialler::TlsDialler;

/// A byte stream to a server, before the first command.
pub(super) type Stream = Pin<Box<dyn AsyncStream + Send + Sync>>;

/// Credentials and connection settings, the same for every server of one deployment.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: i64,
    pub(crate) client_name: Option<String>,
    /// The time limit for connecting, including the handshake.
    pub(crate) connect_limit: Duration,
    /// Set if all connections use TLS.
    pub(crate) tls: Option<Arc<TlsDialler>>,
}

impl Access {
    /// Settings for a server without authentication.
    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        Self {
            username: None,
            password: None,
            database: 0,
            client_name: None,
            connect_limit: Duration::from_secs(5),
            tls: None,
        }
    }

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
                    None => Ok(Box::pin(HandshakeStream::plain(stream))),
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

    /// The settings of the login on a new connection.
    pub(super) fn connection_info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP2)
            // `CLIENT SETINFO` needs a permission that older servers do not know, so no ACL rule grants it
            // everywhere: it would be denied, and fill the server's ACL log.
            .set_skip_set_lib_name();
        if let Some(username) = &self.username {
            info = info.set_username(username);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password.reveal());
        }
        info
    }
}
