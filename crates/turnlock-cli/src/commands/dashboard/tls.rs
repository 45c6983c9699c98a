//! HTTPS of the dashboard.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use turnlock::Error;

use crate::dashboard_arguments::DashboardArguments;

/// Reads the certificates and the key. `None` without `--tls-cert`.
pub(super) fn acceptor(arguments: &DashboardArguments) -> anyhow::Result<Option<TlsAcceptor>> {
    let (Some(cert), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) else { return Ok(None) };
    let certs = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certs = certs.map_err(|error| unusable("--tls-cert", cert, &error))?;
    let private_key =
        PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("--tls-key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.and_then(|config| config.with_no_client_auth().with_single_cert(certs, private_key));
    let config = config.map_err(|error| unusable("--tls-cert", cert, &error))?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn unusable(setting: &'static str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::BadConfiguration { setting, reason: format!("{} cannot be used: {error}", path.display()) }
}
