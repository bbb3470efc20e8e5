//! `hob git-credential`: a credential helper for Git inside an agent's sandbox, which asks the running server.

use std::io::{self, Read, Write};
use std::time::Duration;

use clap::Args as ClapArgs;

use super::Exit;
use crate::printer::errln;
use crate::settings;
use crate::socket::client::{Connection, PROBE_TIMEOUT};
use crate::socket::{Answer, Call, GitRequest};

/// How long the server's answer may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest request of Git.
const MAX_REQUEST_BYTES: u64 = 64 << 10;

/// Give Git the credential for a host, inside of an agent
#[derive(ClapArgs)]
pub struct Args {
    /// What Git asks for: `get`, `store` or `erase`
    operation: String,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut text = String::new();
    io::stdin().lock().take(MAX_REQUEST_BYTES).read_to_string(&mut text)?;
    // An agent can neither store nor erase the owner's credentials.
    if args.operation != "get" {
        return Ok(Exit::Done);
    }
    let mut out = io::stdout().lock();
    match ask(&text)? {
        Ok((username, password)) => {
            write!(out, "username={username}\npassword={password}\n")?;
        }
        Err(refusal) => {
            errln!("hob: {refusal}");
            // Otherwise Git would ask a person, who is not there.
            if std::env::var_os("GIT_ASKPASS").is_none() {
                writeln!(out, "quit=1")?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns the user's name and password, or why there are none.
fn ask(text: &str) -> anyhow::Result<Result<(String, String), String>> {
    let value = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().map(str::to_owned)
    };
    let request = GitRequest {
        protocol: value("protocol").unwrap_or_default(),
        host: value("host").unwrap_or_default(),
        path: value("path"),
        username: value("username"),
    };
    let mut connection = Connection::open(&settings::socket_path()?, PROBE_TIMEOUT)?;
    Ok(match connection.call(&Call::GitCredential { request }, TIMEOUT)? {
        Answer::Result(credential) => {
            let text = |name: &str| credential[name].as_str().unwrap_or_default().to_owned();
            Ok((text("username"), text("password")))
        }
        Answer::Refused(refusal) => Err(refusal),
        _ => Err("the server does not know this call; restart `hob serve`".to_owned()),
    })
}
