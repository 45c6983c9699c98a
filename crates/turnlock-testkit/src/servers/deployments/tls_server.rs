//! A server with TLS.

use std::path::Path;
use std::process::Command;

use crate::servers::server_config::ServerConfig;
use crate::{Certificates, RedisServer};

/// A `redis-server` with a TLS port and its own certificate authority.
///
/// It has a plain port too, for reading keys: see [`server`](Self::server).
#[derive(Debug)]
pub struct TlsServer {
    server: RedisServer,
    certificates: Certificates,
}

impl TlsServer {
    /// The default names in the server's certificate.
    pub const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

    /// Returns the reason why TLS servers cannot run on this machine; `None` if they can.
    pub fn missing() -> Option<String> {
        if let Some(reason) = RedisServer::missing() {
            return Some(reason);
        }
        // A server with TLS fails with an error about the certificate, any other about the option.
        let output = Command::new("redis-server")
            .args(["--port", "0", "--tls-port", "1", "--tls-cert-file", "/dev/null/nothing"])
            .output();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        let has_tls = String::from_utf8_lossy(&text).contains("Failed to configure TLS");
        (!has_tls).then(|| "`redis-server` is built without TLS".to_owned())
    }

    /// Starts a server that accepts every client, with a certificate for [`NAMES`](Self::NAMES).
    pub async fn start() -> Self {
        Self::start_with(&Self::NAMES, false, &[]).await
    }

    /// Starts a server with a certificate for `names` and further arguments.
    ///
    /// With `client_certificates`, it accepts only clients with a certificate.
    pub async fn start_with(names: &[&str], client_certificates: bool, args: &[&str]) -> Self {
        let certificates = Certificates::new(names);
        let path = |file: &Path| file.to_str().expect("a readable path").to_owned();
        let tls = [
            ("--tls-cert-file", path(&certificates.server_cert_file())),
            ("--tls-key-file", path(&certificates.server_key_file())),
            ("--tls-ca-cert-file", path(&certificates.ca_file())),
            ("--tls-auth-clients", if client_certificates { "yes" } else { "no" }.to_owned()),
        ];
        let mut config = ServerConfig { second_port: Some("--tls-port"), ..ServerConfig::default() };
        config.args.extend(tls.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        config.args.extend(args.iter().map(ToString::to_string));
        Self { server: RedisServer::start_as(config).await, certificates }
    }

    /// Returns the URL with the certificate of the authority: `rediss://localhost:PORT?ca_file=FILE`.
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}?ca_file={}", self.tls_port(), self.certificates.ca_file().display())
    }

    /// Returns the TLS port.
    pub fn tls_port(&self) -> u16 {
        self.server.second_port()
    }

    /// Returns the certificates of the authority, the server and a client.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Returns the server with its plain port.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Returns the server, to stop or restart it.
    pub fn server_mut(&mut self) -> &mut RedisServer {
        &mut self.server
    }
}
