//! What an error of TLS means, in words that say what to do.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::first_answer::{Instead, is_hang_up, no_redis};

/// What the server was expected to be.
pub(super) struct Expected<'a> {
    /// The name that should stand in its certificate.
    pub(super) name: &'a str,
    /// Whether we were told which CA to trust.
    pub(super) own_ca: bool,
}

/// An error of the handshake.
pub(super) fn explain_handshake(error: io::Error, expected: &Expected<'_>) -> io::Error {
    let text = match cause(&error) {
        Some(Error::InvalidMessage(_)) => return no_tls(),
        Some(Error::InvalidCertificate(problem)) => with_certificate(problem, expected),
        Some(Error::AlertReceived(alert)) => with_alert(*alert),
        None if is_hang_up(&error) => {
            "the server closed the connection in the TLS handshake; if it speaks no TLS on this port, use redis://"
                .to_owned()
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

/// What came in place of the first answer, after the handshake: by TLS 1.3 a server looks at our certificate only then.
pub(super) fn explain_first_answer(instead: Instead) -> io::Error {
    let hung_up = "the server closed the connection right after the TLS handshake; if it asks clients for certificates, \
                   set `cert_file` and `key_file`";
    match instead {
        Instead::Nonsense => no_redis(),
        Instead::Nothing | Instead::Alert => io::Error::new(io::ErrorKind::UnexpectedEof, hung_up),
        Instead::Error(error) => match cause(&error) {
            Some(Error::AlertReceived(alert)) => io::Error::new(error.kind(), with_alert(*alert)),
            None if is_hang_up(&error) => io::Error::new(error.kind(), hung_up),
            _ => error,
        },
    }
}

/// The server answers, but without TLS.
pub(super) fn no_tls() -> io::Error {
    let text = "the server does not speak TLS on this port; use redis://";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|cause| cause.downcast_ref())
}

fn with_certificate(problem: &CertificateError, expected: &Expected<'_>) -> String {
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature if expected.own_ca => {
            "the server's certificate is not signed by the CA in `ca_file`".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by a CA that this system trusts; name its CA by `ca_file`"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let presented = match problem {
                CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
                    let names: Vec<_> = presented.iter().map(|name| bare(name)).collect();
                    format!(" but for {}", names.join(", "))
                }
                _ => String::new(),
            };
            format!(
                "the server's certificate is not for {}{presented}; connect by a name that stands in it, or set \
                 `server_name`",
                expected.name
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet, or the clock of this machine is wrong".to_owned()
        }
        other => format!("the server's certificate cannot be accepted: {other}"),
    }
}

/// The name without its kind, as in `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn with_alert(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired => {
            "the server asks for a certificate of ours; set `cert_file` and `key_file`".to_owned()
        }
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::CertificateUnknown
        | Alert::DecryptError => {
            format!("the server does not accept our certificate, `cert_file` ({alert:?})")
        }
        Alert::HandshakeFailure => {
            "the server broke off the TLS handshake; it may ask for a certificate of ours \
                                    (`cert_file` and `key_file`), or have no cipher in common with us"
                .to_owned()
        }
        Alert::ProtocolVersion => "the server speaks neither TLS 1.2 nor TLS 1.3".to_owned(),
        other => format!("the server broke off TLS: {other:?}"),
    }
}
