//! `hob mcp`: a stdio MCP server that only joins the daemon. It never starts one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::Args as ClapArgs;
use hob_mcp::{Backend, Caller, McpServer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::Outcome;
use crate::settings::Resolved;
use crate::socket::{Answer, Call, FRAME_LIMIT, PROTOCOL};

/// How long the server may take for one call.
const CALL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(1);

/// Speak MCP on standard input and output, for an agent's configuration
#[derive(ClapArgs)]
#[command(after_help = "\
Claude Code:  claude mcp add --scope user hob -- hob mcp
Joins the running `hob serve`; without one the tools are listed and a call says what to do.")]
pub struct Args {}

pub fn run(settings: &Resolved) -> anyhow::Result<Outcome> {
    let bridge = Bridge {
        socket: settings.socket.clone(),
        cwd: std::env::current_dir().ok().map(|cwd| cwd.to_string_lossy().into_owned()),
        idle: Mutex::new(Vec::new()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { hob_mcp::serve_stdio(McpServer::new(Arc::new(bridge))).await });
    // A thread may still be reading standard input.
    runtime.shutdown_background();
    Ok(Outcome::Done)
}

/// Hands calls on to the daemon, over connections that are kept while they hold.
struct Bridge {
    socket: PathBuf,
    cwd: Option<String>,
    idle: Mutex<Vec<UnixStream>>,
}

#[async_trait]
impl Backend for Bridge {
    async fn call(
        &self,
        _caller: Option<&Caller>,
        name: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        let call = Call::Tool { name: name.to_owned(), arguments, cwd: self.cwd.clone() };
        let answered = tokio::time::timeout(CALL, self.answer(&call)).await;
        match answered {
            Ok(Ok(Answer::Result(value))) => Ok(value),
            Ok(Ok(Answer::Refused(why) | Answer::Error(why))) => Err(why),
            Ok(Ok(_)) => {
                Err("the server answered something else; is it another version?".to_owned())
            }
            Ok(Err(error)) => Err(format!(
                "hob is not running: nobody answers on {} ({error}). Start it with `hob serve`.",
                self.socket.display()
            )),
            Err(_) => Err(format!("hob did not answer within {} s", CALL.as_secs())),
        }
    }
}

impl Bridge {
    /// Calls over a connection that is kept and, when the daemon has gone since, over a new one. A
    /// call may so be made twice, which every tool bears.
    async fn answer(&self, call: &Call) -> io::Result<Answer> {
        let kept = self.idle.lock().await.pop();
        if let Some(stream) = kept {
            if let Ok(answer) = self.exchange(stream, call).await {
                return Ok(answer);
            }
            // The others go to the same daemon, which is no more.
            self.idle.lock().await.clear();
        }
        let stream = tokio::time::timeout(CONNECT, connect(&self.socket))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        self.exchange(stream, call).await
    }

    async fn exchange(&self, mut stream: UnixStream, call: &Call) -> io::Result<Answer> {
        let answer = exchange(&mut stream, call).await?;
        self.idle.lock().await.push(stream);
        Ok(answer)
    }
}

async fn connect(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    match exchange(&mut stream, &Call::Hello { protocol: PROTOCOL }).await? {
        Answer::Hello(_) => Ok(stream),
        Answer::Error(error) => Err(io::Error::other(error)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn exchange(stream: &mut UnixStream, call: &Call) -> io::Result<Answer> {
    let body = serde_json::to_vec(call)?;
    stream.write_all(&(body.len() as u32).to_be_bytes()).await?;
    stream.write_all(&body).await?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}
