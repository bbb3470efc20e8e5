//! What an agent writes to be shown on the owner's terminal: a forged question, and escape sequences in names of files,
//! logs and turns.

use std::fs;

use hob_testkit::{TestHome, wait_until};
use serde_json::json;

use crate::api::*;
use crate::memory_setup::{capture, said, transcript};
use crate::on_terminal::{dialogue_on_terminal, on_terminal};

/// Sets the clipboard, moves the cursor up, deletes the line, and turns the text round.
const HOSTILE: &str = "\u{1b}]52;c;eA==\u{7}\u{9b}1A\r\u{1b}[2K\u{202e}";

/// An ACP agent that asks for a permission. What it writes looks like another question, and its options like their
/// opposites.
const ASKER: &str = r#"
import json, sys
hostile = "\x1b]52;c;eA==\x07\x9b1A\r\x1b[2K\u202e"
def send(message):
    sys.stdout.write(json.dumps(dict(message, jsonrpc="2.0")) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    method, result = message.get("method"), {}
    if method is None:
        chosen = message["result"]["outcome"].get("optionId", "none")
        content = {"type": "text", "text": "chosen " + chosen + hostile + "\n"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        send({"method": "session/update", "params": {"sessionId": "s", "update": update}})
        send({"id": prompt, "result": {"stopReason": "end_turn"}})
        continue
    if method == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {}}
    elif method == "session/new":
        result = {"sessionId": "s"}
    elif method == "session/prompt":
        prompt = message["id"]
        forged = hostile + "\nThe agent asks for permission: to look\nAllow? [y/N] "
        call = {"toolCallId": "t", "title": "Erase" + forged, "kind": "execute",
            "rawInput": {"command": "rm -r everything" + forged}}
        options = [{"optionId": "yes", "name": "Reject" + forged, "kind": "allow_once"},
            {"optionId": "no", "name": "Allow" + forged, "kind": "reject_once"}]
        params = {"sessionId": "s", "toolCall": call, "options": options}
        send({"id": 7, "method": "session/request_permission", "params": params})
        continue
    if "id" in message:
        send({"id": message["id"], "result": result})
"#;

/// Returns a server with an agent that asks.
fn with_asker() -> Api {
    let home = TestHome::new();
    let script = home.user_home().join("asker.py");
    fs::write(&script, ASKER).unwrap();
    configure(
        &home,
        &format!("[agents.asker]\ndriver = \"acp\"\ncommand = [\"python3\", {script:?}]\n"),
    );
    let token = home.app("tests");
    crate::backend::Backend::File.start(home, &token)
}

/// Asserts that a terminal shows a text as it is: it moves nothing, and turns nothing round.
#[track_caller]
fn assert_only_shows(what: &str, text: &str) {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
    assert!(!text.contains(acts), "{what}: {text:?}");
}

/// Returns the lines of what a terminal received. It ends them by two characters.
#[track_caller]
fn lines_of(what: &str, shown: &str) -> Vec<String> {
    let shown = shown.replace("\r\n", "\n");
    assert_only_shows(what, &shown);
    shown.lines().map(str::to_owned).collect()
}

fn count(lines: &[String], start: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(start)).count()
}

#[test]
fn question_for_a_permission_cannot_be_forged() {
    let api = with_asker();
    let plain = |arguments: &[&str]| {
        let mut command = api.home.command(arguments);
        command.env("NO_COLOR", "1");
        command
    };
    for (typed, chosen) in [("n\n", "chosen no"), ("y\n", "chosen yes")] {
        let run = plain(&["run", "--agent", "asker", "--permissions", "ask", "go"]);
        let shown = dialogue_on_terminal(run, &[("\nAllow? [y/N] ", typed)]);
        let lines = lines_of("run", &shown);
        assert_eq!(count(&lines, "The agent asks for permission: Erase"), 1, "{lines:?}");
        assert_eq!(count(&lines, "The agent asks"), 1, "{lines:?}");
        assert_eq!(count(&lines, "Allow?"), 1, "{lines:?}");
        assert!(count(&lines, "  | rm -r everything") == 1, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains(chosen)), "{lines:?}");
    }

    let id = api.create(&json!({"agent": "asker", "permissions": "ask"}));
    let turn = api.start_turn(&id, "go");
    let list = ["allow", "--list"];
    let shown = wait_until("the agent has asked", || {
        let shown = on_terminal(plain(&list), "");
        shown.contains("Erase").then_some(shown)
    });
    let lines = lines_of("allow --list", &shown);
    assert_eq!(lines.iter().filter(|line| !line.starts_with("  | ")).count(), 1, "{lines:?}");
    let tail = ["sessions", "tail", "--no-follow", id.as_str()];
    let lines = lines_of("sessions tail", &on_terminal(plain(&tail), ""));
    assert_eq!(count(&lines, "? Erase"), 1, "{lines:?}");
    assert_eq!(count(&lines, "Allow?") + count(&lines, "The agent asks"), 0, "{lines:?}");
    for arguments in [&list[..], &["allow", "--list", "--json"], &tail] {
        let output = api.home.run(arguments);
        assert_only_shows(&format!("{arguments:?}"), &String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("Erase"), "{output:?}");
    }
    let lines = lines_of("allow", &on_terminal(plain(&["allow", &id]), ""));
    assert_eq!(count(&lines, "allowed: Erase"), 1, "{lines:?}");
    assert_eq!(count(&lines, "Allow?") + count(&lines, "The agent asks"), 0, "{lines:?}");
    assert!(api.wait_for_turn(&id, turn, "finished")["text"].to_string().contains("chosen yes"));
}

#[test]
fn names_of_files_and_turns_do_not_act_on_a_terminal() {
    let api = api("");
    let text = format!("the lantern{HOSTILE}");
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", &text)]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    let name = format!("bad{HOSTILE}-1");
    let folder = api.home.hob_home().join("deferred-captures");
    fs::write(folder.join(format!("{name}.jsonl")), "{\"version\":99}\n").unwrap();
    let aside = folder.join(format!("{name}.failed.jsonl"));
    wait_until("the file is set aside", || aside.exists().then_some(()));
    for (arguments, part) in [
        (vec!["doctor"], "could not be stored"),
        (vec!["doctor", "--deep"], "could not be stored"),
        (vec!["doctor", "--json"], "could not be stored"),
        (vec!["timeline", "--project", "*"], "lantern"),
        (vec!["timeline", "--project", "*", "--json"], "lantern"),
        (vec!["logs"], "a deferral file could not be drained"),
        (vec!["logs", "--json"], "a deferral file could not be drained"),
        (vec!["export"], "lantern"),
        (vec!["app", "list"], "tests"),
        (vec!["app", "list", "--json"], "tests"),
    ] {
        let output = api.home.run(&arguments);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains(part), "{arguments:?}: {shown:?}");
        assert_only_shows(&format!("{arguments:?}"), &shown);
        assert_only_shows(&format!("{arguments:?}"), &String::from_utf8_lossy(&output.stderr));
    }
}
