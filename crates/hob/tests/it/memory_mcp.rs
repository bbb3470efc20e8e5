//! The memory's tools: what they promise, who sees what, and bridges that only join.

use std::fs;
use std::path::{Path, PathBuf};

use hob_testkit::leak::processes_with;
use hob_testkit::{HobServer, TestHome};
use serde_json::{Value, json};

use crate::cli_ids::complete;
use crate::memory_setup::*;

/// Two projects with a few turns each, captured into a running server.
pub fn two_projects() -> (HobServer, TestHome, PathBuf, PathBuf) {
    let home = TestHome::new();
    let (alpha, beta) = (folder(&home, "work/alpha"), folder(&home, "work/beta"));
    let server = home.serve();
    for (project, name) in [(&alpha, "alpha"), (&beta, "beta")] {
        let records = [
            said(name, 0, "user", &format!("the harbour of {name} has a crane")),
            said(name, 1, "assistant", &format!("noted: a crane in the harbour of {name}")),
            said(name, 2, "user", &format!("{name} also has a lighthouse")),
        ];
        let path = transcript(&home, &format!("{name}.jsonl"), &records);
        let answer = capture(&home, &["--cwd", project.to_str().unwrap()], &path);
        assert_eq!(answer["inserted"], 3, "{answer}");
    }
    (server, home, alpha, beta)
}

/// Seed 001: agents that come and go join the one server, by whatever names the home is called.
#[test]
fn mcp_bridges_start_no_other_process() {
    for earlier in [false, true] {
        let home = TestHome::new();
        let (socket, store) = (home.user_home().join("d.sock"), home.user_home().join("store"));
        fs::create_dir_all(&store).unwrap();
        let mark = format!("HOB_TEST_MARK={}", home.user_home().display());
        let adjust = |command: &mut std::process::Command| {
            command.env("HOB_TEST_MARK", home.user_home());
            if earlier {
                command.env_remove("HOB_HOME").env("IAI_MCP_STORE", &store);
                command.env("IAI_DAEMON_SOCKET_PATH", &socket);
                command.env("IAI_DAEMON_IDLE_SHUTDOWN_SECS", "120");
                command.env("IAI_MCP_CRYPTO_PASSPHRASE", "test-no-spawn-pass");
            }
        };
        let start = || {
            let mut command = home.command(&["mcp"]);
            adjust(&mut command);
            Bridge::start(command)
        };
        let server = home.serve_with(adjust);
        assert_eq!(processes_with(&mark), [server.pid()]);
        for n in 0..3 {
            let arguments = json!({"cue": format!("subagent recall #{n}"), "budget_tokens": 50});
            let result = start().call("memory_recall", arguments);
            assert_eq!(result["hits"], json!([]));
            assert_eq!(processes_with(&mark), [server.pid()], "the bridge left nothing");
        }
        for many in [3, 100] {
            let mut bridges: Vec<Bridge> = (0..many).map(|_| start()).collect();
            for bridge in &mut bridges {
                let arguments = json!({"cue": "all at once", "budget_tokens": 50});
                bridge.ask("tools/call", json!({"name": "memory_recall", "arguments": arguments}));
            }
            for bridge in &mut bridges {
                let answer = bridge.answer();
                assert!(answer["result"]["structuredContent"]["hits"].is_array(), "{answer}");
            }
            let mut expected: Vec<i32> = bridges.iter().map(Bridge::pid).collect();
            expected.push(server.pid());
            let mut running = processes_with(&mark);
            expected.sort();
            running.sort();
            assert_eq!(running, expected, "{many} bridges and the server");
        }
        assert!(server.stop().success());
    }
}

#[test]
fn mcp_bridge_survives_server_restarts() {
    let home = TestHome::new();
    // The leak check of servers finds processes by this variable.
    let mut command = home.command(&["mcp"]);
    command.env("HOME", "/").env("HOB_TEST_MARK", home.user_home());
    let mut bridge = Bridge::start(command);
    let tools = bridge.request("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 6);
    let socket = home.hob_home().join("hob.sock").display().to_string();
    for round in 0..3 {
        let words = bridge.refused("memory_recall", json!({"cue": "anything"}));
        assert!(words.contains(&socket) && words.contains("hob serve"), "{words}");
        let mark = format!("HOB_TEST_MARK={}", home.user_home().display());
        assert_eq!(processes_with(&mark), [bridge.pid()], "it starts none");
        let server = home.serve();
        let note = json!({"text": format!("a note of round {round}")});
        assert_eq!(bridge.call("memory_capture", note)["duplicate"], false);
        server.kill();
        let server = home.serve();
        let found = bridge.recalled(json!({"cue": "note of round"}));
        assert_eq!(found.len(), round + 1, "what was answered outlives a kill: {found:?}");
        assert!(server.stop().success());
    }
}

/// A pasted log is full of words that are all different. It must neither end the connection nor keep
/// others waiting.
#[test]
fn huge_mcp_arguments_keep_the_connection() {
    let home = TestHome::new();
    let _server = home.serve();
    let mut bridge = Bridge::new(&home, Path::new("/"));
    bridge.call("memory_capture", json!({"text": "a crane in the harbour"}));
    let words = |bytes: usize| (0..bytes / 11).map(|n| format!("word{n:06} ")).collect::<String>();
    bridge.refused("memory_correct", json!({"record_id": words(5 << 20), "text": "x"}));
    bridge.call("memory_capture", json!({"text": words(1 << 17)}));
    let cue = format!("crane {}", words(5 << 20));
    bridge.ask("tools/call", json!({"name": "memory_recall", "arguments": {"cue": cue}}));
    let mut other = Bridge::new(&home, Path::new("/"));
    let found = other.recalled(json!({"cue": "crane"}));
    assert_eq!(found[0], "a crane in the harbour", "others are served meanwhile");
    let answer = bridge.answer()["result"].clone();
    assert_ne!(answer["isError"], true, "{answer}");
    assert!(bridge.call("memory_stats", json!({}))["turns"].is_number());
}

/// Walks a declared schema: every field has a type and a description, required ones are there.
#[test]
fn mcp_results_match_their_declared_schemas() {
    let (_server, home, alpha, _) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let list = bridge.request("tools/list", json!({}))["result"]["tools"].clone();
    let tool =
        |name: &str| list.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
    let arguments = [
        ("memory_recall", "budget_tokens cue limit project session_id since until"),
        ("memory_capture", "cue project role text tier"),
        ("memory_correct", "record_id text"),
        ("memory_forget", "record_id session_id undo"),
        ("memory_timeline", "around limit project session_id"),
        ("memory_stats", ""),
    ];
    for (name, expected) in arguments {
        let schema = &tool(name)["inputSchema"];
        let mut declared: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        declared.sort();
        assert_eq!(declared.join(" "), expected, "{name}");
        assert_eq!(schema["additionalProperties"], false, "{name}");
    }
    assert_eq!(
        tool("memory_recall")["inputSchema"]["properties"]["budget_tokens"]["default"],
        1500
    );
    let record =
        bridge.call("memory_recall", json!({"cue": "crane"}))["hits"][0]["record_id"].clone();
    let calls = [
        ("memory_recall", json!({"cue": "crane"})),
        ("memory_capture", json!({"text": "a fact"})),
        ("memory_correct", json!({"record_id": record, "text": "two cranes"})),
        ("memory_timeline", json!({})),
        ("memory_stats", json!({})),
        ("memory_forget", json!({"record_id": record})),
    ];
    for (name, arguments) in calls {
        let result = bridge.call(name, arguments);
        let schema = &tool(name)["outputSchema"];
        for key in schema["required"].as_array().unwrap() {
            assert!(result.get(key.as_str().unwrap()).is_some(), "{name}: {key} of {result}");
        }
        for key in result.as_object().unwrap().keys() {
            assert!(schema["properties"].get(key).is_some(), "{name}: {key} is not declared");
        }
    }
    let answer = bridge.request("tools/call", json!({"name": "memory_nonsense", "arguments": {}}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("memory_nonsense"), "{answer}");
}

#[test]
fn wrong_mcp_arguments_are_refused_by_name() {
    let home = TestHome::new();
    let _server = home.serve();
    let mut bridge = Bridge::new(&home, Path::new("/"));
    let cases = [
        ("memory_recall", json!({}), "cue"),
        ("memory_recall", json!({"cue": 7}), "cue"),
        ("memory_recall", json!({"cue": "x", "budget_tokens": "many"}), "budget_tokens"),
        (
            "memory_recall",
            json!({"cue": "x", "budget_tokens": -1}),
            "budget_tokens: -1 is not a whole number of 1 or more",
        ),
        (
            "memory_recall",
            json!({"cue": "x", "budget_tokens": 0}),
            "budget_tokens: must be at least 1",
        ),
        ("memory_recall", json!({"cue": "x", "limit": 1.5}), "limit"),
        ("memory_recall", json!({"cue": "x", "project": 1}), "project"),
        ("memory_recall", json!({"cue": "x", "project": "unheard-of"}), "project"),
        ("memory_recall", json!({"cue": "x", "session_id": []}), "session_id"),
        ("memory_recall", json!({"cue": "x", "since": "yesterday-ish"}), "since"),
        ("memory_recall", json!({"cue": "x", "until": "2026-13-45"}), "until"),
        ("memory_recall", json!({"cue": "x", "colour": "red"}), "colour"),
        ("memory_capture", json!({"text": ""}), "text"),
        ("memory_capture", json!({"text": ["x"]}), "text"),
        ("memory_capture", json!({"text": "x", "role": "system"}), "role"),
        ("memory_capture", json!({"text": "x", "tier": "golden"}), "tier"),
        ("memory_capture", json!({"text": "x", "project": "*"}), "project"),
        ("memory_capture", json!({"text": "x", "session_id": "s"}), "session_id"),
        ("memory_correct", json!({"record_id": "no-such", "text": "x"}), "no-such"),
        ("memory_correct", json!({"record_id": "x"}), "text"),
        ("memory_forget", json!({}), "record_id"),
        ("memory_forget", json!({"record_id": "a", "session_id": "b"}), "session_id"),
        ("memory_timeline", json!({"around": "no-such-record"}), "around"),
        ("memory_timeline", json!({"limit": "all"}), "limit"),
        ("memory_stats", json!({"verbose": true}), "verbose"),
    ];
    for (name, arguments, field) in cases {
        let words = bridge.refused(name, arguments.clone());
        assert!(words.contains(field), "{name} {arguments}: {words}");
    }
}

#[test]
fn recall_keeps_to_its_budget_and_limit() {
    let home = TestHome::new();
    let _server = home.serve();
    let mut bridge = Bridge::new(&home, Path::new("/"));
    let records: Vec<Value> =
        (0..60).map(|n| said("s", n, "user", &format!("the lantern number {n} is lit"))).collect();
    capture(&home, &["--cwd", "/"], &transcript(&home, "t.jsonl", &records));
    for budget in [10, 50, 200, 1500] {
        let arguments = json!({"cue": "lantern", "budget_tokens": budget, "limit": 500});
        let result = bridge.call("memory_recall", arguments);
        let hits = result["hits"].as_array().unwrap().len() as u64;
        assert!(hits > 0 && result["budget_used"].as_u64().unwrap() <= budget, "{result}");
        assert!(hits + result["omitted"].as_u64().unwrap() >= 60 || budget == 1500, "{result}");
    }
    let one = bridge.call("memory_recall", json!({"cue": "lantern", "budget_tokens": 1}));
    assert_eq!(one["hits"].as_array().unwrap().len(), 1, "the best hit is always there");
    let long = "the foghorn sounds twice a night, ".repeat(7);
    bridge.call("memory_capture", json!({"text": long}));
    for budget in [20, 30, 50] {
        let result =
            bridge.call("memory_recall", json!({"cue": "foghorn", "budget_tokens": budget}));
        assert!(result["budget_used"].as_u64().unwrap() <= budget, "{result}");
        assert_eq!(result["hits"][0]["cut"], true, "{result}");
        assert!(long.contains(result["hits"][0]["text"].as_str().unwrap()), "{result}");
    }
    for limit in [1, 7, 20] {
        let found =
            bridge.recalled(json!({"cue": "lantern", "limit": limit, "budget_tokens": 9999}));
        assert_eq!(found.len(), limit);
    }
    assert_eq!(
        bridge.recalled(json!({"cue": "lantern number 42"}))[0],
        "the lantern number 42 is lit"
    );
    // The records stand a second apart.
    let between = json!({"cue": "lantern", "limit": 500, "budget_tokens": 9999,
        "since": "2026-01-02T03:00:10Z", "until": "2026-01-02T03:00:19Z"});
    let mut found = bridge.recalled(between);
    found.sort();
    let expected: Vec<String> =
        (10..20).map(|n| format!("the lantern number {n} is lit")).collect();
    assert_eq!(found, expected);
    for (since, until, expected) in [
        ("2026-01-02", "2026-01-02", 60),
        ("2026-01-03", "2026-01-04", 0),
        ("2026-01-01", "2026-01-01", 0),
    ] {
        let arguments = json!({"cue": "lantern", "limit": 500, "budget_tokens": 9999, "since": since, "until": until});
        assert_eq!(bridge.recalled(arguments).len(), expected, "{since} to {until}");
    }
}

#[test]
fn recall_covers_its_own_project_unless_asked() {
    let (_server, home, alpha, beta) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let of = |name: &str, found: &[String]| found.iter().filter(|text| text.contains(name)).count();
    let found = bridge.recalled(json!({"cue": "harbour crane lighthouse beta"}));
    assert!(of("alpha", &found) == 3 && of("beta", &found) == 0, "{found:?}");
    let asked = [json!(beta), json!("beta"), json!(beta.join("not/../."))];
    for project in asked {
        let found = bridge.recalled(json!({"cue": "harbour crane lighthouse", "project": project}));
        assert!(of("beta", &found) == 3 && of("alpha", &found) == 0, "{project}: {found:?}");
    }
    let all = bridge.recalled(json!({"cue": "beta harbour crane lighthouse", "project": "*"}));
    assert_eq!(all.len(), 6);
    assert!(all[..3].iter().all(|text| text.contains("alpha")), "its own come first: {all:?}");
    let session = bridge.recalled(json!({"cue": "crane", "session_id": "beta"}));
    assert!(!session.is_empty() && of("alpha", &session) == 0, "{session:?}");
    let hit = bridge.call("memory_recall", json!({"cue": "lighthouse"}))["hits"][0].clone();
    assert_eq!((&hit["project"], &hit["session_id"]), (&json!(alpha), &json!("alpha")));
    assert_eq!((&hit["role"], &hit["ts"]), (&json!("user"), &json!("2026-01-02T03:00:02Z")));
    assert!(hit["score"].is_number() && hit["reason"].is_string() && hit["record_id"].is_string());
    // A project without turns has no hits, however similar the words are.
    let mut elsewhere = Bridge::new(&home, &folder(&home, "work/gamma"));
    assert_eq!(elsewhere.recalled(json!({"cue": "harbour crane lighthouse"})), [""; 0]);
}

#[test]
fn captured_note_is_recalled_at_once() {
    let (_server, home, alpha, beta) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    for n in 0..20 {
        let note = json!({"text": format!("the buoy number {n} is green"), "cue": "navigation mark",
            "role": "assistant", "tier": "episodic"});
        let first = bridge.call("memory_capture", note.clone());
        assert_eq!(first["duplicate"], false);
        let hit = bridge.call("memory_recall", json!({"cue": format!("buoy number {n}")}))["hits"]
            [0]
        .clone();
        assert_eq!((&hit["record_id"], &hit["role"]), (&first["record_id"], &json!("assistant")));
        let again = bridge.call("memory_capture", note);
        assert_eq!((&again["record_id"], &again["duplicate"]), (&first["record_id"], &json!(true)));
    }
    let by_cue = bridge.recalled(json!({"cue": "navigation mark"}));
    assert!(by_cue[0].contains("buoy"), "other words it should be found by: {by_cue:?}");
    bridge.call("memory_capture", json!({"text": "beta has a pier", "project": beta}));
    assert!(!bridge.recalled(json!({"cue": "pier"})).contains(&"beta has a pier".to_owned()));
    assert_eq!(bridge.recalled(json!({"cue": "pier", "project": "beta"}))[0], "beta has a pier");
}

/// A question changes no byte of the home, and the same question has the same answer.
#[test]
fn recall_changes_nothing() {
    let (_server, home, alpha, _) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let ask = json!({"cue": "where is the crane of the harbour?", "project": "*"});
    let first = bridge.call("memory_recall", ask.clone());
    assert!(!first["hits"].as_array().unwrap().is_empty());
    let before = contents(&home.hob_home());
    for _ in 0..20 {
        assert_eq!(bridge.call("memory_recall", ask.clone()), first);
    }
    for cue in ["lighthouse", "nothing of the kind", "when was that?", "港"] {
        bridge.call("memory_recall", json!({"cue": cue}));
    }
    assert_eq!(contents(&home.hob_home()), before);
}

/// Returns all files with their contents, without SQLite's lock table.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && !path.to_string_lossy().ends_with("-shm") {
                found.push((path.clone(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn correction_ranks_before_what_it_corrects() {
    let (_server, home, alpha, _) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let old = bridge.call("memory_recall", json!({"cue": "lighthouse"}))["hits"][0].clone();
    let corrected = "alpha has no lighthouse, only a beacon";
    let new =
        bridge.call("memory_correct", json!({"record_id": old["record_id"], "text": corrected}));
    assert_ne!(new["record_id"], old["record_id"]);
    let hits = bridge.call("memory_recall", json!({"cue": old["text"]}))["hits"].clone();
    let place =
        |id: &Value| hits.as_array().unwrap().iter().position(|hit| hit["record_id"] == *id);
    let (first, second) = (place(&new["record_id"]).unwrap(), place(&old["record_id"]).unwrap());
    assert!(first < second, "{hits}");
    assert_eq!(hits[second]["superseded_by"], new["record_id"]);
    assert_eq!(hits[second]["text"], old["text"], "the old one stays as it was");
    assert_eq!(bridge.call("memory_stats", json!({}))["superseded"], 1);
    let around = bridge.call("memory_timeline", json!({"around": old["record_id"], "limit": 1.0}));
    assert_eq!(around["turns"][0]["superseded_by"], new["record_id"], "{around}");
}

#[test]
fn forgotten_turn_is_gone_and_is_not_imported_again() {
    let (server, home, alpha, _) = two_projects();
    let path = home.user_home().join("alpha.jsonl");
    let again = || {
        let import = home.run(&["import", path.to_str().unwrap()]);
        assert!(import.status.success(), "{import:?}");
        capture(&home, &["--cwd", alpha.to_str().unwrap()], &path);
        let event = json!({"session_id": "alpha", "transcript_path": path, "cwd": alpha, "hook_event_name": "Stop"});
        hook(&home, &event);
    };
    let mut bridge = Bridge::new(&home, &alpha);
    let hit = bridge.call("memory_recall", json!({"cue": "lighthouse"}))["hits"][0].clone();
    let record = hit["record_id"].as_str().unwrap();
    let forget = |arguments: &[&str]| {
        let output = home.run(&[&["forget", "--json", "--yes"], arguments].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let count = answer["count"].as_u64().unwrap();
        assert_eq!(output.status.success(), count > 0, "{output:?}");
        count
    };
    assert_eq!(forget(&[record]), 1);
    assert_eq!(forget(&[record]), 0);
    let gone = |needle: &str, bridge: &mut Bridge| {
        let all = json!({"cue": needle, "project": "*", "limit": 500, "budget_tokens": 99999});
        let found = bridge.recalled(all).into_iter().chain(exported_texts(&home));
        assert!(!found.into_iter().any(|text| text.contains(needle)), "{needle} is there");
    };
    gone("alpha also has a lighthouse", &mut bridge);
    again();
    gone("alpha also has a lighthouse", &mut bridge);
    assert_eq!(forget(&["--session-id", "alpha"]), 2);
    gone("alpha", &mut bridge);
    again();
    gone("alpha", &mut bridge);
    drop(bridge);
    assert!(server.stop().success());
    assert_eq!(capture(&home, &["--no-spawn"], &path)["status"], "deferred");
    let server = home.serve();
    wait_for_drain(&home);
    gone("alpha", &mut Bridge::new(&home, &alpha));
    assert_eq!(exported_texts(&home).len(), 3, "beta is untouched");
    assert!(server.stop().success());
}

#[test]
fn timeline_is_ordered_around_a_record() {
    let home = TestHome::new();
    let _server = home.serve();
    let mut bridge = Bridge::new(&home, Path::new("/"));
    let records: Vec<Value> = (0..50)
        .map(|n| said("s", n, ["user", "assistant"][n % 2], &format!("step {n:02}")))
        .collect();
    capture(&home, &["--cwd", "/"], &transcript(&home, "t.jsonl", &records));
    let mut turns = |arguments: Value| {
        bridge.call("memory_timeline", arguments)["turns"].as_array().unwrap().clone()
    };
    let names =
        |range: std::ops::Range<usize>| range.map(|n| format!("step {n:02}")).collect::<Vec<_>>();
    assert_eq!(texts(&turns(json!({"session_id": "s", "limit": 500}))), names(0..50));
    assert_eq!(texts(&turns(json!({"session_id": "s"}))), names(30..50), "the latest twenty");
    assert_eq!(texts(&turns(json!({"limit": 3}))), names(47..50), "this folder's own project");
    let middle = turns(json!({"session_id": "s", "limit": 500}))[20].clone();
    for around in [middle["record_id"].clone(), middle["ts"].clone()] {
        let found = texts(&turns(json!({"session_id": "s", "around": around, "limit": 7})));
        assert!(found.contains(&"step 20".to_owned()) && found.len() == 7, "{found:?}");
        let start: usize = found[0][5..].parse().unwrap();
        assert_eq!(found, names(start..start + 7), "without a gap");
        assert!((15..20).contains(&start), "what came before is there as well: {found:?}");
    }
    assert!(turns(json!({"session_id": "no-such"})).is_empty());
}

#[test]
fn memory_stats_count_turns_and_backlog() {
    let (server, home, alpha, _) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let stats = bridge.call("memory_stats", json!({}));
    let counts = ["turns", "sessions", "projects", "sealed", "superseded", "forgotten"];
    assert_eq!(counts.map(|key| stats[key].as_u64().unwrap()), [6, 2, 2, 0, 0, 0]);
    assert_eq!((&stats["health"], &stats["backlog"]["files"]), (&json!("ok"), &json!(0)));
    assert_eq!(stats["last_ts"], "2026-01-02T03:00:02Z");
    assert!(home.run(&["forget", "--session-id", "beta", "--yes"]).status.success());
    let stats = bridge.call("memory_stats", json!({}));
    assert_eq!(counts.map(|key| stats[key].as_u64().unwrap()), [3, 1, 1, 0, 0, 3], "{stats}");
    drop(bridge);
    assert!(server.stop().success());
}

/// An agent only asks the owner to forget; the owner confirms or declines.
#[test]
fn agents_ask_the_owner_to_forget() {
    let (server, home, alpha, _) = two_projects();
    let mut bridge = Bridge::new(&home, &alpha);
    let hit = bridge.call("memory_recall", json!({"cue": "lighthouse"}))["hits"][0].clone();
    let ask = |bridge: &mut Bridge| {
        let answer = bridge.call("memory_forget", json!({"record_id": hit["record_id"]}));
        assert_eq!(answer["count"], 0, "{answer}");
        answer["request_id"].as_str().unwrap().to_owned()
    };
    let requests = || json_of(&home.run(&["forget", "--requests", "--json"]))["requests"].clone();
    let is_there = |bridge: &mut Bridge| {
        bridge
            .recalled(json!({"cue": "lighthouse"}))
            .contains(&hit["text"].as_str().unwrap().to_owned())
    };
    let request = ask(&mut bridge);
    assert_eq!(ask(&mut bridge), request, "one request for one record");
    assert!(is_there(&mut bridge));
    assert_eq!(requests()[0]["record_id"], hit["record_id"]);
    assert!(home.run(&["forget", "--decline", &request]).status.success());
    assert_eq!(requests(), json!([]));
    assert!(is_there(&mut bridge));
    let request = ask(&mut bridge);
    for answer in ["--confirm", "--decline"] {
        let offered = complete(&home, &["hob", "forget", answer, &request[..3]]);
        assert!(offered.contains(&request), "{answer}: {offered}");
    }
    assert!(!home.run(&["forget", "--confirm", &request]).status.success(), "it needs --yes");
    assert!(is_there(&mut bridge));
    assert!(
        home.run(&["forget", "--confirm", &request[..request.len() - 2], "--yes"]).status.success()
    );
    assert!(!is_there(&mut bridge));
    assert_eq!(requests(), json!([]));
    assert!(!home.run(&["forget", "--confirm", &request, "--yes"]).status.success());
    drop(bridge);
    assert!(server.stop().success());
}

/// A client that writes all its requests and closes its side got no answers.
#[test]
fn bridge_answers_everything_before_it_ends() {
    let home = TestHome::new();
    let _server = home.serve();
    let initialize = json!({"protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "pipe", "version": "0"}});
    let capture = json!({"name": "memory_capture", "arguments": {"text": "ocelots are cats"}});
    let recall = json!({"name": "memory_recall", "arguments": {"cue": "ocelots"}});
    let requests = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": capture}),
        json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": recall}),
    ];
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    for _ in 0..5 {
        let output = feed(home.command(&["mcp"]), lines.join("\n").as_bytes());
        let answers = String::from_utf8(output.stdout).unwrap();
        let mut ids: Vec<i64> = answers
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64().unwrap())
            .collect();
        ids.sort();
        assert_eq!(ids, [1, 2, 3, 4], "{answers}");
    }
    let output = feed(home.command(&["mcp"]), b"no json\n[]\n");
    let answers = String::from_utf8(output.stdout).unwrap();
    let codes: Vec<Value> = answers
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["code"].clone())
        .collect();
    assert_eq!(codes, [json!(-32700), json!(-32600)], "{answers}");
}
