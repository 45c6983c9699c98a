//! Explains TLS errors, and what to do about them.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::handshake::{HandshakeFailure, is_disconnect};

/// Explains an error of the TLS handshake.
///
/// The certificate must be valid for `name`. With `has_own_ca`, `ca_file` replaces the CAs of the system.
pub(super) fn explain_handshake(error: io::Error, name: &str, has_own_ca: bool) -> io::Error {
    let text = match rustls_error(&error) {
        Some(Error::InvalidMessage(_)) => return not_tls(),
        Some(Error::InvalidCertificate(problem)) => certificate_error(problem, name, has_own_ca),
        Some(Error::AlertReceived(alert)) => alert_error(*alert),
        None if is_disconnect(&error) => {
            "the server closed the connection during the TLS handshake; if this port does not use TLS, use redis://"
                .to_owned()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

/// Explains a failure between the TLS handshake and the first reply.
///
/// In TLS 1.3 a server checks the client certificate only then.
pub(super) fn explain_first_reply(failure: HandshakeFailure) -> io::Error {
    let closed = "the server closed the connection after the TLS handshake; if it requires a client certificate, set \
                  `cert_file` and `key_file`";
    match failure {
        HandshakeFailure::TlsAlert => io::Error::new(io::ErrorKind::UnexpectedEof, closed),
        HandshakeFailure::Io(error) => match rustls_error(&error) {
            Some(Error::AlertReceived(alert)) => io::Error::new(error.kind(), alert_error(*alert)),
            None if is_disconnect(&error) => io::Error::new(error.kind(), closed),
            _ => error,
        },
    }
}

/// The server replies without TLS.
pub(super) fn not_tls() -> io::Error {
    let text = "the server does not speak TLS on this port; use redis://";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn rustls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|rustls_error| rustls_error.downcast_ref())
}

fn certificate_error(problem: &CertificateError, name: &str, has_own_ca: bool) -> String {
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature if has_own_ca => {
            "the server's certificate is not signed by the CA in `ca_file`; set it to the CA that signed it".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by a CA that this system trusts; set `ca_file` to the CA that signed it"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let presented = match problem {
                CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
                    let names: Vec<_> = presented.iter().map(|name| bare_name(name)).collect();
                    format!(" but for {}", names.join(", "))
                }
                _ => String::new(),
            };
            format!(
                "the server's certificate is not for {name}{presented}; connect by a name in the certificate, or set \
                 `server_name`"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired; renew it, or correct the clock of this machine".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; replace it, or correct the clock of this machine".to_owned()
        }
        other => format!("the server's certificate was rejected: {other}"),
    }
}

/// Strips the kind of a name, as in `DnsName("localhost")`.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn alert_error(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            "the server requires a client certificate; set `cert_file` and `key_file`".to_owned()
        }
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::DecryptError => {
            format!(
                "the server rejected the client certificate in `cert_file` ({alert:?}); use one that the server trusts"
            )
        }
        Alert::HandshakeFailure => {
            "the server rejected the TLS handshake; it may require a client certificate (set `cert_file` and \
             `key_file`), or support no cipher suite of this client"
                .to_owned()
        }
        Alert::ProtocolVersion => {
            "the server supports neither TLS 1.2 nor TLS 1.3; enable one of them there".to_owned()
        }
        other => format!("the server ended the TLS session with the alert {other:?}"),
    }
}
