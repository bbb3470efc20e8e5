//! Reads frames of the socket.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::peer_limits::MESSAGE_TIMEOUT;

/// Reads the length of the next frame. Returns `None` if the peer has closed the connection.
pub async fn read_length(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<usize>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Ok(_) => Ok(Some(u32::from_be_bytes(length) as usize)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the body of a frame. The buffer grows with the data: a peer cannot reserve memory by a length alone.
pub async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut frame = stream.take(length as u64);
    tokio::time::timeout(MESSAGE_TIMEOUT, frame.read_to_end(&mut body)).await??;
    match body.len() < length {
        true => Err(io::ErrorKind::UnexpectedEof.into()),
        false => Ok(body),
    }
}
