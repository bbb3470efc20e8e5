//! Live capture from Gemini CLI by hooks and from OpenCode by a plugin: what Hob installs works as the client calls it,
//! and is taken back byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hob_testkit::{TestHome, program, proved_with_samples};
use serde_json::{Value, json};

use crate::memory_setup::*;

const SESSION: &str = "55d9394f-30e7-4438-8d71-83e28ba717e7";

fn write(home: &TestHome, name: &str, text: &str) -> PathBuf {
    let path = home.user_home().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn json_in(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs a hook of Gemini CLI's settings as Gemini CLI does, and returns what it prints.
fn run_hook(home: &TestHome, settings: &Value, event: &str, input: &Value) -> String {
    let hook = &settings["hooks"][event][0]["hooks"][0];
    assert_eq!(hook["type"], "command", "{settings}");
    let mut command = Command::new("/bin/sh");
    let usual = home.command(&[]);
    command.arg("-c").arg(hook["command"].as_str().unwrap()).env_clear();
    command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", "/usr/bin:/bin").env("GEMINI_SESSION_ID", SESSION);
    let output = feed(command, input.to_string().as_bytes());
    assert!(output.status.success() && output.stderr.is_empty(), "{event}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn hooks_of_gemini_are_installed_work_and_are_taken_back() {
    let home = TestHome::new();
    let before = "{\n  \"theme\": \"Dark\",\n  \"hooks\": {}\n}\n";
    let path = write(&home, ".gemini/settings.json", before);
    let installed = json_of(&home.run(&["hooks", "install", "--client", "gemini", "--json"]));
    assert_eq!(installed["clients"][0]["state"], "installed", "{installed}");
    assert!(home.run(&["hooks", "status", "--client", "gemini"]).status.success());
    let settings = json_in(&path);
    let events: Vec<&String> = settings["hooks"].as_object().unwrap().keys().collect();
    assert_eq!(events, ["SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"], "{settings}");
    assert_eq!(settings["theme"], "Dark");

    // A session: each message is in the transcript before its hook runs.
    let project = folder(&home, "herons");
    let message = |id: &str, kind: &str, text: &str| {
        json!({"id": format!("{id}-803e-400c-8cf8-6f7270812d4e"), "type": kind,
            "timestamp": "2026-11-17T08:44:05.635Z", "content": [{"text": text}]})
    };
    let mut records = vec![json!({"sessionId": SESSION, "projectHash": "1c45", "kind": "main"})];
    let name = ".gemini/tmp/herons/chats/session-2026-11-17T08-44-55d9394f.jsonl";
    let path_of_transcript = transcript(&home, name, &records);
    let event = |name: &str| {
        json!({"session_id": SESSION, "transcript_path": path_of_transcript, "cwd": project,
            "hook_event_name": name, "timestamp": "2026-11-17T08:44:06Z"})
    };
    let server = home.serve();
    let start = || run_hook(&home, &settings, "SessionStart", &event("SessionStart"));
    assert_eq!(start(), "", "there is nothing to tell yet");
    for (hook, id, kind, said) in [
        ("BeforeAgent", "11111111", "user", "where do the herons nest?"),
        ("AfterAgent", "2222222a", "gemini", "in the old harbour crane"),
    ] {
        records.push(message(id, kind, said));
        transcript(&home, name, &records);
        let mut input = event(hook);
        input["prompt"] = json!("where do the herons nest?");
        assert_eq!(run_hook(&home, &settings, hook, &input), "");
    }
    assert_eq!(run_hook(&home, &settings, "SessionEnd", &event("SessionEnd")), "");
    let turns = export(&home);
    assert_eq!(texts(&turns), ["where do the herons nest?", "in the old harbour crane"]);
    assert!(turns.iter().all(|turn| turn["client"] == "gemini"), "{turns:?}");
    assert_eq!(json_of(&home.run(&["import", "--json"]))["inserted"], 0);

    // A later session gets the memory as JSON, which is the only form that reaches the model.
    let note = home.command(&["remember", "Herons are protected."]).current_dir(&project).output();
    assert!(note.unwrap().status.success());
    let text = start();
    let told: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let told = &told["hookSpecificOutput"];
    assert_eq!(told["hookEventName"], "SessionStart");
    assert!(told["additionalContext"].as_str().unwrap().contains("protected"), "{told}");
    assert!(server.stop().success());

    let removed = json_of(&home.run(&["hooks", "uninstall", "--client", "gemini", "--json"]));
    assert_eq!(removed["clients"][0]["state"], "absent", "{removed}");
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    assert!(!path.with_file_name("settings.json.hob-backup").exists());
    proved_with_samples("gemini", &["live", "once"]);
}

#[test]
fn settings_that_keep_gemini_from_running_hooks_are_named() {
    let home = TestHome::new();
    let path = write(&home, ".gemini/settings.json", "{\"hooksConfig\": {\"enabled\": false}}");
    let note = |home: &TestHome| {
        let done = json_of(&home.run(&["hooks", "install", "--client", "gemini", "--json"]));
        done["clients"][0]["notes"][0].as_str().map(str::to_owned)
    };
    assert!(note(&home).unwrap().contains("`hooksConfig.enabled` is false"));
    let doctor = home.run(&["doctor"]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("Gemini CLI") && said.contains("hooksConfig"), "{said}");
    let command = json_in(&path)["hooks"]["AfterAgent"][0]["hooks"][0]["command"].clone();
    let disabled = json!({"hooksConfig": {"disabled": [command]}});
    fs::write(&path, disabled.to_string()).unwrap();
    assert!(note(&home).unwrap().contains("disabled in Gemini CLI"));
    // A file that is not strict JSON is left alone.
    let commented = "{\n  // mine\n  \"theme\": \"Dark\"\n}\n";
    fs::write(&path, commented).unwrap();
    let refused = home.run(&["hooks", "install", "--client", "gemini"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), commented);
}

#[test]
fn hooks_of_codex_capture_what_an_import_knows() {
    let home = TestHome::new();
    let project = folder(&home, "herons");
    let session = "019a0000-0000-7000-8000-000000000001";
    let name = format!(".codex/sessions/2026/02/03/rollout-2026-02-03T04-00-00-{session}.jsonl");
    let said = ["where do the herons nest?", "in the old harbour crane"];
    let turns = [("user", said[0].to_owned()), ("assistant", said[1].to_owned())];
    let records = codex(session, project.to_str().unwrap(), &turns);
    let server = home.serve();
    // The rollout begins with a line about the session, and has two lines for each turn.
    for (event, lines, answer) in [
        ("UserPromptSubmit", 3, None),
        // The answer is told before the rollout has it.
        ("Stop", 3, Some(said[1])),
        ("SessionEnd", 5, None),
    ] {
        let path = transcript(&home, &name, &records[..lines]);
        let mut input = json!({"session_id": session, "transcript_path": path, "cwd": project,
            "hook_event_name": event, "turn_id": "1"});
        if let Some(answer) = answer {
            input["last_assistant_message"] = json!(answer);
        }
        hook(&home, &input);
    }
    let found = export(&home);
    assert_eq!(texts(&found), said);
    assert!(found.iter().all(|turn| turn["client"] == "codex"), "{found:?}");
    assert_eq!(json_of(&home.run(&["import", "--json"]))["inserted"], 0);
    assert!(server.stop().success());
    proved_with_samples("codex", &["live", "once"]);
}

/// A session of OpenCode as its API gives it.
fn opencode_session(directory: &Path) -> Value {
    let message = |n: u32, role: &str, text: &str| {
        let id = format!("msg_1e8b0fe5400{n}Jlm1OxDkUUHEUv");
        let time =
            json!({"created": 1794905275988_u64 + u64::from(n), "completed": 1794905275999_u64});
        json!({"info": {"id": id, "sessionID": "ses_e174f09abffe", "role": role, "time": time},
            "parts": [{"id": "prt_1", "type": "text", "text": text},
                {"id": "prt_2", "type": "tool", "tool": "bash"}]})
    };
    let info = json!({"id": "ses_e174f09abffe", "directory": directory, "title": "t"});
    json!({"info": info, "messages": [
        message(1, "user", "where do the herons nest?"),
        message(2, "assistant", "in the old harbour crane")]})
}

#[test]
fn messages_of_opencode_are_captured_once_with_and_without_a_server() {
    let home = TestHome::new();
    let project = folder(&home, "herons");
    let session = opencode_session(&project);
    let event = json!({"session_id": "ses_e174f09abffe", "cwd": project, "opencode": session});
    hook(&home, &event);
    assert_eq!(deferrals(&home).len(), 1, "no server answers");
    let server = home.serve();
    wait_for_drain(&home);
    hook(&home, &event);
    // What a sub-agent said is no conversation.
    let mut other = event.clone();
    other["opencode"]["info"]["parentID"] = json!("ses_parent");
    other["opencode"]["messages"][0]["info"]["id"] = json!("msg_1e8b0fe54009Jlm1OxDkUUHEUv");
    hook(&home, &other);
    let turns = export(&home);
    assert_eq!(texts(&turns), ["where do the herons nest?", "in the old harbour crane"]);
    assert!(turns.iter().all(|turn| turn["client"] == "opencode"), "{turns:?}");
    assert_eq!(turns[0]["project"], json!(project));
    // An export of the same session has the same turns.
    let file = write(&home, "export.json", &session.to_string());
    let imported = json_of(&home.run(&["import", "--json", file.to_str().unwrap()]));
    assert_eq!((&imported["inserted"], &imported["duplicates"]), (&json!(0), &json!(2)));
    assert!(server.stop().success());
    proved_with_samples("opencode", &["live", "once"]);
}

/// Loads the plugin as OpenCode does, with a client that knows one session.
const HARNESS: &str = r#"
import { readFileSync } from "node:fs";
const [script, session, directory] = process.argv.slice(2);
const { Hob } = await import(script);
const { info, messages } = JSON.parse(readFileSync(session, "utf8"));
const client = { session: { get: async () => ({ data: info }), messages: async () => ({ data: messages }) } };
const plugin = await Hob({ client, directory });
const config = {};
await plugin.config(config);
const sessionID = info.id;
await plugin.event({ event: { type: "message.updated", properties: { info: messages[1].info } } });
await plugin.event({ event: { type: "session.idle", properties: { sessionID } } });
const output = { system: [] };
await plugin["experimental.chat.system.transform"]({ sessionID: "another" }, output);
console.log(JSON.stringify({ config, system: output.system }));
"#;

#[test]
fn plugin_of_opencode_is_installed_captures_and_is_taken_back() {
    let home = TestHome::new();
    let script = home.user_home().join(".config/opencode/plugins/hob.js");
    let installed = json_of(&home.run(&["hooks", "install", "--client", "opencode", "--json"]));
    assert_eq!(installed["clients"][0]["state"], "installed", "{installed}");
    assert_eq!(installed["clients"][0]["file"], json!(script));
    assert!(home.run(&["hooks", "status", "--client", "opencode"]).status.success());
    let text = fs::read_to_string(&script).unwrap();
    assert!(text.contains(program("hob").to_str().unwrap()), "{text}");

    let project = folder(&home, "herons");
    let session = write(&home, "session.json", &opencode_session(&project).to_string());
    let harness = write(&home, "harness.mjs", HARNESS);
    // Node decides by the ending whether a file is a module; OpenCode does not.
    let module = write(&home, "hob.mjs", &text);
    let mut node = Command::new("node");
    let usual = home.command(&[]);
    node.arg(&harness).arg(&module).arg(&session).arg(&project).env_clear();
    node.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
    node.env("PATH", std::env::var_os("PATH").unwrap_or_default()).current_dir(&project);
    let server = home.serve();
    match node.output() {
        Ok(output) => {
            let told = json_of(&output);
            let command = json!([program("hob"), "mcp"]);
            assert_eq!(told["config"]["mcp"]["hob"]["command"], command, "{told}");
            let system = told["system"][0].as_str().unwrap_or_default();
            assert!(system.contains("harbour"), "another session is told: {told}");
            let said = ["where do the herons nest?", "in the old harbour crane"];
            assert_eq!(exported_texts(&home), said);
        }
        Err(error) => println!("skipped: there is no node to load the plugin: {error}"),
    }
    assert!(server.stop().success());

    let removed = json_of(&home.run(&["hooks", "uninstall", "--client", "opencode", "--json"]));
    assert_eq!(removed["clients"][0]["state"], "absent", "{removed}");
    assert!(!script.exists());
    // A file of that name which Hob did not write stays.
    fs::write(&script, "export const Mine = async () => ({});\n").unwrap();
    for action in ["install", "uninstall"] {
        let refused = home.run(&["hooks", action, "--client", "opencode"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(&script).unwrap(), "export const Mine = async () => ({});\n");
}
