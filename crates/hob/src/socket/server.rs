//! The server's side of the socket.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hob_gateway::Connections;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Answer, Call, FRAME_LIMIT, Hello, PROTOCOL};

/// Binds the socket, 0600. A stale one left by a crash is taken over; one that somebody answers on
/// is not ours to take. Blocking; call it with the home's lock held.
pub fn bind(path: &Path) -> anyhow::Result<std::os::unix::net::UnixListener> {
    if path.as_os_str().len() > 107 {
        bail!("the socket's path is longer than the system allows (107 bytes): {}", path.display());
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        bail!("another program answers on the socket {}", path.display());
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} is in the way", path.display()));
        }
        _ => {}
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(path)
        .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers on the socket until `stopping`. Every connection is a task of `tasks` and ends at
/// `stopping` too.
pub async fn serve(
    listener: UnixListener,
    hello: Hello,
    connections: Connections,
    tasks: TaskTracker,
    stopping: CancellationToken,
) {
    let owner = nix::unistd::getuid().as_raw();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection to the socket could not be accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            () = stopping.cancelled() => return,
        };
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == owner => {}
            // The file's mode keeps others out; root and passed descriptors are met here.
            _ => continue,
        }
        let open = connections.open();
        let (hello, stopping) = (hello.clone(), stopping.clone());
        tasks.spawn(async move {
            tokio::select! {
                result = converse(stream, &hello) => if let Err(error) = result {
                    tracing::debug!(%error, "a connection to the socket ended early");
                },
                () = stopping.cancelled() => {}
            }
            drop(open);
        });
    }
}

async fn converse(mut stream: UnixStream, hello: &Hello) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        match stream.read_exact(&mut length).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > FRAME_LIMIT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Read as it comes: a length alone reserves nothing.
        let mut body = Vec::new();
        (&mut stream).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = match serde_json::from_slice(&body) {
            Ok(Call::Hello { protocol }) if protocol <= PROTOCOL => Answer::Hello(hello.clone()),
            Ok(Call::Hello { protocol }) => Answer::Error(format!(
                "this hob ({}) speaks protocol {PROTOCOL}, not {protocol}: restart `hob serve`",
                hello.version
            )),
            Err(error) => Answer::Error(format!("unknown call: {error}")),
        };
        let body = serde_json::to_vec(&answer)?;
        stream.write_all(&(body.len() as u32).to_be_bytes()).await?;
        stream.write_all(&body).await?;
    }
}
