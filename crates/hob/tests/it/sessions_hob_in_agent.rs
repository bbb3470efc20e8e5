//! `hob` called by an agent. Not for clusters: whose agent calls is known by the machine it runs on.

use hob_testkit::program;
use serde_json::json;

use crate::api::*;
use crate::memory_setup::{capture, said, transcript};

/// An agent that calls `hob` speaks for its app, whether it names the home or the socket.
fn hob_inside_an_agent(place: impl Fn(&Api) -> String) {
    let api = api("");
    let other = api.home.app("other");
    let path = transcript(&api.home, "t.jsonl", &[said("s", 0, "user", "the owners lantern")]);
    assert_eq!(capture(&api.home, &["--cwd", "/"], &path)["inserted"], 1);
    api.tool(&api.token, "memory_capture", json!({"text": "the apps lantern"}));
    api.tool(&other, "memory_capture", json!({"text": "the others lantern"}));
    let id = api.session();
    let hob = format!("{} {}", place(&api), program("hob").display());
    let found = api.shell(&id, &format!("{hob} recall --json --project '*' lantern 2>&1"));
    assert!(!found.contains("owners") && !found.contains("others"), "{found}");
    api.shell(&id, &format!("{hob} forget --json --session-id s 2>&1"));
    let owner = api.home.run(&["recall", "--json", "--project", "*", "lantern"]);
    assert!(String::from_utf8_lossy(&owner.stdout).contains("the owners lantern"));
    for command in ["app list", "app create evil", "export", "doctor", "session-start --cwd /"] {
        let said = api.shell(&id, &format!("{hob} {command} 2>&1"));
        assert!(!said.contains("owners") && !said.contains("hob_"), "{command}: {said}");
    }
    let apps = api.home.run(&["app", "list"]);
    assert!(!String::from_utf8_lossy(&apps.stdout).contains("evil"));
    assert!(found.contains("the apps lantern"), "its own is there: {found}");
}

#[test]
fn hob_inside_an_agent_speaks_for_its_app_by_the_home() {
    hob_inside_an_agent(|api| format!("HOB_HOME={}", api.home.hob_home().display()));
}

#[test]
fn hob_inside_an_agent_speaks_for_its_app_by_the_socket() {
    hob_inside_an_agent(|api| {
        format!("HOB_SOCKET={}", api.home.hob_home().join("hob.sock").display())
    });
}

/// The owner searches what the sessions of an app said; an agent of another app cannot.
#[test]
fn owner_searches_the_memory_of_an_app() {
    let api = api("");
    let other = api.home.app("other");
    api.tool(&api.token, "memory_capture", json!({"text": "the apps lantern"}));
    api.tool(&other, "memory_capture", json!({"text": "the others lantern"}));
    let run = |arguments: &[&str]| {
        let output = api.home.run(arguments);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let recall = |app: &str| run(&["recall", "--json", "--app", app, "lantern"]);
    let found = recall("tests");
    assert!(found.contains("the apps lantern") && !found.contains("others"), "{found}");
    for command in [&["recall", "lantern"][..], &["timeline"]] {
        let in_project = |project: &str| {
            run(&[command, &["--json", "--app", "tests", "--project", project]].concat())
        };
        let found = in_project("*");
        assert!(found.contains("the apps lantern") && !found.contains("others"), "{found}");
        let found = in_project("/elsewhere");
        assert!(!found.contains("the apps lantern"), "{found}");
    }
    assert!(recall("other").contains("the others lantern"));
    assert!(recall("missing").contains("no app has the name missing"));
    let timeline = api.home.run(&["timeline", "--json", "--app", "other"]);
    let timeline = String::from_utf8_lossy(&timeline.stdout).into_owned();
    assert!(timeline.contains("others") && !timeline.contains("the apps lantern"), "{timeline}");
    // IDs are printed short, and may be given so; what is printed says whose it is.
    let turn = |arguments: &[&str]| {
        let output = run(&[arguments, &["--json", "--app", "other"]].concat());
        let answer: serde_json::Value = serde_json::from_str(&output).unwrap();
        answer["turns"].as_array().or(answer["hits"].as_array()).unwrap()[0].clone()
    };
    let first = turn(&["timeline"]);
    let part = |field: &str| {
        let id = first[field].as_str().unwrap();
        id[..id.len() * 2 / 3].to_owned()
    };
    assert_eq!(turn(&["timeline", "--around", &part("record_id")]), first);
    assert_eq!(turn(&["timeline", "--session-id", &part("session_id")]), first);
    let hit = turn(&["recall", "--session-id", &part("session_id"), "lantern"]);
    assert_eq!((&hit["app"], &first["app"]), (&json!("other"), &json!("other")));
    for command in [&["recall", "lantern"][..], &["timeline"]] {
        let shown = run(&[command, &["--app", "other"]].concat());
        assert!(shown.contains(" (app other)") && shown.contains("the others lantern"), "{shown}");
    }
    assert!(!run(&["timeline", "--project", "*"]).contains("(app "), "the owner's is not marked");
    let export = |arguments: &[&str]| run(&[&["export"], arguments].concat());
    let exported = export(&["--app", "other"]);
    let line: serde_json::Value = serde_json::from_str(&exported).unwrap();
    assert_eq!((&line["app"], &line["text"]), (&json!("other"), &json!("the others lantern")));
    assert_eq!(export(&["--app", "other", "--session-id", &part("session_id")]), exported);
    assert_eq!(export(&["--app", "other", "--project", "/elsewhere"]), "");
    assert!(export(&["--app", "missing"]).contains("no turns of an app missing"));
    assert!(!export(&[]).contains("lantern"), "the owner's memory has nothing of apps");
    let stats = api.home.run(&["stats", "--json", "--app", "other"]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats["turns"], 1, "{stats}");
    let id = api.session();
    let socket = api.home.hob_home().join("hob.sock");
    let hob = format!("HOB_SOCKET={} {}", socket.display(), program("hob").display());
    let said = api.shell(&id, &format!("{hob} recall --app other lantern 2>&1"));
    assert!(said.contains("an agent cannot use the memory of another app"), "{said}");
}
