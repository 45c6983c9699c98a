use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::write_timeout::WriteTimeout;

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 128;
/// How long a client may take for a TLS handshake, for the headers of a request, between two requests, or until it reads more of
/// a response. Tests do not wait so long.
const IDLE_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 30_000 });
/// How long a connection is kept whose peer acknowledges nothing.
#[cfg(target_os = "linux")]
const VANISHED_LIMIT: Duration = Duration::from_secs(30);
/// The most bytes of the head of a request, and of a read.
const MAX_HEAD: usize = 16 * 1024;
/// How long requests under way may take at the end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);
/// The pause after a failed accept, which is often a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The connections of all viewers.
pub(super) struct Connections {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    permits: Arc<Semaphore>,
    graceful: GracefulShutdown,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Self { listener, tls, permits, graceful: GracefulShutdown::new() }
    }

    /// Accepts connections without end. Those above the limit are closed at once.
    pub(super) async fn serve(&self, router: Router) {
        loop {
            let Ok(stream) = self.accept().await else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { continue };
            let (router, tls, watcher) = (router.clone(), self.tls.clone(), self.graceful.watcher());
            tokio::spawn(async move {
                let _permit = permit;
                match tls {
                    None => serve(stream, router, watcher).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = timeout(IDLE_LIMIT, tls.accept(stream)).await {
                            serve(stream, router, watcher).await;
                        }
                    }
                }
            });
        }
    }

    async fn accept(&self) -> std::io::Result<TcpStream> {
        let (stream, _) = self.listener.accept().await?;
        // Without an option, a connection is slower, or ends later.
        let _ = set_options(&stream);
        Ok(stream)
    }

    /// Ends idle connections, and waits a little for the others.
    pub(super) async fn shut_down(self) {
        drop(self.listener);
        let _ = timeout(SHUTDOWN_LIMIT, self.graceful.shutdown()).await;
    }
}

/// Sends a difference as it comes, and ends the connection of a peer that has vanished without a word, as a phone does.
///
/// The system takes what is written to such a peer until its buffer is full, which differences do not fill for hours.
fn set_options(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    #[cfg(target_os = "linux")]
    {
        sockopt::set_tcp_keepidle(stream, VANISHED_LIMIT / 2)?;
        sockopt::set_tcp_keepintvl(stream, VANISHED_LIMIT / 2)?;
        let millis = u32::try_from(VANISHED_LIMIT.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(stream, millis)?;
    }
    Ok(())
}

/// Serves the requests of one connection.
async fn serve<S>(stream: S, router: Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(IDLE_LIMIT).max_buf_size(MAX_HEAD);
    let stream = TokioIo::new(WriteTimeout::new(stream, IDLE_LIMIT));
    let connection = server.serve_connection(stream, TowerToHyperService::new(router));
    // An error is one of the client, which sees it too.
    let _ = watcher.watch(connection).await;
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// More than the buffers of a connection.
    const LARGE: usize = 64 * 1024 * 1024;
    /// With room for a busy machine.
    const AWHILE: Duration = Duration::from_secs(30);

    async fn start(tls: Option<TlsAcceptor>) -> (SocketAddr, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new(listener, tls);
        let permits = Arc::clone(&connections.permits);
        let router = Router::new().route("/", get(|| async { "x".repeat(LARGE) }));
        tokio::spawn(async move { connections.serve(router).await });
        (address, permits)
    }

    /// Sends some bytes, and returns what the server sends until it closes the connection.
    async fn response_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut response = Vec::new();
        // An error is the end too.
        let _ = timeout(AWHILE, stream.read_to_end(&mut response)).await.expect("the end of the connection");
        response
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_is_not_awaited() {
        let (address, _) = start(None).await;
        for head in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n"] {
            assert_eq!(response_to(address, head.as_bytes()).await, b"", "{head:?}");
        }
    }

    #[tokio::test]
    async fn a_handshake_that_does_not_end_is_not_awaited() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let resolver = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
        let tls = TlsAcceptor::from(Arc::new(config.with_cert_resolver(resolver)));
        let (address, _) = start(Some(tls)).await;
        // The beginning of a record with 512 bytes.
        for bytes in [&b""[..], &[0x16, 3, 1, 2, 0, 1]] {
            assert_eq!(response_to(address, bytes).await, b"", "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_response_that_is_not_read_ends_the_connection() {
        let (address, permits) = start(None).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        // The client sees nothing of it before it reads.
        for is_open in [true, false] {
            let changes = async {
                while (permits.available_permits() < MAX_CONNECTIONS) != is_open {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(AWHILE, changes).await.expect("the begin and the end of the connection");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_accepted_connection_ends_if_its_peer_vanishes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Connections::new(listener, None).accept().await.unwrap();
        assert!(stream.nodelay().unwrap() && sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), VANISHED_LIMIT / 2);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 30_000);
    }
}
