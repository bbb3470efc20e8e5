//! The owner's commands ask the server through this: HTTP over the socket.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;

use anyhow::{Context, bail};
use hob_gateway::client::{Client, Method};
use serde_json::Value;
use tokio::net::UnixStream;

use crate::socket::client::{Connection, DEADLINE};
use crate::socket::{Answer, Call};

/// Nobody answers on the socket.
#[derive(Debug, thiserror::Error)]
#[error("hob is not running: nobody answers on {socket} ({error}); start it with `hob serve`")]
pub struct NotRunning {
    socket: String,
    error: io::Error,
}

/// Connects as the owner.
pub async fn connect(socket: &Path) -> anyhow::Result<Client> {
    Ok(Client::new(stream(socket)?).await?)
}

/// A connection that carries HTTP as the owner. Must be called within a runtime.
pub fn stream(socket: &Path) -> anyhow::Result<UnixStream> {
    let stream = open(socket)?;
    stream.set_nonblocking(true)?;
    Ok(UnixStream::from_std(stream)?)
}

fn open(socket: &Path) -> anyhow::Result<StdStream> {
    let mut connection = Connection::open(socket, DEADLINE)
        .map_err(|error| NotRunning { socket: socket.display().to_string(), error })?;
    match connection.call(&Call::Http, DEADLINE)? {
        Answer::Http => Ok(connection.into_stream()?),
        Answer::Refused(why) => bail!("{why}"),
        _ => bail!("the server answered something else: is it an older hob? restart it"),
    }
}

/// Asks and returns the answer's JSON; an error of the server is an error.
pub async fn ask(
    client: &mut Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let reply = client.ask(method, path, "application/json", body).await?;
    let status = reply.status;
    let answer = reply.json().await.context("the server's answer can't be read")?;
    if status >= 400 {
        bail!("{}", answer["error"].as_str().unwrap_or("the server refused"));
    }
    Ok(answer)
}
