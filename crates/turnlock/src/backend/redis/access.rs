use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::AsyncStream;
use redis::{ProtocolVersion, RedisConnectionInfo};
use tokio::net::TcpStream;

use super::address::Address;
use super::first_answer::FirstAnswer;
use super::secret::Secret;
use super::tls_dialler::TlsDialler;

/// A connection before anything was said.
pub(super) type Stream = Pin<Box<dyn AsyncStream + Send + Sync>>;

/// How to get in: the same for every server of a set-up.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: i64,
    pub(crate) client_name: Option<String>,
    /// How long connecting may take, with all that is said first.
    pub(crate) connect_limit: Duration,
    /// Present where all connections are made by TLS.
    pub(crate) tls: Option<Arc<TlsDialler>>,
}

impl Access {
    /// To a server that lets everybody in.
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

    /// Opens a connection, encrypted where that was asked for. Nothing is said to the Redis behind it yet.
    ///
    /// Errors, those of the first answer too, say what can be done about them.
    pub(super) async fn dial(&self, address: &Address) -> io::Result<Stream> {
        match address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                match &self.tls {
                    None => Ok(Box::pin(FirstAnswer::of_plain(stream))),
                    Some(tls) => tls.encrypt(stream, host, self.connect_limit).await,
                }
            }
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::pin(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Address::Unix(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "no Unix sockets on this system"))
            }
        }
    }

    /// Whether servers must be called by the names that their certificates have.
    pub(super) fn verifies_names(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.verifies_names())
    }

    /// What is said first.
    pub(super) fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP2)
            // `CLIENT SETINFO` needs a right that older servers do not know, so no rule can have it everywhere: it would be refused,
            // and fill the log of the server.
            .set_skip_set_lib_name();
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password.reveal());
        }
        login
    }
}
