use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::handshake::{HandshakeStream, Stream};
use super::tls_error;
use crate::tls::{Pem, Tls};
use turnlock_store::SettingError;

/// Encrypts connections with TLS. Reads certificates and keys once, when it is created.
pub struct TlsDialler {
    connector: TlsConnector,
    /// Replaces the host as the name that the certificate must be valid for.
    server_name: Option<ServerName<'static>>,
    has_own_ca: bool,
    accepts_any_server: bool,
}

/// The time after which a server that does not continue the handshake is probed without TLS.
const PLAINTEXT_CHECK_DELAY: Duration = Duration::from_secs(1);

impl TlsDialler {
    /// Loads the certificates and keys that the settings name. May block.
    pub(crate) fn new(tls: Tls) -> Result<Self, SettingError> {
        let server_name = tls
            .server_name
            .map(ServerName::try_from)
            .transpose()
            .map_err(|_| SettingError::new("server_name", "neither a host name nor an IP address"))?;
        let has_own_ca = tls.ca_file.is_some();
        let accepts_any_server = tls.verify == Some(false);
        // Not installed for the process: that choice belongs to the program.
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = if accepts_any_server {
            Arc::new(AnyServer(provider.signature_verification_algorithms))
        } else {
            verifier(&provider, tls.ca_file.as_ref())?
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SettingError::new("tls", error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (tls.cert_file, tls.key_file) {
            (Some(certificate), Some(key)) => {
                let chain = certificates("cert_file", &certificate)?;
                let private = private_key("key_file", &key)?;
                config.with_client_auth_cert(chain, private).map_err(|error| {
                    let reason =
                        format!("{certificate:?} and the key {key:?} cannot be used together: {error}");
                    SettingError::new("cert_file", reason)
                })?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(Self { connector: Arc::new(config).into(), server_name, has_own_ca, accepts_any_server })
    }

    /// Returns `true` if a server must be addressed by a name in its certificate.
    pub(super) fn verifies_names(&self) -> bool {
        self.server_name.is_none() && !self.accepts_any_server
    }

    /// Performs the TLS handshake on a new connection.
    pub(super) async fn encrypt(&self, stream: TcpStream, host: &str, limit: Duration) -> io::Result<Stream> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                let text = "the host is not a name that a certificate can be valid for; set `server_name`";
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?,
        };
        let peer = stream.peer_addr()?;
        let shown = name.to_str().into_owned();
        let handshake = self.connector.connect(name, stream);
        tokio::select! {
            biased;
            outcome = handshake => match outcome {
                Ok(stream) => Ok(Box::pin(HandshakeStream::new(stream, tls_error::explain_first_reply))),
                Err(error) => Err(tls_error::explain_handshake(error, &shown, self.has_own_ca)),
            },
            () = wait_until_known_plaintext(peer, PLAINTEXT_CHECK_DELAY.min(limit / 4)) => Err(tls_error::not_tls()),
        }
    }
}

/// Waits `wait`, and then returns if the server replies without TLS. Otherwise never returns.
///
/// A Redis without TLS parses the start of a handshake as the start of a long line, and waits for the rest of it.
async fn wait_until_known_plaintext(peer: SocketAddr, wait: Duration) {
    tokio::time::sleep(wait).await;
    if !matches!(replies_in_plaintext(peer).await, Ok(true)) {
        std::future::pending::<()>().await;
    }
}

async fn replies_in_plaintext(peer: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(peer).await?;
    stream.write_all(b"PING\r\n").await?;
    // A reply, or an error that asks for a login.
    Ok(matches!(stream.read_u8().await?, b'+' | b'-'))
}

fn verifier(
    provider: &Arc<CryptoProvider>,
    ca: Option<&Pem>,
) -> Result<Arc<WebPkiServerVerifier>, SettingError> {
    let roots = ca.map_or_else(system_roots, roots_from)?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| SettingError::new("ca_file", error.to_string()))
}

fn roots_from(ca: &Pem) -> Result<RootCertStore, SettingError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", ca)? {
        let unusable = |error| SettingError::new("ca_file", format!("{ca:?} cannot be used: {error}"));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, SettingError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // Some certificates of a system may be unusable.
    let (good, _bad) = roots.add_parsable_certificates(found.certs);
    if good == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        let reason = format!("this system has no trusted CAs{why}; set `ca_file` to the CA of the server");
        return Err(SettingError::new("ca_file", reason));
    }
    Ok(roots)
}

fn certificates(setting: &'static str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let bytes = read_pem(setting, pem)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    // The error itself may contain a line of the file.
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(SettingError::new(setting, format!("{pem:?} contains no certificate in PEM format"))),
    }
}

fn private_key(setting: &'static str, pem: &Pem) -> Result<PrivateKeyDer<'static>, SettingError> {
    let bytes = read_pem(setting, pem)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        let reason =
            format!("{pem:?} contains no unencrypted private key in PEM format (PKCS#8, PKCS#1 or SEC1)");
        SettingError::new(setting, reason)
    })
}

fn read_pem(setting: &'static str, pem: &Pem) -> Result<Vec<u8>, SettingError> {
    match pem {
        Pem::Bytes(bytes) => Ok(bytes.clone()),
        Pem::File(path) => fs::read(path).map_err(|error| {
            SettingError::new(setting, format!("{} cannot be read: {error}", path.display()))
        }),
    }
}

impl fmt::Debug for TlsDialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsDialler").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Accepts every server certificate. Only the proof that the server has its key is verified.
#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
