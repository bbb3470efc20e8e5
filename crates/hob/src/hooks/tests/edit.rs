use hob_transcript::AgentClient;
use serde_json::{Value, json};

use super::super::command::{self, Subcommand};
use super::super::hook_spec::{HookSpec, hooks_for};
use super::super::json_edit;
use super::{HOB, installed, uninstalled};

const STOP: HookSpec = HookSpec { event: "Stop", subcommand: Subcommand::CaptureTurn, timeout: 10 };

/// Installs only the `Stop` hook, which keeps the expectations short, and takes it out again.
fn check(before: &str, expect: &str) {
    let after = json_edit::install(Some(before), &[STOP], "/b/hob").expect("installs");
    assert_eq!(after, expect, "installing into {before:?}");
    let again = json_edit::install(Some(&after), &[STOP], "/b/hob").expect("installs again");
    assert_eq!(again, after, "installing twice into {before:?}");
    let restored = json_edit::uninstall(Some(&after)).expect("uninstalls");
    assert_eq!(restored.as_deref(), Some(before), "uninstalling from {after:?}");
}

/// Replaces or removes older entries, where there is no way back to the text before.
fn check_update(before: &str, expect: &str) {
    let after = json_edit::install(Some(before), &[STOP], "/b/hob").expect("installs");
    assert_eq!(after, expect, "installing into {before:?}");
}

fn check_uninstall(before: &str, expect: Option<&str>) {
    let after = json_edit::uninstall(Some(before)).expect("uninstalls");
    assert_eq!(after.as_deref(), expect, "uninstalling from {before:?}");
}

fn check_refused(before: &str, reason: &str) {
    let install = json_edit::install(Some(before), &[STOP], "/b/hob");
    let uninstall = json_edit::uninstall(Some(before)).map(|_| String::new());
    for result in [install, uninstall] {
        let error = result.expect_err(before).to_string();
        assert!(error.contains(reason), "{before:?} gave {error:?}");
    }
}

const ONE_LINE: &str =
    r#"{"hooks": [{"type": "command", "command": "/b/hob capture-turn", "timeout": 10}]}"#;

#[test]
fn a_missing_file_gets_a_whole_document() {
    let wanted = hooks_for(AgentClient::Claude);
    let text = json_edit::install(None, &wanted, HOB).expect("installs");
    let hook = |command: &str| {
        json!([{"hooks": [
            {"type": "command", "command": format!("{HOB} {command}"), "timeout": 10}
        ]}])
    };
    let expect = json!({"hooks": {
        "SessionStart": hook("session-start"),
        "UserPromptSubmit": hook("capture-turn"),
        "Stop": hook("capture-turn"),
        "SessionEnd": hook("capture-turn"),
    }});
    assert_eq!(serde_json::from_str::<Value>(&text).expect("is JSON"), expect);
    assert!(text.ends_with("  }\n}\n"), "{text}");
    assert_eq!(installed(&text), text);
    assert_eq!(uninstalled(&text), None);
    assert_eq!(json_edit::uninstall(None).expect("uninstalls"), None);
}

#[test]
fn every_client_has_its_events_and_timeouts() {
    let check = |client: AgentClient, events: [&str; 4], timeouts: [u32; 4]| {
        let wanted = hooks_for(client);
        assert_eq!(wanted.iter().map(|spec| spec.event).collect::<Vec<_>>(), events);
        assert_eq!(wanted.iter().map(|spec| spec.timeout).collect::<Vec<_>>(), timeouts);
    };
    let events = ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"];
    check(AgentClient::Claude, events, [10; 4]);
    // Codex shortens a longer one and warns.
    check(AgentClient::Codex, events, [10, 10, 10, 3]);
    let events = ["SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"];
    check(AgentClient::Gemini, events, [10_000; 4]);
    assert!(hooks_for(AgentClient::Opencode).is_empty());
}

#[test]
fn hooks_member_is_appended_after_other_settings() {
    check(
        "{\n    \"model\": \"opus\"\n}\n",
        r#"{
    "model": "opus",
    "hooks": {
        "Stop": [
            {
                "hooks": [
                    {
                        "type": "command",
                        "command": "/b/hob capture-turn",
                        "timeout": 10
                    }
                ]
            }
        ]
    }
}
"#,
    );
}

#[test]
fn tabs_and_carriage_returns_are_kept() {
    check(
        "\u{feff}{\r\n\t\"a\": 1\r\n}",
        "\u{feff}{\r\n\t\"a\": 1,\r\n\t\"hooks\": {\r\n\t\t\"Stop\": [\r\n\t\t\t{\r\n\t\t\t\t\
         \"hooks\": [\r\n\t\t\t\t\t{\r\n\t\t\t\t\t\t\"type\": \"command\",\r\n\t\t\t\t\t\t\
         \"command\": \"/b/hob capture-turn\",\r\n\t\t\t\t\t\t\"timeout\": 10\r\n\t\t\t\t\t}\
         \r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t]\r\n\t}\r\n}",
    );
}

#[test]
fn one_line_document_stays_on_one_line() {
    check(r#"{"a":1}"#, &format!(r#"{{"a":1, "hooks": {{ "Stop": [ {ONE_LINE} ] }}}}"#));
    check(
        "{\"hooks\":{\"Stop\":[{\"x\":1}]}}\n",
        &format!("{{\"hooks\":{{\"Stop\":[{{\"x\":1}}, {ONE_LINE}]}}}}\n"),
    );
    check(
        r#"{"hooks":{"Stop":[],"PreToolUse":[]}}"#,
        &format!(r#"{{"hooks":{{"Stop":[{ONE_LINE}],"PreToolUse":[]}}}}"#),
    );
    check(r#"{"a":1,"hooks":{}}"#, &format!(r#"{{"a":1,"hooks":{{"Stop": [ {ONE_LINE} ]}}}}"#));
}

#[test]
fn group_is_appended_after_groups_of_others() {
    check(
        r#"{
  "hooks": {
    "Stop": [
      {
        "matcher": "",
        "hooks": [{ "type": "command", "command": "say done" }]
      }
    ]
  },
  "z": [ 1,2 ]
}"#,
        r#"{
  "hooks": {
    "Stop": [
      {
        "matcher": "",
        "hooks": [{ "type": "command", "command": "say done" }]
      },
      {
        "hooks": [
          {
            "type": "command",
            "command": "/b/hob capture-turn",
            "timeout": 10
          }
        ]
      }
    ]
  },
  "z": [ 1,2 ]
}"#,
    );
}

#[test]
fn empty_container_is_empty_again_after_uninstall() {
    let group = |indent: &str| {
        let text = "{\n#  \"hooks\": [\n#    {\n#      \"type\": \"command\",\n#      \"command\": \
                    \"/b/hob capture-turn\",\n#      \"timeout\": 10\n#    }\n#  ]\n#}";
        text.replace('#', indent)
    };
    let list = |indent: &str| {
        format!("\"Stop\": [\n{indent}  {}\n{indent}]", group(&format!("{indent}  ")))
    };
    check(
        "{\n  \"hooks\": {\n    \"Stop\": []\n  }\n}",
        &format!("{{\n  \"hooks\": {{\n    \"Stop\": [{}]\n  }}\n}}", group("    ")),
    );
    check(
        "{\n  \"hooks\": {\n    \"Stop\": [\n    ]\n  }\n}",
        &format!("{{\n  \"hooks\": {{\n    \"Stop\": [\n    {}]\n  }}\n}}", group("    ")),
    );
    check("{\n  \"hooks\": {}\n}\n", &format!("{{\n  \"hooks\": {{{}}}\n}}\n", list("  ")));
    check("{\n  \"hooks\": { }\n}\n", &format!("{{\n  \"hooks\": {{ {}}}\n}}\n", list("  ")));
    let hooks = format!("\"hooks\": {{\n  {}\n}}", list("  "));
    check("{}", &format!("{{{hooks}}}"));
    check(" {\n}\n", &format!(" {{\n{hooks}}}\n"));
    check("", &format!("{{ {hooks} }}"));
    check("\n\n", &format!("\n\n{{ {hooks} }}"));
    check("\u{feff}", &format!("\u{feff}{{ {hooks} }}"));
}

#[test]
fn older_program_path_is_replaced_in_place() {
    let other = |command: &str| {
        let handlers = format!(r#"[{{"command":"x"}},{{"command":{command},"timeout":99}}]"#);
        format!(r#"{{"hooks":{{"Stop":[{{"matcher":"m","hooks":{handlers}}}]}}}}"#)
    };
    check_update(&other(r#""/old/hob capture-turn""#), &other(r#""/b/hob capture-turn""#));
    check_update(&other(r#""'/o l d/hob' capture-turn""#), &other(r#""/b/hob capture-turn""#));
    check_update(&other(r#""\"$HOME/hob\" capture-turn ""#), &other(r#""/b/hob capture-turn""#));
    check_update(
        &other(r#""\u0068ob --home x capture-turn""#),
        &other(r#""/b/hob --home x capture-turn""#),
    );
    check_update(&other(r#""'/b/hob' capture-turn""#), &other(r#""'/b/hob' capture-turn""#));
    check_uninstall(
        &other(r#""/old/hob capture-turn""#),
        Some(r#"{"hooks":{"Stop":[{"matcher":"m","hooks":[{"command":"x"}]}]}}"#),
    );
}

#[test]
fn install_removes_duplicate_entries() {
    let group = |more: &str| format!(r#"{{{more}"hooks": [{{"command": "hob capture-turn"}}]}}"#);
    let document =
        |groups: &[String]| format!(r#"{{"hooks": {{"Stop": [{}]}}}}"#, groups.join(","));
    let here = |text: String| text.replace("hob capture", "/b/hob capture");
    check_update(
        &document(&[group(""), group(r#""matcher": "a","#), group("")]),
        &here(document(&[group(""), group(r#""matcher": "a","#)])),
    );
}

#[test]
fn uninstall_leaves_valid_json() {
    let ours = r#"{"hooks": [{"command": "hob capture-turn"}]}"#;
    let document = |list: &str| format!(r#"{{"a": 1, "hooks": {{"Stop": {list}, "X": [ ]}}}}"#);
    check_uninstall(
        &document(&format!(r#"[ {ours} , {{"b": 2}} ]"#)),
        Some(&document(r#"[ {"b": 2} ]"#)),
    );
    check_uninstall(
        &document(&format!(r#"[{{"b": 2}}, {ours}, {{"c": 3}}]"#)),
        Some(&document(r#"[{"b": 2}, {"c": 3}]"#)),
    );
    check_uninstall(
        r#"{"hooks": {"PreCompact": [ {"hooks": [{"command": "hob capture-turn"}]} ], "X": []}}"#,
        Some(r#"{"hooks": {"X": []}}"#),
    );
}

#[test]
fn reformatted_document_loses_all_entries_on_uninstall() {
    for before in ["{}", "{\"a\":1}", "{ \"a\": 1, \"hooks\": {\"Stop\": []} }"] {
        let value: Value = serde_json::from_str(&installed(before)).expect("is JSON");
        let expect = before.contains('a').then(|| json!({"a": 1}));
        let pretty = serde_json::to_string_pretty(&value).expect("serialises");
        for text in [pretty, value.to_string()] {
            let after = uninstalled(&text);
            let after = after.map(|text| serde_json::from_str::<Value>(&text).expect("is JSON"));
            assert_eq!(after, expect, "{text}");
        }
    }
}

#[test]
fn invalid_documents_are_refused() {
    check_refused("{", "not valid JSON");
    check_refused("{} x", "not valid JSON");
    check_refused("{\"a\": 1,}", "not valid JSON");
    check_refused("{ // no\n}", "not valid JSON");
    check_refused("{\"a\": \"\u{1}\"}", "not valid JSON");
    check_refused("\u{a0}", "not valid JSON");
    check_refused("[]", "the document is not an object");
    check_refused("null", "the document is not an object");
    check_refused("{\"hooks\": []}", "`hooks` is not an object");
    check_refused("{\"hooks\": {\"Stop\": {}}}", "`Stop` in `hooks` is not a list");
    check_refused("{\"hooks\": {}, \"h\\u006foks\": {}}", "`hooks` occurs more than once");
    check_refused("{\"hooks\": {\"Stop\": [], \"Stop\": []}}", "`Stop` in `hooks` occurs more");
    check_refused(
        "{\"hooks\": {\"Stop\": [{\"hooks\": [], \"hooks\": []}]}}",
        "`hooks` in `Stop` occurs more than once",
    );
}

#[test]
fn unrelated_settings_are_not_validated() {
    let repeated = "{\"a\": 1, \"a\": 2, \"b\": \"\\ud800\", \"\\ud800\": 1e999}";
    assert_eq!(uninstalled(&installed(repeated)).as_deref(), Some(repeated));
    let odd = r#"{"hooks": {"New": 1, "Stop": [1, {"hooks": 2}, {"hooks": [3, {"command": 4}]}]}}"#;
    assert_eq!(uninstalled(&installed(odd)).as_deref(), Some(odd));
    let depth = 200_000;
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(uninstalled(&installed(&deep)).as_deref(), Some(deep.as_str()));
    let huge = format!("{{\"a\": [{}0]}}", "{\"b\": \"]\"}, ".repeat(200_000));
    assert_eq!(uninstalled(&installed(&huge)).as_deref(), Some(huge.as_str()));
}

#[test]
fn recognise_accepts_only_hob_commands() {
    let program = |line: &str| command::recognise(line).map(|command| command.program);
    for (line, expect) in [
        ("hob capture-turn", "hob"),
        ("  /a/hob\tsession-start ", "/a/hob"),
        ("'/it'\\''s/hob' capture-turn", "/it's/hob"),
        ("\"/a b/hob\" capture-turn", "/a b/hob"),
        ("/a\\ b/hob capture-turn", "/a b/hob"),
        ("~/bin/hob --quiet capture-turn", "~/bin/hob"),
    ] {
        assert_eq!(program(line).as_deref(), Some(expect), "{line}");
    }
    for line in [
        "",
        "hob",
        "capture-turn",
        "hob capture-turns",
        "hob capture-turn now",
        "/a/hobb capture-turn",
        "/hob/other capture-turn",
        "echo hob capture-turn",
        "echo x; hob capture-turn",
        "hob status && other capture-turn",
        "hob x | y capture-turn",
        "hob # capture-turn",
        "'hob capture-turn",
        "'/a/hob capture-turn'",
    ] {
        assert_eq!(program(line), None, "{line}");
    }
    for path in ["/a/hob", "/a b/hob", "/it's/\"$x\"/`y`/\\/hob", "/ü;&|/\n/hob"] {
        let line = command::command_line(path, Subcommand::CaptureTurn);
        assert_eq!(program(&line).as_deref(), Some(path), "{line}");
    }
    assert_eq!(command::command_line("/a/hob", Subcommand::SessionStart), "/a/hob session-start");
}
