//! A server that speaks TLS.

use std::path::Path;
use std::process::Command;

use crate::server_plan::ServerPlan;
use crate::{Certificates, RedisServer};

/// A `redis-server` with a TLS port, and certificates by an authority of its own.
///
/// It has a plain port as well, for looking at keys: see [`server`](Self::server).
#[derive(Debug)]
pub struct TlsServer {
    server: RedisServer,
    certificates: Certificates,
}

impl TlsServer {
    /// What the certificate of a server is for unless somebody asks for something else.
    pub const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

    /// Why none can be run on this machine, or `None` when one can.
    pub fn missing() -> Option<String> {
        if let Some(reason) = RedisServer::missing() {
            return Some(reason);
        }
        // A server that knows the option complains about the certificate, any other about the option.
        let tried = Command::new("redis-server")
            .args(["--port", "0", "--tls-port", "1", "--tls-cert-file", "/dev/null/nothing"])
            .output();
        let said = tried.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        let knows_it = String::from_utf8_lossy(&said).contains("Failed to configure TLS");
        (!knows_it).then(|| "`redis-server` is built without TLS".to_owned())
    }

    /// Starts a server that takes every client, with a certificate for `localhost` and 127.0.0.1.
    pub async fn start() -> Self {
        Self::start_with(&Self::NAMES, false, &[]).await
    }

    /// Starts a server whose certificate is for `names`, that takes only clients with a certificate if
    /// `client_certificates`, with further arguments.
    pub async fn start_with(names: &[&str], client_certificates: bool, args: &[&str]) -> Self {
        let certificates = Certificates::new(names);
        let path = |file: &Path| file.to_str().expect("a readable path").to_owned();
        let tls = [
            ("--tls-cert-file", path(&certificates.server_cert_file())),
            ("--tls-key-file", path(&certificates.server_key_file())),
            ("--tls-ca-cert-file", path(&certificates.ca_file())),
            ("--tls-auth-clients", if client_certificates { "yes" } else { "no" }.to_owned()),
        ];
        let mut plan = ServerPlan { second_port: Some("--tls-port"), ..ServerPlan::default() };
        plan.args.extend(tls.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        plan.args.extend(args.iter().map(ToString::to_string));
        Self { server: RedisServer::start_as(plan).await, certificates }
    }

    /// The address with the authority that vouches for the server: `rediss://localhost:PORT?ca_file=FILE`.
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}?ca_file={}", self.tls_port(), self.certificates.ca_file().display())
    }

    /// The port that speaks TLS and nothing else.
    pub fn tls_port(&self) -> u16 {
        self.server.second_port()
    }

    /// The files of the authority, the server and a client.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// The same server by its plain port.
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// The same, to be stopped or restarted.
    pub fn server_mut(&mut self) -> &mut RedisServer {
        &mut self.server
    }
}
