//! Recognises a denial of the sandbox in what a tool printed, and names the setting that allows it.

use hob_domain::{AgentName, AgentSpec, Sandbox};
use serde_json::Value;

use crate::sandbox::CREDENTIALS;

/// The most text of one message that is searched.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// What programs print if the kernel denies something.
const DENIALS: [&str; 6] = [
    "permission denied",
    "read-only file system",
    "operation not permitted",
    "eacces",
    "erofs",
    "eperm",
];
/// What they print if a folder shows as empty.
const MISSING: [&str; 2] = ["no such file", "enoent"];

/// A denial, with the setting that allows what was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The key in the agent's entry.
    pub setting: &'static str,
    /// A sentence for the user.
    pub text: String,
}

/// Finds a denial in a message of an agent: only the results of its tools count.
pub fn denial_in(message: &str, agent: &AgentName, spec: &AgentSpec) -> Option<Denial> {
    let is_worth_parsing = || {
        let lower = message.to_ascii_lowercase();
        DENIALS.iter().chain(&MISSING).chain(&["docker"]).any(|word| lower.contains(word))
    };
    if spec.sandbox == Sandbox::Off
        || !message.contains("tool_call_update")
        || message.len() > 16 * MAX_TEXT_BYTES
        || !is_worth_parsing()
    {
        return None;
    }
    let message: Value = serde_json::from_str(message).ok()?;
    let mut text = String::new();
    collect(&message, &mut text);
    text.lines().find_map(|line| explain(line, agent, spec))
}

/// Appends every string of a value, each as lines of its own.
fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(string) if text.len() + string.len() < MAX_TEXT_BYTES => {
            text.push_str(string);
            text.push('\n');
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, text)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, text)),
        _ => {}
    }
}

fn explain(line: &str, agent: &AgentName, spec: &AgentSpec) -> Option<Denial> {
    let lower = line.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let denial = |setting: &'static str, value: &str, reason: String| {
        let text = format!(
            "{reason} `{setting} = [{value}]` in [agents.{agent}] of config.toml allows it."
        );
        Some(Denial { setting, text })
    };
    if lower.contains("permission denied (publickey") {
        let host = line.split_once('@').and_then(|(_, rest)| rest.split_once(':'));
        let host = host.map_or("github.com", |(host, _)| host);
        let reason = format!("The sandbox hides your SSH keys. For Git on {host},");
        return denial("git_hosts", &format!("{host:?}"), reason);
    }
    if lower.contains("docker") && has(&["cannot connect", "permission denied", "no such file"]) {
        let reason = "The sandbox hides Docker's socket from the agent.".to_owned();
        return denial("sockets", "\"/var/run/docker.sock\"", reason);
    }
    if has(&DENIALS) || has(&MISSING) {
        let opened: Vec<&String> = spec.readable.iter().chain(&spec.writable).collect();
        let is_hidden = |store: &&&str| {
            let path = format!("~/{store}");
            !opened.iter().any(|open| path.starts_with(open.as_str()))
        };
        if let Some(store) = CREDENTIALS.iter().filter(is_hidden).find(|store| names(line, store)) {
            let reason = format!("The sandbox hides ~/{store} from the agent.");
            return denial("readable", &format!("\"~/{store}\""), reason);
        }
    }
    if spec.ports.is_some() && has(&DENIALS) && lower.contains("connect") {
        let reason = "The agent may connect only to the ports of its entry.".to_owned();
        return denial("ports", "…", reason);
    }
    if has(&["read-only file system", "erofs"]) {
        let path = absolute_path(line)?;
        let reason = "The sandbox lets the agent write only its own folders.".to_owned();
        return denial("writable", &format!("{path:?}"), reason);
    }
    None
}

/// Returns whether a line has the path of a store of credentials.
fn names(line: &str, store: &str) -> bool {
    let mut rest = line;
    while let Some(at) = rest.find(store) {
        let before = rest[..at].chars().next_back();
        let after = rest[at + store.len()..].chars().next();
        let ends = after.is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '.');
        if before == Some('/') && ends {
            return true;
        }
        rest = &rest[at + store.len()..];
    }
    false
}

/// Returns the first absolute path in a line.
fn absolute_path(line: &str) -> Option<&str> {
    let is_end = |c: char| c.is_whitespace() || "'\"`:,;()".contains(c);
    line.split(is_end).find(|word| word.starts_with('/') && word.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::Driver;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn spec() -> AgentSpec {
        AgentSpec {
            driver: Driver::Acp,
            command: Vec::new(),
            env: BTreeMap::new(),
            env_pass: Vec::new(),
            sandbox: Sandbox::Workspace,
            writable: Vec::new(),
            private: Vec::new(),
            copy: BTreeMap::new(),
            readable: Vec::new(),
            sockets: Vec::new(),
            ports: None,
            git_hosts: Vec::new(),
            install: String::new(),
        }
    }

    fn found(output: &str, spec: &AgentSpec) -> Option<Denial> {
        let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1",
            "content": [{"type": "content", "content": {"type": "text", "text": output}}]});
        let message = json!({"method": "session/update", "params": {"update": update}});
        denial_in(&message.to_string(), &AgentName::new("mine").unwrap(), spec)
    }

    #[test]
    fn denial_names_the_setting_that_allows_it() {
        for (output, setting, value) in [
            ("ls\ncat: /home/ada/.ssh/id_ed25519: No such file or directory", "readable", "~/.ssh"),
            ("cat: /home/ada/.aws/credentials: Permission denied", "readable", "~/.aws"),
            ("git@git.example: Permission denied (publickey).", "git_hosts", "git.example"),
            (
                "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
                "sockets",
                "/var/run/docker.sock",
            ),
            ("touch: cannot touch '/opt/tool/x': Read-only file system", "writable", "/opt/tool/x"),
            ("Error: EROFS: read-only file system, open '/srv/a'", "writable", "/srv/a"),
        ] {
            let denial = found(output, &spec()).unwrap_or_else(|| panic!("{output}"));
            assert_eq!(denial.setting, setting, "{output}");
            assert!(denial.text.contains(value), "{}", denial.text);
            assert!(denial.text.contains("[agents.mine]"), "{}", denial.text);
        }
        let ports = AgentSpec { ports: Some(vec![443]), ..spec() };
        let output = "curl: (7) Failed to connect to db port 5432: Permission denied";
        assert_eq!(found(output, &ports).unwrap().setting, "ports");
    }

    #[test]
    fn other_output_is_no_denial() {
        for output in [
            "",
            "cat: notes.txt: No such file or directory",
            "rm: cannot remove 'x': Permission denied",
            "see ~/.ssh/config and /home/ada/.ssh",
            "cat: /home/ada/.sshd.txt: No such file or directory",
            "docker build finished",
        ] {
            assert_eq!(found(output, &spec()), None, "{output}");
        }
        let open = AgentSpec { readable: vec!["~/.ssh".to_owned()], ..spec() };
        assert_eq!(found("cat: /home/ada/.ssh/x: No such file or directory", &open), None);
        let off = AgentSpec { sandbox: Sandbox::Off, ..spec() };
        assert_eq!(found("cat: /home/ada/.ssh/x: No such file or directory", &off), None);
        let said = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text",
            "text": "touch: '/opt/x': Read-only file system"}});
        let message = json!({"method": "session/update", "params": {"update": said}}).to_string();
        assert_eq!(denial_in(&message, &AgentName::new("mine").unwrap(), &spec()), None);
    }
}
