//! The records of other clients: what `hob import` finds and takes, and that everything is stored once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hob_testkit::{HobServer, TestHome, proved_with_samples, wait_until};
use serde_json::{Value, json};

use crate::attacks::{MAX_SERVER_MB, peak_mb};
use crate::memory_setup::*;

/// A home with one conversation of two turns per client. Everything was said about herons.
struct Clients {
    home: TestHome,
}

impl Clients {
    fn new() -> Clients {
        Clients { home: TestHome::new() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.user_home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// The working folder that the records name.
    fn project(&self) -> PathBuf {
        folder(&self.home, "herons")
    }

    /// A session of Gemini CLI, in this folder.
    fn gemini(&self, cwd: &Path) -> PathBuf {
        let context = format!(
            "<session_context>\n- **Workspace Directories:**\n  - {}\n</session_context>",
            cwd.display()
        );
        let message = |id: &str, kind: &str, text: &str| {
            json!({"id": format!("{id}-803e-400c-8cf8-6f7270812d4e"), "type": kind,
                "timestamp": "2026-11-17T08:44:05.635Z", "content": [{"text": text}]})
        };
        let (asked, said) = (
            message("11111111", "user", "gemini heron?"),
            message("2222222a", "gemini", "gemini harbour"),
        );
        transcript(
            &self.home,
            ".gemini/tmp/herons/chats/session-2026-11-17T08-44-55d9394f.jsonl",
            &[
                json!({"sessionId": "55d9394f-30e7-4438-8d71-83e28ba717e7", "projectHash": "1c45",
                    "startTime": "2026-11-17T08:44:05.216Z", "kind": "main"}),
                json!({"$set": {"messages": [message("00000000", "user", &context)]}}),
                asked.clone(),
                json!({"$set": {"lastUpdated": "2026-11-17T08:44:05.635Z"}}),
                said.clone(),
                // As a resumed session writes it.
                json!({"$set": {"messages": [asked, said]}}),
            ],
        )
    }

    /// A session as an earlier OpenCode stored it.
    fn opencode(&self) -> PathBuf {
        let storage = ".local/share/opencode/storage";
        let message = |n: u32, role: &str, text: &str| {
            let id = format!("msg_1e8b0fe5400{n}Jlm1OxDkUUHEUv");
            let time = json!({"created": 1794905275988_u64 + u64::from(n), "completed": 1794905275999_u64});
            let info =
                json!({"id": id, "sessionID": "ses_e174f09abffe", "role": role, "time": time});
            self.write(&format!("{storage}/message/ses_e174f09abffe/{id}.json"), &info.to_string());
            let part = json!({"id": "prt_1", "type": "text", "text": text});
            self.write(&format!("{storage}/part/{id}/prt_1.json"), &part.to_string());
            let added = json!({"id": "prt_2", "type": "text", "text": "added", "synthetic": true});
            self.write(&format!("{storage}/part/{id}/prt_2.json"), &added.to_string());
        };
        message(1, "user", "opencode heron?");
        message(2, "assistant", "opencode harbour");
        let session = json!({"id": "ses_e174f09abffe", "directory": self.project(), "title": "t"});
        self.write(&format!("{storage}/session/global/ses_e174f09abffe.json"), &session.to_string())
    }

    fn copilot(&self) -> PathBuf {
        let event = |id: u32, kind: &str, data: Value| {
            json!({"type": kind, "data": data, "id": format!("{id}c5a3528-b1f1-42b4-97e4-657feede8c93"),
                "timestamp": "2026-07-19T15:23:10Z"})
        };
        let start = json!({"sessionId": "c0ffee00-1111", "context": {"cwd": self.project()}});
        transcript(
            &self.home,
            ".copilot/session-state/c0ffee00-1111/events.jsonl",
            &[
                event(1, "session.start", start),
                event(2, "user.message", json!({"content": "copilot heron?"})),
                event(3, "assistant.message", json!({"content": "copilot harbour"})),
            ],
        )
    }

    fn cline(&self) -> PathBuf {
        let environment = format!(
            "<environment_details>\n# Current Working Directory ({}) Files\n</environment_details>",
            self.project().display()
        );
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = "<attempt_completion>\n<result>cline harbour</result>\n</attempt_completion>";
        let messages = json!([
            {"role": "user", "content": [text("<task>cline heron?</task>"), text(&environment)]},
            {"role": "assistant", "content": [text(result)]}]);
        let tasks = ".config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks";
        let name = format!("{tasks}/1794905275988/api_conversation_history.json");
        self.write(&name, &messages.to_string())
    }

    fn roo(&self) -> PathBuf {
        let environment = format!(
            "<environment_details>\n# Current Workspace Directory ({}) Files\n</environment_details>",
            self.project().display()
        );
        let text = |text: &str| json!({"type": "text", "text": text});
        let messages = json!([
            {"role": "user", "ts": 1776200000000_i64,
                "content": [text("<user_message>roo heron?</user_message>"), text(&environment)]},
            {"role": "assistant", "ts": 1776200001000_i64, "content": [{"type": "tool_use", "id": "t",
                "name": "attempt_completion", "input": {"result": "roo harbour"}}]}]);
        let tasks = ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks";
        let task = "0b5c1d8e-77aa-4f10-9c55-1122aabb3344";
        let name = format!("{tasks}/{task}/api_conversation_history.json");
        self.write(&name, &messages.to_string())
    }

    fn qwen(&self) -> PathBuf {
        let record = |id: u32, kind: &str, role: &str, text: &str| {
            json!({"uuid": format!("{id}c5a3528-b1f1-42b4-97e4-657feede8c93"), "parentUuid": null,
                "sessionId": "9e55d394-30e7-4438-8d71-83e28ba717e7", "type": kind, "cwd": self.project(),
                "timestamp": "2026-07-19T15:23:10.000Z", "version": "0.9.0",
                "message": {"role": role, "parts": [{"text": text}]}})
        };
        transcript(
            &self.home,
            ".qwen/projects/-herons/chats/9e55d394-30e7-4438-8d71-83e28ba717e7.jsonl",
            &[
                record(4, "user", "user", "qwen heron?"),
                record(5, "assistant", "model", "qwen harbour"),
            ],
        )
    }

    /// A session as an earlier goose stored it.
    fn goose(&self) -> PathBuf {
        let message = |role: &str, created: i64, text: &str| json!({"role": role, "created": created, "content": [{"type": "text", "text": text}]});
        transcript(
            &self.home,
            ".local/share/goose/sessions/20250612_143015.jsonl",
            &[
                json!({"working_dir": self.project(), "description": "Herons", "message_count": 2}),
                message("user", 1749738615, "goose heron?"),
                message("assistant", 1749738616, "goose harbour"),
            ],
        )
    }

    fn aider(&self) -> PathBuf {
        let text = "\n# aider chat started at 2026-08-05 19:33:02\n\n> Aider v0.86.2  \n\n\
            #### aider heron?  \n\naider harbour\n\n> Tokens: 1 sent.  \n";
        self.write("herons/.aider.chat.history.md", text)
    }

    fn specstory(&self) -> PathBuf {
        let text = "<!-- Generated by SpecStory -->\n\n# Herons\n\n_**User**_\n\nspecstory heron?\n\n---\n\n\
            _**Assistant**_\n\nspecstory harbour\n\n---\n";
        self.write("herons/.specstory/history/2026-08-05_19-33-herons.md", text)
    }

    /// Returns what each place of an import says, by its client.
    fn places(imported: &Value) -> Vec<(&str, u64, u64)> {
        let places = imported["places"].as_array().unwrap().iter();
        let count = |place: &Value, key: &str| place[key].as_u64().unwrap();
        places
            .map(|place| {
                let client = place["client"].as_str().unwrap_or("named");
                (client, count(place, "inserted"), count(place, "duplicates"))
            })
            .collect()
    }
}

#[test]
fn conversations_of_every_client_are_imported_once() {
    let clients = Clients::new();
    let project = clients.project();
    let files = [
        clients.gemini(&project),
        clients.opencode(),
        clients.copilot(),
        clients.cline(),
        clients.roo(),
        clients.qwen(),
        clients.goose(),
        clients.aider(),
        clients.specstory(),
    ];
    let first = json_of(&clients.home.run(&["import", "--json"]));
    let expect =
        ["Gemini CLI", "OpenCode", "Copilot CLI", "Cline", "Roo Code", "Qwen Code", "goose"];
    assert_eq!(Clients::places(&first), expect.map(|client| (client, 2, 0)), "{first}");
    assert_eq!((&first["inserted"], &first["errors"]), (&json!(14), &json!(0)), "{first}");
    // aider and SpecStory write into repositories, which only the user can name.
    let named = project.display().to_string();
    let second = json_of(&clients.home.run(&["import", "--json", &named]));
    assert_eq!(Clients::places(&second), [("named", 4, 0)], "{second}");

    let turns = export(&clients.home);
    let clients_of_turns =
        ["gemini", "opencode", "copilot", "cline", "roo", "qwen", "goose", "aider", "specstory"];
    for client in clients_of_turns {
        let said: Vec<&Value> = turns.iter().filter(|turn| turn["client"] == client).collect();
        let texts: Vec<&str> = said.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
        assert_eq!(texts, [format!("{client} heron?"), format!("{client} harbour")]);
        assert_eq!(said[0]["project"], json!(project), "{client}");
        assert_eq!(said[0]["session_id"], said[1]["session_id"], "{client}");
    }
    assert_eq!(turns.len(), 18);

    // Nothing is stored twice: not by another import, not by another way, not from a file that is new.
    let again = json_of(&clients.home.run(&["import", "--json"]));
    assert_eq!((&again["inserted"], &again["skipped"]), (&json!(0), &json!(7)), "{again}");
    for path in &files {
        let captured = capture(&clients.home, &[], path);
        assert_eq!(
            (&captured["inserted"], &captured["duplicates"]),
            (&json!(0), &json!(2)),
            "{path:?}"
        );
        let modified = fs::File::options().append(true).open(path).unwrap();
        modified.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    let touched = json_of(&clients.home.run(&["import", "--json"]));
    assert_eq!(
        (&touched["inserted"], &touched["duplicates"]),
        (&json!(0), &json!(14)),
        "{touched}"
    );
    assert_eq!(export(&clients.home).len(), 18);
    proved_with_samples("gemini", &["import", "once"]);
    proved_with_samples("opencode", &["import", "once"]);
    proved_with_samples("copilot", &["import", "once"]);
    proved_with_samples("cline", &["import", "once"]);
    proved_with_samples("roo", &["import", "once"]);
    proved_with_samples("qwen", &["import", "once"]);
    proved_with_samples("goose", &["import", "once"]);
    proved_with_samples("aider", &["import", "once"]);
    proved_with_samples("specstory", &["import", "once"]);
}

/// Returns the texts of each client's turns.
fn texts_by_client(home: &TestHome) -> BTreeMap<String, Vec<String>> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for turn in export(home) {
        let client = turn["client"].as_str().unwrap().to_owned();
        texts.entry(client).or_default().push(turn["text"].as_str().unwrap().to_owned());
    }
    texts
}

fn follow(home: &TestHome, records: &str) -> HobServer {
    home.serve_with(|command| {
        command.env("HOB_MEMORY_FOLLOW", records);
    })
}

#[test]
fn followed_records_are_remembered_while_they_grow() {
    let clients = Clients::new();
    let project = clients.project();
    // What was said before the server starts, and a document that is only half written.
    let copilot = clients.copilot();
    let cline = clients.cline();
    let whole = fs::read_to_string(&cline).unwrap();
    fs::write(&cline, &whole[..whole.len() / 2]).unwrap();
    let qwen = clients.qwen();
    let lines = fs::read_to_string(&qwen).unwrap();
    fs::remove_file(&qwen).unwrap();
    let records = format!("cline, copilot,goose,qwen,roo,{}", project.display());
    let server = follow(&clients.home, &records);
    wait_until("the past of Copilot CLI", || {
        texts_by_client(&clients.home).get("copilot").filter(|texts| texts.len() == 2).cloned()
    });
    // New files of every client, one of them still without its last line.
    clients.gemini(&project);
    clients.roo();
    clients.goose();
    clients.aider();
    clients.specstory();
    fs::write(&cline, &whole).unwrap();
    let end = lines.find('\n').unwrap() + 1;
    fs::write(&qwen, &lines[..end]).unwrap();
    wait_until("the first turn of Qwen Code", || texts_by_client(&clients.home).remove("qwen"));
    fs::write(&qwen, &lines).unwrap();
    let found = wait_until("two turns of each", || {
        let found = texts_by_client(&clients.home);
        (found.len() == 7 && found.values().all(|texts| texts.len() == 2)).then_some(found)
    });
    for (client, texts) in &found {
        assert_eq!(*texts, [format!("{client} heron?"), format!("{client} harbour")]);
    }
    assert!(!found.contains_key("gemini"), "nobody asked to follow it");
    // After a kill, the next server stores what was said meanwhile, and nothing twice.
    server.kill();
    clients.opencode();
    let mut grown = fs::read_to_string(&copilot).unwrap();
    let last = grown.trim_end().lines().last().unwrap().to_owned();
    let id = serde_json::from_str::<Value>(&last).unwrap()["id"].as_str().unwrap().to_owned();
    let more = last.replace(&id, "99999999-9999-4999-8999-999999999999");
    grown.push_str(&more.replace("copilot harbour", "copilot reeds"));
    grown.push('\n');
    fs::write(&copilot, grown).unwrap();
    let _server = follow(&clients.home, &records);
    wait_until("the new turn of Copilot CLI", || {
        texts_by_client(&clients.home).get("copilot").filter(|texts| texts.len() == 3).cloned()
    });
    assert_eq!(export(&clients.home).len(), 15);
    proved_with_samples("copilot", &["live"]);
    proved_with_samples("cline", &["live"]);
    proved_with_samples("roo", &["live"]);
    proved_with_samples("qwen", &["live"]);
    proved_with_samples("goose", &["live"]);
    proved_with_samples("aider", &["live"]);
    proved_with_samples("specstory", &["live"]);
}

/// A line of a few megabytes whose values take many times as much was parsed by the server.
#[test]
fn line_of_millions_of_values_in_followed_records_is_skipped() {
    let values = format!("{{\"type\":\"x\",\"data\":[{}[]]}}", "[],".repeat(10_000_000));
    let with_values = || {
        let clients = Clients::new();
        let copilot = clients.copilot();
        let lines = fs::read_to_string(&copilot).unwrap();
        let (first, rest) = lines.split_once('\n').unwrap();
        fs::write(&copilot, format!("{first}\n{values}\n{rest}")).unwrap();
        (clients, copilot)
    };
    let (clients, copilot) = with_values();
    let server = follow(&clients.home, "copilot");
    let texts = wait_until("the other lines are imported", || {
        texts_by_client(&clients.home).get("copilot").filter(|texts| texts.len() == 2).cloned()
    });
    assert_eq!(texts, ["copilot heron?", "copilot harbour"]);
    let peak = peak_mb(server.pid());
    assert!(peak < MAX_SERVER_MB, "the server has taken {peak} MB");
    let captured = capture(&clients.home, &[], &copilot);
    let counts = ["inserted", "duplicates", "errors"].map(|key| captured[key].as_u64().unwrap());
    assert_eq!(counts, [0, 2, 1], "{captured}");
    let (clients, copilot) = with_values();
    let imported = json_of(&clients.home.run(&["import", "--json", copilot.to_str().unwrap()]));
    assert_eq!((&imported["inserted"], &imported["errors"]), (&json!(2), &json!(1)), "{imported}");
}

#[test]
fn import_says_how_to_follow_programs_without_hooks() {
    let clients = Clients::new();
    clients.gemini(&clients.project());
    let text = |arguments: &[&str]| {
        let done = clients.home.run(arguments);
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    assert!(!text(&["import"]).contains("memory.follow"));
    clients.qwen();
    clients.copilot();
    let said = text(&["import"]);
    assert!(said.contains("Copilot CLI, Qwen Code"), "{said}");
    assert!(said.contains("hob config set memory.follow copilot,qwen"), "{said}");
    text(&["config", "set", "memory.follow", "copilot,qwen"]);
    assert!(!text(&["import"]).contains("memory.follow"));
    clients.roo();
    let said = text(&["import"]);
    assert!(said.contains("no hooks in Roo Code. "), "{said}");
    assert!(said.contains("memory.follow copilot,qwen,roo`"), "{said}");
    let bad = clients.home.run(&["config", "set", "memory.follow", "copilot,claude desktop"]);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert!(
        !bad.status.success() && said.contains("\"claude desktop\" is neither one of"),
        "{said}"
    );
}

#[test]
fn later_sessions_of_cline_are_imported_once() {
    let clients = Clients::new();
    let project = clients.project();
    let folder = ".cline/data/sessions/1787430000000_ab12c";
    let manifest = json!({"version": 1, "session_id": "1787430000000_ab12c", "cwd": project});
    clients.write(&format!("{folder}/1787430000000_ab12c.json"), &manifest.to_string());
    let document = |agent: &str| {
        json!({"version": 1, "updated_at": "2026-08-22T13:03:18Z", "agent": agent,
            "sessionId": "1787430000000_ab12c", "origin": {"source": "cli", "mode": "user"}, "messages": [
            {"id": "V1StGXR8_Z5jdHi6B-myT", "role": "user", "ts": 1787430000000_i64,
                "content": "<user_input mode=\"act\">cline heron?</user_input>"},
            {"id": "Uakgb_J5m9g-0JDMbcJqL", "role": "assistant", "ts": 1787430001000_i64,
                "content": [{"type": "text", "text": "cline harbour"}]}]})
    };
    let session = format!("{folder}/1787430000000_ab12c.messages.json");
    let path = clients.write(&session, &document("lead").to_string());
    clients.write(&format!("{folder}/agent-1.messages.json"), &document("subagent").to_string());
    let first = json_of(&clients.home.run(&["import", "--json"]));
    assert_eq!(Clients::places(&first), [("Cline", 2, 0)], "{first}");
    let turns = export(&clients.home);
    assert_eq!(texts(&turns), ["cline heron?", "cline harbour"]);
    assert_eq!((&turns[0]["project"], &turns[0]["client"]), (&json!(project), &json!("cline")));
    let captured = capture(&clients.home, &[], &path);
    assert_eq!((&captured["inserted"], &captured["duplicates"]), (&json!(0), &json!(2)));
    let again = json_of(&clients.home.run(&["import", "--json"]));
    assert_eq!((&again["inserted"], &again["errors"]), (&json!(0), &json!(0)), "{again}");
}

/// Entire keeps a session in each of its checkpoints: as the agent wrote it, and in a format of its own.
#[test]
fn checkpoints_of_entire_are_imported_once() {
    let clients = Clients::new();
    let role = |n: usize| if n.is_multiple_of(2) { "user" } else { "assistant" };
    let compact = |name: &str, count: usize| {
        let line = |n: usize| {
            json!({"v": 1, "agent": "claude-code", "cli_version": "0.11.4", "type": role(n), "ts": "",
                "content": [{"text": format!("{name} {n}")}]})
        };
        let records: Vec<Value> = (0..count).map(line).collect();
        lines(&records)
    };
    let checkpoint = |id: &str, session: &str, count: usize| {
        let folder = format!("herons/checkpoints/{id}/0");
        let metadata = json!({"checkpoint_id": id, "session_id": session});
        clients.write(&format!("{folder}/metadata.json"), &metadata.to_string());
        clients.write(&format!("{folder}/transcript.jsonl"), &compact(session, count));
        folder
    };
    for (id, count) in [("aa/11", 2), ("aa/12", 4)] {
        let folder = checkpoint(id, "e968c928", count);
        let record = |n: usize| said("e968c928", n, role(n), &format!("e968c928 {n}"));
        let records: Vec<Value> = (0..count).map(record).collect();
        clients.write(&format!("{folder}/full.jsonl"), &lines(&records));
    }
    // The agent's own transcript is not always there.
    checkpoint("bb/13", "c43056f2", 2);
    checkpoint("bb/14", "c43056f2", 4);
    let named = clients.project().display().to_string();
    let first = json_of(&clients.home.run(&["import", "--json", &named]));
    assert_eq!(first["places"][0]["found"], 4, "{first}");
    assert_eq!(Clients::places(&first), [("named", 8, 4)], "{first}");
    let turns = export(&clients.home);
    for (client, session) in [("claude", "e968c928"), ("entire", "c43056f2")] {
        let said: Vec<&Value> = turns.iter().filter(|turn| turn["client"] == client).collect();
        let mut said: Vec<&str> = said.iter().map(|turn| turn["text"].as_str().unwrap()).collect();
        said.sort_unstable();
        assert_eq!(said, [0, 1, 2, 3].map(|n| format!("{session} {n}")), "{client}");
    }
    let again = json_of(&clients.home.run(&["import", "--json", &named]));
    assert_eq!((&again["inserted"], &again["skipped"]), (&json!(0), &json!(4)), "{again}");
    proved_with_samples("entire", &["import", "once"]);
}

#[test]
fn import_says_what_it_found_and_could_not_read() {
    let clients = Clients::new();
    clients.gemini(&clients.project());
    let odd = clients.write(".gemini/tmp/herons/chats/session-odd.json", "{\"version\": 9}");
    let done = clients.home.run(&["import", "--json"]);
    let imported: Value = serde_json::from_slice(&done.stdout).unwrap();
    let place = &imported["places"][0];
    assert_eq!((&place["found"], &place["files"]), (&json!(2), &json!(1)), "{imported}");
    assert_eq!(done.status.code(), Some(0), "one of two could be read");
    assert_eq!(place["unread"][0]["path"], json!(odd), "{imported}");
    assert_eq!(place["unread"][0]["reason"], "unknown format or no turns", "{imported}");
    let words = clients.home.run(&["import"]);
    let said = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(said.contains("Gemini CLI, ") && said.contains("2 files found"), "{said}");
    assert!(said.contains("1 with nothing new, 1 not read"), "{said}");
    assert!(String::from_utf8_lossy(&words.stderr).contains("session-odd.json"), "{words:?}");
    // Not a database, though it has the name of one.
    let database = clients.write("opencode.db", "just words");
    let done = clients.home.run(&["import", &database.display().to_string()]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("opencode.db") && said.contains("not a database"), "{said}");
}

/// Hob's own agents record like any client. What they were told belongs to their app.
#[test]
fn sessions_in_workspaces_of_apps_are_not_imported() {
    let clients = Clients::new();
    let workspace = clients.home.hob_home().join("workspaces/app/session");
    fs::create_dir_all(&workspace).unwrap();
    clients.gemini(&workspace.canonicalize().unwrap());
    let imported = json_of(&clients.home.run(&["import", "--json"]));
    assert_eq!((&imported["inserted"], &imported["skipped"]), (&json!(0), &json!(1)), "{imported}");
    // A home that is named by a link has the same workspaces.
    let link = clients.home.user_home().join("linked");
    std::os::unix::fs::symlink(clients.home.hob_home(), &link).unwrap();
    let output = clients.home.command(&["import", "--json"]).env("HOB_HOME", &link).output();
    let imported = json_of(&output.unwrap());
    assert_eq!((&imported["inserted"], &imported["skipped"]), (&json!(0), &json!(1)), "{imported}");
}

#[test]
fn hooks_of_gemini_capture_what_an_import_knows() {
    let clients = Clients::new();
    let project = clients.project();
    let path = clients.gemini(&project);
    let whole = fs::read_to_string(&path).unwrap();
    let event = |name: &str| {
        json!({"session_id": "55d9394f-30e7-4438-8d71-83e28ba717e7", "transcript_path": path,
            "cwd": project, "hook_event_name": name, "timestamp": "2026-11-17T08:44:06Z",
            "prompt": "gemini heron?", "prompt_response": "gemini harbour"})
    };
    let _server = clients.home.serve();
    // The answer comes later than the first hook.
    let end = whole.find("2222222a").map(|at| whole[..at].rfind('\n').unwrap() + 1).unwrap();
    fs::write(&path, &whole[..end]).unwrap();
    hook(&clients.home, &event("BeforeAgent"));
    fs::write(&path, &whole).unwrap();
    hook(&clients.home, &event("AfterAgent"));
    hook(&clients.home, &event("SessionEnd"));
    let turns = export(&clients.home);
    assert_eq!(texts(&turns), ["gemini heron?", "gemini harbour"]);
    assert!(turns.iter().all(|turn| turn["client"] == "gemini"), "{turns:?}");
    let imported = json_of(&clients.home.run(&["import", "--json"]));
    assert_eq!(imported["inserted"], 0, "{imported}");
    assert_eq!(export(&clients.home).len(), 2);
}
