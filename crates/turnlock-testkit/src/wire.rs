//! Small moves on sockets that several parts need.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How much is read from a socket at once.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Sends one inline command over a connection of its own and gives back the text of the bulk reply.
///
/// An error reply becomes an error with that reply, such as `-NOAUTH ...`, as its text.
pub(crate) async fn ask(addr: SocketAddr, command: &str) -> io::Result<String> {
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

/// Reads a bit and throws it away; gives back how much, 0 when the other side has ended the connection.
pub(crate) async fn swallow(stream: &TcpStream) -> usize {
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

/// Throws away all that comes until the other side has ended the connection.
pub(crate) async fn discard(stream: &TcpStream) {
    while swallow(stream).await > 0 {}
}

/// Closes a connection with a reset instead of an orderly end.
pub(crate) fn reset(stream: TcpStream) {
    // Where the option cannot be set (the other side is gone already), closing is all that is left to do.
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// Ends our half of a connection and waits until the other side has handled everything and ended its own.
pub(crate) async fn finish(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    discard(&stream).await;
}

/// What can be read at once; empty when the other side has ended, `None` when nothing has come.
pub(crate) fn read<'a>(stream: &TcpStream, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    match stream.try_read(buffer) {
        Ok(length) => Some(&buffer[..length]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // A reset ends a connection like any other end.
        Err(_) => Some(&[]),
    }
}
