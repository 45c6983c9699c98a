//! In place of `tls_dialler` where the crate was built without the feature `tls`.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

use super::access::Stream;
use crate::error::Error;
use crate::tls::Tls;

/// There is none.
#[derive(Debug)]
pub(crate) enum TlsDialler {}

impl TlsDialler {
    pub(crate) fn new(_: Tls) -> Result<Self, Error> {
        Err(Error::Unsupported("TLS, since turnlock was built without its feature `tls`".to_owned()))
    }

    pub(super) fn verifies_names(&self) -> bool {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "it stands for one that awaits")]
    pub(super) async fn encrypt(&self, _: TcpStream, _: &str, _: Duration) -> io::Result<Stream> {
        match *self {}
    }
}
