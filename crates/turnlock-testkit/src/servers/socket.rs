//! Helpers for sockets.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How much is read from a socket at once.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Sends one inline command on a new connection and returns the bulk reply.
///
/// The text of an error is the error reply, such as `-NOAUTH ...`.
pub(crate) async fn query(addr: SocketAddr, command: &str) -> io::Result<String> {
    let mut stream = BufReader::new(TcpStream::connect(addr).await?);
    stream.write_all(format!("{command}\r\n").as_bytes()).await?;
    let mut head = String::new();
    stream.read_line(&mut head).await?;
    let length = head.trim_end().strip_prefix('$').and_then(|digits| digits.parse().ok());
    let length: usize = length.ok_or_else(|| io::Error::other(head.trim_end().to_owned()))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    String::from_utf8(body).map_err(io::Error::other)
}

/// Reads and discards one chunk. Returns its length; 0 if the peer has closed the connection.
pub(crate) async fn discard_chunk(stream: &TcpStream) -> usize {
    let mut buffer = vec![0; CHUNK];
    loop {
        if stream.readable().await.is_err() {
            return 0;
        }
        match stream.try_read(&mut buffer) {
            Ok(length) => return length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return 0,
        }
    }
}

/// Discards everything until the peer closes the connection.
pub(crate) async fn discard(stream: &TcpStream) {
    while discard_chunk(stream).await > 0 {}
}

/// Closes a connection with a TCP reset.
pub(crate) fn reset(stream: TcpStream) {
    // If the peer is gone the option cannot be set; a plain close is enough then.
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// Shuts down our half of a connection, then waits until the peer closes its own.
pub(crate) async fn finish(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    discard(&stream).await;
}

/// Reads without blocking. Empty if the peer has closed; `None` if nothing has arrived.
pub(crate) fn read<'a>(stream: &TcpStream, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    match stream.try_read(buffer) {
        Ok(length) => Some(&buffer[..length]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // A reset counts as a close.
        Err(_) => Some(&[]),
    }
}
