//! TLS certificates for servers and clients.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::temp_dir::TempDir;

/// A private certificate authority and the certificates it signed, as PEM files.
///
/// The files have their own directory, which is removed on drop.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Creates an authority, a server's certificate for `server_names` and a client's certificate.
    ///
    /// Server names may be host names and addresses.
    pub fn new(server_names: &[&str]) -> Self {
        let certificates = Self { dir: TempDir::new() };
        let mut params = certificate_params("turnlock test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority can be created");
        certificates.write("ca.pem", &authority.pem());
        for (file, names) in [("server", server_names), ("client", &[])] {
            let key = key();
            let certificate = certificate_params(&format!("turnlock test {file}"), names);
            let certificate = certificate.signed_by(&key, &authority).expect("a certificate can be signed");
            certificates.write(&format!("{file}.pem"), &certificate.pem());
            certificates.write(&format!("{file}.key"), &key.serialize_pem());
        }
        certificates
    }

    /// Returns the certificate of the authority.
    pub fn ca_file(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// Returns the server's certificate.
    pub fn server_cert_file(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// Returns the key of the server's certificate.
    pub fn server_key_file(&self) -> PathBuf {
        self.file("server.key")
    }

    /// Returns the client's certificate.
    pub fn client_cert_file(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// Returns the key of the client's certificate.
    pub fn client_key_file(&self) -> PathBuf {
        self.file("client.key")
    }

    /// Returns the directory of the files. A test may add its own.
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
    KeyPair::generate().expect("a key can be created")
}

fn certificate_params(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
