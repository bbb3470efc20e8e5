//! What recall finds: turns by the work after them, and the newest of several statements first.

use std::fs;

use hob_testkit::TestHome;
use serde_json::{Value, json};

use crate::memory_setup::*;

/// A call of a tool by Claude Code: the n-th record of a transcript.
fn called(session: &str, n: usize, tool: &str, input: Value) -> Value {
    let mut record = said(session, n, "assistant", "");
    record["message"]["content"] =
        json!([{"type": "tool_use", "id": format!("t{n}"), "name": tool, "input": input}]);
    record
}

#[test]
fn turn_is_found_by_the_work_after_it() {
    let home = TestHome::new();
    let project = folder(&home, "project");
    let cwd = project.to_str().unwrap();
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let mut records = vec![
        said("s", 0, "user", "make it faster"),
        said("s", 1, "assistant", "I begin with the slow part."),
        called("s", 2, "Edit", json!({"file_path": project.join("src/lexer/scanner.rs")})),
        called(
            "s",
            3,
            "Bash",
            json!({"command": format!("GH_TOKEN={secret} gh release upload nightly")}),
        ),
        called(
            "s",
            4,
            "Bash",
            json!({"command": "git commit -m \"$(cat <<'EOF'\nskip blank regions\n\nbody\nEOF\n)\""}),
        ),
        said("s", 5, "assistant", "It takes half of the time now."),
    ];
    for record in &mut records {
        record["cwd"] = json!(cwd);
    }
    let path = transcript(&home, "t.jsonl", &records);
    hook(
        &home,
        &json!({"session_id": "s", "transcript_path": path, "cwd": cwd, "hook_event_name": "Stop"}),
    );
    for file in deferrals(&home) {
        assert!(!fs::read_to_string(file).unwrap().contains("ghp_a1"));
    }
    let server = home.serve();
    wait_for_drain(&home);
    let begun = "I begin with the slow part.";
    let hit_of = |cue: &str| {
        let hits = recall(&home, &project, &[cue])["hits"].as_array().unwrap().clone();
        hits.into_iter().find(|hit| hit["text"] == begun).unwrap_or_else(|| panic!("{cue}"))
    };
    for (cue, step) in [
        ("who changed scanner.rs?", "edited src/lexer/scanner.rs"),
        ("release upload", "gh release upload nightly"),
        ("skip blank regions", "committed skip blank regions"),
    ] {
        let hit = hit_of(cue);
        assert!(hit["reason"].as_str().unwrap().contains(step), "{cue}: {hit}");
        assert!(!hit.to_string().contains("ghp_a1"), "{hit}");
    }
    let first = recall(&home, &project, &["skip blank regions"])["hits"][0].clone();
    assert_eq!(first["text"], begun, "{first}");
    // The work is no turn of its own, and the turns stay as they were said.
    let said = ["make it faster", begun, "It takes half of the time now."];
    assert_eq!(exported_texts(&home), said);
    let id = hit_of("skip blank regions")["record_id"].as_str().unwrap().to_owned();
    assert!(home.run(&["forget", "--json", "--yes", &id]).status.success());
    let hits = recall(&home, &project, &["skip blank regions"]);
    assert!(!hits.to_string().contains("committed"), "{hits}");
    assert!(server.stop().success());
}

/// The cases are in the manner of real coding sessions: half of them say that they amend a rule, the
/// others state another one.
#[test]
fn newest_statement_on_a_subject_is_first() {
    let cases: Value =
        serde_json::from_str(include_str!("../../../../bench/recall/changes.json")).unwrap();
    let home = TestHome::new();
    let _server = home.serve();
    for (number, case) in cases.as_array().unwrap().iter().enumerate() {
        let project = folder(&home, &format!("project-{number}"));
        let cwd = project.to_str().unwrap();
        for (day, session) in case["sessions"].as_array().unwrap().iter().enumerate() {
            let name = format!("{number}-{day}");
            let record = |(n, turn): (usize, &Value)| {
                let text = turn["text"].as_str().unwrap();
                let mut record = said(&name, n, turn["role"].as_str().unwrap(), text);
                record["timestamp"] = json!(format!("2026-03-{:02}T09:{n:02}:00Z", 2 + 3 * day));
                record
            };
            let turns = session.as_array().unwrap().iter().enumerate();
            let records: Vec<Value> = turns.map(record).collect();
            let path = transcript(&home, &format!("{name}.jsonl"), &records);
            capture(&home, &["--cwd", cwd], &path);
        }
        let turns =
            || case["sessions"].as_array().unwrap().iter().flat_map(|s| s.as_array().unwrap());
        let rule =
            |which: &str| turns().find(|turn| turn["rule"] == which).unwrap()["text"].clone();
        let question = case["question"].as_str().unwrap();
        let hits = recall(&home, &project, &["--budget-tokens", "9000", question]);
        let place = |which: &str| {
            let text = rule(which);
            hits["hits"].as_array().unwrap().iter().position(|hit| hit["text"] == text)
        };
        let (new, old) = (place("new"), place("old"));
        assert!(new.is_some() && (old.is_none() || new < old), "{question}: {new:?} {old:?}");
    }
}

/// Two homes were set to one socket: the second one's commands answered from the first one's memory.
#[test]
fn commands_use_the_memory_of_their_own_home() {
    let (served, other) = (TestHome::new(), TestHome::new());
    let socket = served.folder().join("shared.sock");
    let server = served.serve_with(|command| {
        command.env("HOB_SOCKET", &socket);
    });
    for (home, text) in
        [(&served, "the pump is in the cellar"), (&other, "the pump is in the shed")]
    {
        let path = transcript(home, "pump.jsonl", &[said("s", 0, "user", text)]);
        let mut command = home.command(&["capture-transcript"]);
        let answer = json_of(&command.arg(path).env("HOB_SOCKET", &socket).output().unwrap());
        assert_eq!(answer["inserted"], 1, "{answer}");
        for arguments in [&["recall", "pump"][..], &["session-start", "--cwd", "/"]] {
            let output = home.command(arguments).env("HOB_SOCKET", &socket).output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            let others = if home.folder() == served.folder() { "shed" } else { "cellar" };
            assert!(!shown.contains(others), "{arguments:?}: {shown}");
            assert!(arguments[0] != "recall" || shown.contains(text), "{shown} {output:?}");
        }
    }
    assert!(server.stop().success());
}

/// An answer of another project was hidden by turns of the caller's project that have nothing to do with the question.
#[test]
fn answer_of_another_project_is_found_beside_own_turns() {
    let home = TestHome::new();
    let _server = home.serve();
    let [own, other, third, none] =
        ["own", "other", "third", "none"].map(|name| folder(&home, name));
    let remember = |folder: &std::path::Path, text: &str| {
        let mut command = home.command(&["remember", text]);
        assert!(command.current_dir(folder).output().unwrap().status.success());
    };
    remember(&own, "Project two uses Stripe as payment gateway.");
    remember(&own, "We use tabs, not spaces.");
    remember(&other, "Repo fact: the armadillo build uses ninja.");
    for name in [
        "kafka",
        "redis",
        "nginx",
        "terraform",
        "docker",
        "grafana",
        "vault",
        "etcd",
        "jenkins",
        "sentry",
    ] {
        for file in ["yaml", "toml", "env", "lock"] {
            let text = format!(
                "The {name} tool is configured in infra/{name}.{file} and we use it for the build."
            );
            remember(&third, &text);
        }
    }
    for from in [&own, &third, &none] {
        let mut bridge = Bridge::new(&home, from);
        let cue = "which build tool does the armadillo use";
        let answer = bridge.call("memory_recall", json!({"cue": cue, "project": "*"}));
        let hits = answer["hits"].as_array().unwrap();
        assert!(hits[0]["text"].as_str().unwrap().contains("ninja"), "from {from:?}: {hits:#?}");
    }
    let mut bridge = Bridge::new(&home, &own);
    let hits = bridge.call("memory_recall", json!({"cue": "do we use tabs", "project": "*"}));
    assert!(hits["hits"][0]["text"].as_str().unwrap().contains("tabs"), "{hits:#}");
    // The turns around a hit are those of its own project.
    let hits = bridge.call("memory_recall", json!({"cue": "armadillo", "project": "*"}));
    let id = hits["hits"][0]["record_id"].clone();
    let around = bridge.call("memory_timeline", json!({"around": id}));
    assert_eq!(around["turns"][0]["record_id"], id, "{around}");
}

/// Two corrections of one record were both in force.
#[test]
fn last_of_several_corrections_is_in_force() {
    let home = TestHome::new();
    let project = folder(&home, "project");
    let _server = home.serve();
    let mut bridge = Bridge::new(&home, &project);
    let first = bridge.call("memory_capture", json!({"text": "the beacon listens on port 1111"}));
    let first = first["record_id"].clone();
    let mut correct = |id: &Value, port: u16| {
        let text = format!("the beacon listens on port {port}");
        let answer = bridge.call("memory_correct", json!({"record_id": id, "text": text}));
        assert_eq!(answer["superseded"], *id, "{answer}");
        answer["record_id"].clone()
    };
    let second = correct(&first, 2222);
    assert_eq!(correct(&first, 2222), second, "a repeated call is one correction");
    let third = correct(&first, 3333);
    assert_eq!(correct(&second, 3333), third, "the corrected record is any of the chain");
    // A text that comes back is the newest again.
    let fourth = correct(&third, 2222);
    assert_eq!(correct(&first, 2222), fourth);
    assert_ne!(fourth, second);
    let found = bridge.call("memory_recall", json!({"cue": "which port has the beacon?"}));
    let in_force: Vec<&Value> = found["hits"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|hit| hit.get("superseded_by").is_none())
        .map(|hit| &hit["record_id"])
        .collect();
    assert_eq!(in_force, [&fourth], "{found}");
    let mut newer = |id: &Value| {
        let turns = bridge.call("memory_timeline", json!({"around": id, "limit": 1}));
        turns["turns"][0]["superseded_by"].clone()
    };
    let chain = [newer(&first), newer(&second), newer(&third), newer(&fourth)];
    assert_eq!(chain, [second, third, fourth, Value::Null]);
    let started = home.run(&["session-start", "--cwd", project.to_str().unwrap()]);
    let started = String::from_utf8(started.stdout).unwrap();
    assert!(started.contains("port 2222"), "{started}");
    assert!(!started.contains("port 1111") && !started.contains("port 3333"), "{started}");
}
