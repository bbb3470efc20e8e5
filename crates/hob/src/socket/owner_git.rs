//! Credentials of the owner's Git for agents: an agent gets those of the hosts that its entry names, and sees no store.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use hob_child::{ChildSpec, Children, Stdin, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::protocol::GitRequest;

/// How long the owner's helpers may take. A helper that asks a person would take longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer of Git.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// Returns why a request is refused: only hosts that the agent's entry names are answered.
pub fn check(request: &GitRequest, hosts: &[String]) -> Result<(), String> {
    let GitRequest { protocol, host, path, username } = request;
    let values = [Some(protocol), Some(host), path.as_ref(), username.as_ref()];
    if values.into_iter().flatten().any(|value| value.contains(['\n', '\r', '\0'])) {
        return Err("a value of the request has a line break".to_owned());
    }
    if protocol != "https" {
        return Err(format!("Hob has credentials for https only, not for {protocol}"));
    }
    if !hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
        return Err(format!(
            "the sandbox hides your credentials; to let agents use the one for {host}, add \"{host}\" to `git_hosts` of the agent in config.toml"
        ));
    }
    Ok(())
}

/// Asks the owner's Git for a credential. No person is asked. Returns the reason if there is none.
pub async fn fill(children: &Children, request: &GitRequest) -> Result<Value, String> {
    let filled = tokio::time::timeout(TIMEOUT, ask(children, request)).await;
    let text = filled.map_err(|_| "Git's credential helper takes too long".to_owned())??;
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or("")
    };
    let (username, password) = (value("username"), value("password"));
    if password.is_empty() {
        let host = &request.host;
        return Err(format!(
            "your Git has no credential for {host}; run `git credential approve`, or sign in with your helper"
        ));
    }
    Ok(json!({"username": username, "password": password}))
}

async fn ask(children: &Children, request: &GitRequest) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot run git: {error}");
    // No repository and no setting in the server's environment has a say, and no helper can show a window.
    let is_kept = |name: &OsStr| {
        let name = name.to_string_lossy();
        !name.starts_with("GIT_") && !["DISPLAY", "WAYLAND_DISPLAY"].contains(&name.as_ref())
    };
    let mut env: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| is_kept(name)).collect();
    let unattended = [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "true"),
        ("SSH_ASKPASS", "true"),
        ("GCM_INTERACTIVE", "never"),
        ("GIT_CEILING_DIRECTORIES", "/"),
    ];
    for (name, value) in unattended {
        env.retain(|(known, _)| known != name);
        env.push((name.into(), value.into()));
    }
    let spec = ChildSpec {
        program: "git".into(),
        args: ["credential", "fill"].map(OsString::from).into(),
        env,
        cwd: "/".into(),
        streams: Streams::Pipes { stdin: Stdin::Pipe },
        owner: None,
        confinement: None,
    };
    let mut child = children.spawn(spec).await.map_err(|error| failed(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        let mut lines = format!("protocol={}\nhost={}\n", request.protocol, request.host);
        for (name, value) in [("path", &request.path), ("username", &request.username)] {
            if let Some(value) = value {
                lines.push_str(&format!("{name}={value}\n"));
            }
        }
        lines.push('\n');
        // Git may have ended already; its answer shows that.
        let _ = stdin.write_all(lines.as_bytes()).await;
    }
    let mut text = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = stdout.take(MAX_ANSWER_BYTES);
        stdout.read_to_string(&mut text).await.map_err(|error| failed(&error))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_hosts_are_answered_over_https() {
        let request = |protocol: &str, host: &str| GitRequest {
            protocol: protocol.to_owned(),
            host: host.to_owned(),
            ..GitRequest::default()
        };
        let hosts = ["git.example".to_owned()];
        assert_eq!(check(&request("https", "git.example"), &hosts), Ok(()));
        assert_eq!(check(&request("https", "GIT.example"), &hosts), Ok(()));
        for (protocol, host, word) in [
            ("http", "git.example", "https"),
            ("https", "git.example.evil.example", "git_hosts"),
            ("https", "git.example:8443", "git_hosts"),
            ("https", "git.example\nhost=other.example", "line break"),
        ] {
            let refusal = check(&request(protocol, host), &hosts).unwrap_err();
            assert!(refusal.contains(word), "{refusal}");
        }
    }
}
