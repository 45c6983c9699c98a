use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::access::Stream;
use super::any_server::AnyServer;
use super::first_answer::FirstAnswer;
use super::tls_trouble::{self, Expected};
use crate::error::Error;
use crate::tls::{Pem, Tls};

/// Turns connections into encrypted ones. The files are read once, when it is made.
pub(crate) struct TlsDialler {
    connector: TlsConnector,
    /// In place of the host.
    server_name: Option<ServerName<'static>>,
    has_own_ca: bool,
    accepts_any_server: bool,
}

/// How long a server may take to begin with the handshake before it is asked whether it speaks TLS at all.
const DOUBT: Duration = Duration::from_secs(1);

impl TlsDialler {
    /// Reads what the settings name. May block.
    pub(crate) fn new(tls: Tls) -> Result<Self, Error> {
        let server_name = tls.server_name.map(ServerName::try_from).transpose().map_err(|_| {
            Error::bad_setting("server_name", "is neither the name of a host nor an IP address")
        })?;
        let has_own_ca = tls.ca.is_some();
        let accepts_any_server = tls.verify == Some(false);
        // Given here and not installed for the process, which belongs to the program.
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if accepts_any_server {
            Arc::new(AnyServer::new(&provider))
        } else {
            verifier(&provider, tls.ca.as_ref())?
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::bad_setting("tls", error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (tls.certificate, tls.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates("cert_file", &certificate)?;
                let key_of_it = private_key("key_file", &key)?;
                config.with_client_auth_cert(chain, key_of_it).map_err(|error| {
                    let reason =
                        format!("{certificate:?} and the key {key:?} cannot be used together: {error}");
                    Error::bad_setting("cert_file", reason)
                })?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(Self { connector: Arc::new(config).into(), server_name, has_own_ca, accepts_any_server })
    }

    /// Whether a server must be called by a name in its certificate.
    pub(super) fn verifies_names(&self) -> bool {
        self.server_name.is_none() && !self.accepts_any_server
    }

    /// Makes the handshake on a new connection.
    pub(super) async fn encrypt(&self, stream: TcpStream, host: &str, limit: Duration) -> io::Result<Stream> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                let text = "no certificate can be for a host of this name; set `server_name`";
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?,
        };
        let peer = stream.peer_addr()?;
        let shown = name.to_str().into_owned();
        let handshake = self.connector.connect(name, stream);
        tokio::select! {
            biased;
            outcome = handshake => match outcome {
                Ok(stream) => Ok(Box::pin(FirstAnswer::new(stream, tls_trouble::explain_first_answer))),
                Err(error) => {
                    let expected = Expected { name: &shown, own_ca: self.has_own_ca };
                    Err(tls_trouble::explain_handshake(error, &expected))
                }
            },
            () = until_known_as_plain(peer, DOUBT.min(limit / 4)) => Err(tls_trouble::no_tls()),
        }
    }
}

/// Waits, and then until the server is known to speak without TLS; forever if it is not.
///
/// A Redis without TLS takes the beginning of a handshake for that of a long line, and waits for the rest of it.
async fn until_known_as_plain(peer: SocketAddr, wait: Duration) {
    tokio::time::sleep(wait).await;
    if !matches!(answers_in_plain(peer).await, Ok(true)) {
        std::future::pending::<()>().await;
    }
}

async fn answers_in_plain(peer: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(peer).await?;
    stream.write_all(b"PING\r\n").await?;
    // Either it answers, or it wants a password first.
    Ok(matches!(stream.read_u8().await?, b'+' | b'-'))
}

fn verifier(provider: &Arc<CryptoProvider>, ca: Option<&Pem>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let roots = ca.map_or_else(roots_of_the_system, roots_of)?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| Error::bad_setting("ca_file", error.to_string()))
}

fn roots_of(ca: &Pem) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", ca)? {
        let unusable = |error| Error::bad_setting("ca_file", format!("{ca:?} cannot be used: {error}"));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

fn roots_of_the_system() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // A system may have some that are no good, beside others that are.
    let (good, _bad) = roots.add_parsable_certificates(found.certs);
    if good == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let reason = format!("this system has no CAs that it trusts{why}; name the CA of the server");
        return Err(Error::bad_setting("ca_file", reason));
    }
    Ok(roots)
}

fn certificates(setting: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read(setting, pem)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    // The error itself may show a line of the file.
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::bad_setting(setting, format!("{pem:?} holds no certificates in PEM"))),
    }
}

fn private_key(setting: &'static str, pem: &Pem) -> Result<PrivateKeyDer<'static>, Error> {
    let bytes = read(setting, pem)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        let reason = format!("{pem:?} holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, not encrypted)");
        Error::bad_setting(setting, reason)
    })
}

fn read(setting: &'static str, pem: &Pem) -> Result<Vec<u8>, Error> {
    match pem {
        Pem::Bytes(bytes) => Ok(bytes.clone()),
        Pem::File(path) => fs::read(path).map_err(|error| {
            Error::bad_setting(setting, format!("{} cannot be read: {error}", path.display()))
        }),
    }
}

impl fmt::Debug for TlsDialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsDialler").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
