//! A connection whose request is being held.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::live::Live;
use crate::rule::Rule;
use crate::trap::Release;
use crate::wire;

/// A request that was sent but must not arrive before its release.
///
/// Nothing else passes on its connection any more: what either side sends is thrown away. The side to the server
/// stays open whatever the client does, as if the request were still travelling.
#[derive(Debug)]
pub(crate) struct Held {
    /// With the count of live clients; `None` once it has closed or was reset.
    pub(crate) client: Option<(TcpStream, Live)>,
    pub(crate) server: TcpStream,
    pub(crate) request: Vec<u8>,
    pub(crate) release: oneshot::Receiver<Release>,
    pub(crate) rules: watch::Receiver<Rule>,
    /// The count of resets under which the connection came to be.
    pub(crate) born: u64,
}

impl Held {
    /// Holds the request until its release, and ends when it is delivered and the client is gone.
    pub(crate) async fn run(mut self) {
        let mut released = false;
        let mut server_ended = false;
        while !released || self.client.is_some() {
            let client_ends = async {
                match &self.client {
                    Some((client, _)) => wire::discard(client).await,
                    None => std::future::pending().await,
                }
            };
            // The guard that the watch hands out must not live on across the other branches.
            let all_reset = async { self.rules.wait_for(|rule| rule.resets != self.born).await.is_ok() };
            tokio::select! {
                () = client_ends => self.client = None,
                () = wire::discard(&self.server), if !server_ended => server_ended = true,
                release = &mut self.release, if !released => {
                    // Without the other end there is no proxy any more.
                    let Ok(written) = release else { return };
                    // A server that is gone has lost the request; that is for the test to find out.
                    let _ = self.server.write_all(&self.request).await;
                    released = true;
                    let _ = written.send(());
                }
                reset = all_reset, if self.client.is_some() => {
                    if !reset {
                        return;
                    }
                    if let Some((client, _live)) = self.client.take() {
                        wire::reset(client);
                    }
                }
            }
        }
        wire::finish(self.server).await;
    }
}
