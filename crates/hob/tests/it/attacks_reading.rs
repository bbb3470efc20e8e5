//! Files that an agent makes the server read or write: through requests of its protocol, and by its transcript. The server
//! must answer others all the time, and stay small.

use std::fs;

use hob_testkit::TestHome;
use serde_json::{Value, json};

use crate::api::*;
use crate::attacks::answers_until;

/// Makes nested folders of one letter.
const DIG: &str =
    "python3 -c 'import os\nfor i in range(1900): os.mkdir(\"a\"); os.chdir(\"a\")'; echo dug";

/// Waits until turns have ended, while the server answers others. Returns their states.
fn states_at_the_end(api: &Api, turns: &[(String, u64)]) -> Vec<Value> {
    let mut states = Vec::new();
    answers_until(api, || {
        let state = |(id, turn): &(String, u64)| api.get_turn(id, *turn)["state"].clone();
        states = turns.iter().map(state).collect();
        states.iter().all(|state| *state != "running" && *state != "queued")
    });
    states
}

/// To find where a path of thousands of folders leads took cubic time, on the threads that serve everybody.
#[test]
fn deep_paths_in_requests_for_files_do_not_stop_the_server() {
    let api = api("");
    let ids: Vec<String> = (0..4).map(|_| api.session()).collect();
    let mut turns = Vec::new();
    for id in &ids {
        assert_eq!(api.shell(id, DIG), "dug");
        for levels in [8000, 1950, 30_000] {
            let path = format!("{}{}", api.workspace(id).display(), "/a".repeat(levels));
            let write = json!({"sessionId": "x", "path": path, "content": "x"});
            let read = json!({"sessionId": "x", "path": path});
            let prompt = format!(
                "[[request fs/write_text_file {write}]] [[request fs/read_text_file {read}]]"
            );
            turns.push((id.clone(), api.start_turn(id, &prompt)));
        }
    }
    let states = states_at_the_end(&api, &turns);
    assert!(states.iter().all(|state| *state == "finished"), "{states:?}");
}

/// An ACP agent that asks for a file of newlines again and again. In JSON it is twice as long.
const READER: &str = r#"
import json, sys
def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
def ask(number, name):
    send({"jsonrpc": "2.0", "id": number, "method": "fs/read_text_file",
        "params": {"sessionId": "s", "path": folder + "/" + name}})
prompt, answers, refused = None, 0, 0
for line in sys.stdin:
    message = json.loads(line) if len(line) < 100_000 else {}
    method, result = message.get("method"), {}
    if method is None:
        answers, refused = answers + 1, refused + ("error" in message)
        if answers < 10:
            ask(1000 + answers, "longer" if answers % 2 else "long")
            continue
        result = {"stopReason": "end_turn" if refused == 5 else "refusal"}
        send({"jsonrpc": "2.0", "id": prompt, "result": result})
        continue
    if method == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {}}
    elif method == "session/new":
        result = {"sessionId": "s"}
        folder = message["params"]["cwd"]
    elif method == "session/prompt":
        prompt = message["id"]
        open("long", "w").write("\n" * 8_000_000)
        open("longer", "w").write("\n" * 31_000_000)
        ask(1000, "long")
        continue
    if "id" in message:
        send({"jsonrpc": "2.0", "id": message["id"], "result": result})
"#;

#[test]
fn long_files_that_agents_read_do_not_fill_memory() {
    let home = TestHome::new();
    let script = home.user_home().join("reader.py");
    fs::write(&script, READER).unwrap();
    configure(
        &home,
        &format!("[agents.reader]\ndriver = \"acp\"\ncommand = [\"python3\", {script:?}]\n"),
    );
    let token = home.app("tests");
    let api = crate::backend::Backend::File.start(home, &token);
    let start = |_| {
        let id = api.create(&json!({"agent": "reader"}));
        let turn = api.start_turn(&id, "go");
        (id, turn)
    };
    let turns: Vec<(String, u64)> = (0..4).map(start).collect();
    let states = states_at_the_end(&api, &turns);
    assert!(states.iter().all(|state| *state == "finished"), "{states:?}");
    for (id, turn) in &turns {
        assert_eq!(
            api.get_turn(id, *turn)["stop_reason"],
            "end_turn",
            "only what is too long is refused"
        );
    }
}

/// Appends records of many values to the transcript of the agent that runs it.
const APPEND: &str = r#"
import glob, os, sys
values, times = int(sys.argv[1]), int(sys.argv[2])
folder = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
here = os.getcwd().rsplit("/", 1)[1]
[path] = [path for path in glob.glob(folder + "/projects/*/*.jsonl") if here in path]
record = '{"type":"assistant","uuid":"x","message":{"role":"assistant","id":"m","content":['
with open(path, "a") as transcript:
    for _ in range(times):
        transcript.write(record + "{}," * values + "{}]}}\n")
"#;

/// Records of megabytes, or of millions of values, that an agent appends to its transcript were read whole.
#[test]
fn records_of_transcripts_do_not_fill_memory() {
    let api = api("");
    let start = |(values, times): (usize, usize)| {
        let id = api.create(&json!({"agent": "claude", "permissions": "allow"}));
        fs::write(api.workspace(&id).join("append.py"), APPEND).unwrap();
        let command = json!({"command": format!("python3 append.py {values} {times}")});
        let turn = api.start_turn(&id, &format!("[[tool Bash {command}]] [[say done]]"));
        (id, turn)
    };
    let turns: Vec<(String, u64)> =
        [(2_300_000, 4), (2_300_000, 4), (10_000_000, 1)].into_iter().map(start).collect();
    let states = states_at_the_end(&api, &turns);
    // What is too long, or has too many values, is skipped.
    assert!(states.iter().all(|state| *state == "finished"), "{states:?}");
}
