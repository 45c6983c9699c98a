//! Certificates for servers and clients that speak TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::temp_dir::TempDir;

/// An authority that nobody else knows, and what it has signed, as PEM files in a directory of their own.
///
/// Dropping it removes the files.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Makes them: an authority, a server's certificate for `server_names` (names and addresses), and a client's.
    pub fn new(server_names: &[&str]) -> Self {
        let made = Self { dir: TempDir::new() };
        let mut params = named("turnlock test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority can be made");
        made.write("ca.pem", &authority.pem());
        for (file, names) in [("server", server_names), ("client", &[])] {
            let key = key();
            let certificate = named(&format!("turnlock test {file}"), names);
            let certificate = certificate.signed_by(&key, &authority).expect("a certificate can be signed");
            made.write(&format!("{file}.pem"), &certificate.pem());
            made.write(&format!("{file}.key"), &key.serialize_pem());
        }
        made
    }

    /// The certificate of the authority.
    pub fn ca_file(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The server's certificate.
    pub fn server_cert_file(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The key of the server's certificate.
    pub fn server_key_file(&self) -> PathBuf {
        self.file("server.key")
    }

    /// A certificate for clients.
    pub fn client_cert_file(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The key of the client's certificate.
    pub fn client_key_file(&self) -> PathBuf {
        self.file("client.key")
    }

    /// The directory of all these files; a test may add its own.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("a certificate can be written");
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}

fn named(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("good names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
