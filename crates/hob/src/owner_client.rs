//! The HTTP client of the owner's commands, over the socket.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;

use anyhow::bail;
use hob_gateway::client::{Client, Method};
use serde_json::Value;
use tokio::net::UnixStream;

use crate::socket::client::{CALL_TIMEOUT, Connection};
use crate::socket::{Answer, Call};

/// No server answers on the socket.
#[derive(Debug, thiserror::Error)]
#[error("hob is not running: no server answers on {socket}{}; start it with `hob serve`", unusual(.error))]
pub struct NotRunning {
    socket: String,
    error: io::Error,
}

/// Returns in parentheses why no server answers, unless it is the usual: there is no socket, or nobody listens.
pub fn unusual(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => String::new(),
        _ => format!(" ({error})"),
    }
}

/// Connects with the owner's rights.
pub async fn connect(socket: &Path) -> anyhow::Result<Client> {
    Ok(Client::new(stream(socket)?).await?)
}

/// Opens a connection that carries HTTP with the owner's rights. Must be called within a runtime.
pub fn stream(socket: &Path) -> anyhow::Result<UnixStream> {
    let stream = open(socket)?;
    stream.set_nonblocking(true)?;
    Ok(UnixStream::from_std(stream)?)
}

fn open(socket: &Path) -> anyhow::Result<StdStream> {
    let mut connection = Connection::open(socket, CALL_TIMEOUT)
        .map_err(|error| NotRunning { socket: socket.display().to_string(), error })?;
    match connection.call(&Call::Http, CALL_TIMEOUT)? {
        Answer::Http => Ok(connection.into_stream()?),
        Answer::Refused(reason) => bail!("{reason}"),
        _ => bail!(
            "unexpected response from the server; restart `hob serve`, it may be an older version"
        ),
    }
}

/// Returns all events of a session after a number, page by page. `session` is the session's path.
pub async fn events_after(
    client: &mut Client,
    session: &str,
    after: u64,
) -> anyhow::Result<Vec<Value>> {
    let (mut events, mut after) = (Vec::new(), after);
    loop {
        let path = format!("{session}/events?after={after}");
        let page = request(client, Method::GET, &path, None).await?;
        events.extend(page["events"].as_array().cloned().unwrap_or_default());
        match events.last().and_then(|event| event["seq"].as_u64()) {
            Some(last) if page["more"] == true && last > after => after = last,
            _ => return Ok(events),
        }
    }
}

/// Sends a request and returns the JSON of the answer. A status of 400 or more is an error.
pub async fn request(
    client: &mut Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let reply = client.ask(method, path, "application/json", body).await?;
    let status = reply.status;
    let answer = reply.json().await.map_err(|error| {
        anyhow::anyhow!(
            "cannot read the server's response ({error:#}); check that hob and the server have the same version"
        )
    })?;
    if status >= 400 {
        bail!("{}", answer["error"].as_str().unwrap_or("the server refused the request"));
    }
    Ok(answer)
}
