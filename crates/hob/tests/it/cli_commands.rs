//! The small commands: stop, logs, open, agents, config, remember, timeline, stats, allow, deny, update, man.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use hob_testkit::{TestHome, wait_until};
use serde_json::{Value, json};

use crate::api::api;
use crate::memory_setup::{folder, json_of};
use crate::on_terminal::on_terminal;

#[test]
fn stop_ends_the_server_and_says_if_there_is_none() {
    let home = TestHome::new();
    for command in ["stop", "open"] {
        assert_eq!(home.run(&[command]).status.code(), Some(3), "{command}");
    }
    let server = home.serve();
    let opened = json_of(&home.run(&["open", "--json"]));
    assert_eq!(opened["url"], server.url());
    let token = fs::read_to_string(opened["token_file"].as_str().unwrap()).unwrap();
    assert!(token.starts_with("hob_"));
    let printed = String::from_utf8(home.run(&["open"]).stdout).unwrap();
    assert_eq!(printed.trim(), server.url());
    let stopped = home.run(&["stop", "--json"]);
    assert_eq!(json_of(&stopped), json!({"stopped": true, "pid": server.pid()}));
    assert_eq!(home.run(&["status"]).status.code(), Some(3), "it has ended");
}

/// A browser opens only where the user sees it. The command does not wait for it.
#[test]
fn open_asks_the_desktop_on_a_terminal_with_a_display() {
    let home = TestHome::new();
    let server = home.serve();
    let (bin, empty) = (folder(&home, "bin"), folder(&home, "empty"));
    let (gate, opened) = (bin.join("gate"), bin.join("opened"));
    let script = format!(
        "#!/bin/sh\nwhile [ ! -e '{}' ]; do sleep 0.02; done\nprintf '%s\\n' \"$*\" >> '{}'\n",
        gate.display(),
        opened.display()
    );
    let program = bin.join("xdg-open");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let open = |arguments: &[&str], display: &str| {
        let mut command = home.command(&[&["open"], arguments].concat());
        command.env("PATH", &path).env("DISPLAY", display);
        command
    };
    for unseen in [open(&["--json"], ":0"), open(&[], "")] {
        assert!(on_terminal(unseen, "").contains(server.url()));
    }
    let piped = open(&[], ":0").output().unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap().trim(), server.url());
    // The stand-in does not end before the gate opens.
    let shown = on_terminal(open(&[], ":0"), "");
    assert!(shown.contains(server.url()) && !shown.contains("cannot open"), "{shown}");
    assert!(!opened.exists());
    fs::write(&gate, "").unwrap();
    let url = format!("{}\n", server.url());
    wait_until("the desktop opens the console once", || {
        (fs::read_to_string(&opened).ok()? == url).then_some(())
    });
    let mut without = open(&[], ":0");
    without.env("PATH", &empty);
    let shown = on_terminal(without, "");
    assert!(shown.contains(server.url()) && shown.contains("open the URL yourself"), "{shown}");
    drop(server);
}

#[test]
fn logs_are_shown_and_followed() {
    let home = TestHome::new();
    assert_eq!(home.run(&["logs"]).status.code(), Some(1), "there is none yet");
    let server = home.serve();
    let mut follow = home.command(&["logs", "--follow", "-n", "0", "--json"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        let is_wanted = |line: &Value| line["fields"]["message"] == "session created";
        let values = lines.by_ref().map_while(Result::ok);
        values.map(|line| serde_json::from_str(&line).unwrap()).find(is_wanted)
    });
    let run = |home: &TestHome| home.run(&["run", "--agent", "demo", "hello"]).status.success();
    // The follower may start after the first run.
    wait_until("the log is followed", || (run(&home) && reader.is_finished()).then_some(()));
    assert!(reader.join().unwrap().is_some());
    follow.kill().unwrap();
    follow.wait().unwrap();
    let shown = home.run(&["logs", "-n", "2"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(shown.contains("INFO  turn ended app=@owner"), "{shown}");
    drop(server);
}

#[test]
fn agents_are_listed_with_their_state() {
    let home = TestHome::new();
    home.configure("[agents.mine]\ndriver = \"acp\"\ncommand = [\"/no/such/agent\"]\n");
    let list = json_of(&home.run(&["agents", "--json"]));
    let agent = |name: &str| {
        let agents = list["agents"].as_array().unwrap();
        agents.iter().find(|agent| agent["agent"] == name).unwrap().clone()
    };
    assert_eq!(
        (&agent("demo")["installed"], &agent("demo")["default"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        (&agent("mine")["installed"], &agent("mine")["driver"]),
        (&json!(false), &json!("acp"))
    );
    assert_eq!(agent("claude")["default"], true);
    let table = String::from_utf8(home.run(&["agents"]).stdout).unwrap();
    assert!(table.contains("claude (default)") && table.contains("not found"), "{table}");
}

#[test]
fn settings_are_read_and_written_one_by_one() {
    let home = TestHome::new();
    home.configure("# mine\n[sessions] # few\nttl_secs = 60\n");
    let set = |key: &str, value: &str| home.run(&["config", "set", key, value]);
    let get = |key: &str| String::from_utf8(home.run(&["config", "get", key]).stdout).unwrap();
    assert!(set("sessions.max_live", "3").status.success());
    assert!(set("log", "debug").status.success());
    assert!(set("hosts", "[\"a.example\", \"b.example\"]").status.success());
    assert_eq!((get("sessions.max_live").trim(), get("log").trim()), ("3", "\"debug\""));
    let text = fs::read_to_string(home.hob_home().join("config.toml")).unwrap();
    assert!(text.contains("# mine\n[sessions] # few\nmax_live = 3\nttl_secs = 60\n"), "{text}");
    for (key, value) in
        [("sessions.max_live", "many"), ("sessions.max_live", "-1"), ("no.such", "1")]
    {
        let refused = set(key, value);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(key), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(home.hob_home().join("config.toml")).unwrap(), text);
    let one = json_of(&home.run(&["config", "get", "--json", "sessions.ttl_secs"]));
    let expect = json!([{"key": "sessions.ttl_secs", "value": "60", "source": "config.toml"}]);
    assert_eq!(one["settings"], expect);
    assert_eq!(home.run(&["config", "get", "no.such"]).status.code(), Some(1));
}

#[test]
fn notes_are_remembered_listed_and_counted() {
    let home = TestHome::new();
    let remember = |text: &str| home.run(&["remember", "--json", "--project", "/harbour", text]);
    let note = json_of(&remember("the crane is painted blue"));
    assert_eq!(note["duplicate"], false, "{note}");
    let server = home.serve();
    let second = home.run(&["remember", "--project", "/harbour", "the", "keel", "is", "red"]);
    let told = String::from_utf8(second.stdout).unwrap();
    assert!(told.starts_with("remembered as ") && told.contains("hob forget"), "{told}");
    assert_eq!(home.run(&["remember"]).status.code(), Some(1), "nothing is an error");
    let found = json_of(&home.run(&["recall", "--json", "--project", "/harbour", "blue crane"]));
    assert_eq!(found["hits"][0]["record_id"], note["record_id"], "{found}");
    let turns = json_of(&home.run(&["timeline", "--json", "--project", "/harbour"]));
    let texts: Vec<&Value> =
        turns["turns"].as_array().unwrap().iter().map(|t| &t["text"]).collect();
    assert_eq!(texts, ["the crane is painted blue", "the keel is red"]);
    let shown = String::from_utf8(home.run(&["timeline", "--project", "/harbour"]).stdout).unwrap();
    assert!(shown.contains("  the keel is red\n"), "{shown}");
    let id = note["record_id"].as_str().unwrap();
    let fixed =
        json_of(&home.run(&["correct", "--json", &id[..10], "the", "crane", "is", "green"]));
    assert_eq!(fixed["superseded"], note["record_id"], "{fixed}");
    let found = json_of(&home.run(&["recall", "--json", "--project", "/harbour", "crane"]));
    assert_eq!(found["hits"][0]["text"], "the crane is green", "{found}");
    assert_eq!(json_of(&home.run(&["stats", "--json"]))["turns"], 3);
    let shown = String::from_utf8(home.run(&["stats"]).stdout).unwrap();
    assert!(shown.contains("turns        3\n"), "{shown}");
    drop(server);
}

#[test]
fn waiting_question_is_answered_from_the_shell() {
    let api = api("");
    let answer = |command: &str, arguments: &[&str]| {
        let output = api.home.run(&[&[command, "--json"], arguments].concat());
        (output.status.code(), output.stdout.clone())
    };
    assert_eq!(answer("allow", &[]).0, Some(1), "nobody asks");
    let ids: Vec<String> =
        (0..2).map(|_| api.create(&json!({"agent": "acp", "permissions": "ask"}))).collect();
    let mut streams: Vec<_> = ids
        .iter()
        .map(|id| api.stream_turn(id, "[[permission Bash :: touch x\u{1b}[2J]] [[say  then]]"))
        .collect();
    for stream in &mut streams {
        let asked = stream.until(|event| event.kind == "permission").pop().unwrap().json();
        assert_eq!(asked["detail"], "touch x\u{1b}[2J", "{asked}");
    }
    let state = String::from_utf8(api.home.run(&[]).stdout).unwrap();
    assert!(state.contains("2 open, 0 running, 2 waiting"), "{state}");
    let list = String::from_utf8(api.home.run(&["allow", "--list"]).stdout).unwrap();
    assert_eq!(list.matches(": Bash\n  | touch x[2J\n").count(), 2, "{list}");
    let (code, list) = answer("allow", &[]);
    let list: Value = serde_json::from_slice(&list).unwrap();
    assert_eq!((code, list["waiting"].as_array().unwrap().len()), (Some(1), 2), "{list}");
    let (code, answered) = answer("allow", &[&ids[0][..8]]);
    let answered: Value = serde_json::from_slice(&answered).unwrap();
    assert_eq!((code, &answered["answered"]["title"]), (Some(0), &json!("Bash")), "{answered}");
    let denied = api.home.run(&["deny"]);
    assert!(denied.status.success(), "the only one that is left: {denied:?}");
    assert_eq!(String::from_utf8_lossy(&denied.stdout), "denied: Bash\n  | touch x[2J\n");
    for (stream, chosen) in streams.iter_mut().zip(["yes", "no"]) {
        let last = stream.until(|event| event.kind == "turn").pop().unwrap().json();
        assert_eq!(last["text"], format!("permission Bash: {chosen} then"));
    }
    let log = String::from_utf8(api.home.run(&["sessions", "tail", "--no-follow", &ids[1]]).stdout);
    let log = log.unwrap();
    for expect in [
        "── session with acp, 20",
        "? Bash (answer",
        "  | touch x[2J\n",
        "? denied by the user, 20",
    ] {
        assert!(log.contains(expect), "{expect}: {log}");
    }
    let form = r#"[[request elicitation/create {"mode":"form","message":"Port?","requestedSchema":{"type":"object","properties":{"port":{"type":"integer"}},"required":["port"]}}]]"#;
    let mut stream = api.stream_turn(&ids[0], form);
    stream.until(|event| event.kind == "permission");
    for (content, expect) in [("{}", "content.port"), ("port=1", "--content")] {
        let refused = api.home.run(&["allow", "--content", content]);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && error.contains(expect), "{error}");
    }
    assert!(api.home.run(&["allow", "--content", r#"{"port": 1}"#]).status.success());
    let last = stream.until(|event| event.kind == "turn").pop().unwrap().json();
    assert_eq!(last["text"], r#"{"action":"accept","content":{"port":1}}"#);
}

#[test]
fn cancelled_run_is_no_success() {
    let api = api("");
    let mut command = api.home.command(&["run", "--agent", "acp", "[[sleep 60000]]"]);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let list = || json_of(&api.home.run(&["sessions", "list", "--json"]));
    let id = wait_until("the turn runs", || {
        let list = list();
        let session = &list["sessions"][0];
        let id = session["session_id"].as_str().filter(|_| session["state"] == "running");
        id.map(str::to_owned)
    });
    assert!(api.home.run(&["sessions", "cancel", &id]).status.success());
    let output = run.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("cancelled"), "{error}");
}

#[test]
fn session_log_reads_like_a_conversation() {
    let api = api("");
    let id = api.create(&json!({"agent": "acp"}));
    for words in ["[[say one ]] [[say two]]", "[[say three]]"] {
        assert_eq!(api.turn(&id, words).status, 200);
    }
    let shown = api.home.run(&["sessions", "tail", "--no-follow", &id[..8]]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text:?}: {shown}"));
    let order = [
        at("> [[say one ]] [[say two]]\n"),
        at("one two\n"),
        at("turn 1 finished: end_turn"),
        at("> [[say three]]\n"),
        at("three\n── turn 2"),
    ];
    assert!(order.is_sorted(), "{shown}");
    // A follower sees the prompt of the next turn, too, also if it skips the past.
    let last = api.log(&id).last().unwrap()["seq"].to_string();
    let mut follow = api.home.command(&["sessions", "tail", "--after", &last, &id]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    let stdout = follow.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let mut seen = Vec::new();
        for line in lines {
            seen.push(line);
            if seen.iter().any(|line| line.contains("turn 3 finished")) {
                return seen;
            }
        }
        seen
    });
    assert_eq!(api.turn(&id, "[[say four]]").status, 200);
    let seen = reader.join().unwrap().join("\n");
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(seen.starts_with("> [[say four]]\nfour"), "{seen}");
}

#[test]
fn manual_pages_exist_for_every_command() {
    let home = TestHome::new();
    let folder = home.user_home().join("man1");
    let written = json_of(&home.run(&["man", "--json", folder.to_str().unwrap()]));
    let files = written["files"].as_array().unwrap();
    for name in ["hob.1", "hob-recall.1", "hob-sessions-tail.1", "hob-config-set.1"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(text.starts_with(".TH HOB") && text.contains("\n.SH SYNOPSIS\n"), "{text}");
        assert!(files.iter().any(|file| file.as_str().unwrap().ends_with(name)), "{files:?}");
    }
    let recall = fs::read_to_string(folder.join("hob-recall.1")).unwrap();
    assert!(recall.contains("\\-\\-since") && recall.contains("yesterday"), "{recall}");
}

/// The tests run a program that was built in a checkout, so Git is asked.
#[test]
fn update_check_asks_the_source_of_the_program() {
    if std::env::var_os("HOB_BIN").is_some() {
        return;
    }
    let home = TestHome::new();
    let programs = home.user_home().join("programs");
    fs::create_dir_all(&programs).unwrap();
    let check = |git: &str, flags: &[&str]| {
        let program = programs.join("git");
        fs::write(&program, format!("#!/bin/sh\ncase \"$*\" in\n{git}\nesac\n")).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(programs.clone()).chain(std::env::split_paths(&path));
        let mut command = home.command(&["update", "--check"]);
        command.args(flags).env("PATH", std::env::join_paths(path).unwrap()).output().unwrap()
    };
    let remote = "*ls-remote*) echo 2222222222222222 HEAD ;;";
    let newer = check(&format!("{remote}\n*merge-base*) exit 1 ;;"), &[]);
    let said = String::from_utf8(newer.stdout).unwrap();
    assert!(said.contains("commit 222222222222 is available. Upgrade: git -C "), "{said}");
    let same = check(&format!("{remote}\n*merge-base*) exit 0 ;;"), &["--json"]);
    let said = json_of(&same);
    assert_eq!((&said["newer"], &said["server"]), (&json!(false), &Value::Null), "{said}");
    assert_eq!(said["installed_with"], "a checkout of the sources");
    let failed = check("*ls-remote*) echo no network >&2; exit 1 ;;", &[]);
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(said.contains("no network") && said.contains("To upgrade: git -C "), "{said}");
    assert_eq!(home.run(&["update"]).status.code(), Some(2), "it does not replace itself");
}
