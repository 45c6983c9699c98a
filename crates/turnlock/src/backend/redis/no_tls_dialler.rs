//! Replaces `tls_dialler` in builds without the feature `tls`.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::access::Stream;
use crate::error::Error;
use crate::tls::Tls;

/// Has no values: no TLS connection can be made.
#[derive(Debug)]
pub(crate) enum TlsDialler {}

impl TlsDialler {
    pub(crate) fn new(_: Tls) -> Result<Self, Error> {
        Err(Error::Unsupported(
            "TLS, in a build of turnlock without the feature `tls`; enable the feature".to_owned(),
        ))
    }

    pub(super) fn verifies_names(&self) -> bool {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "same signature as with TLS")]
    pub(super) async fn encrypt(&self, _: TcpStream, _: &str, _: Duration) -> io::Result<Stream> {
        match *self {}
    }
}
