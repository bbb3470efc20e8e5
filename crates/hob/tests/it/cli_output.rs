//! What commands print: for a person at a terminal, for a program, and for a reader that leaves early.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use hob_domain::Timestamp;
use hob_testkit::TestHome;
use serde_json::json;

use crate::api::api;
use crate::memory_setup::{capture, export, folder, json_of, said, transcript};
use crate::on_terminal::{dialogue_on_terminal, on_terminal};

const COLOUR: char = '\u{1b}';

/// A home whose memory has two turns of one session.
pub fn remembering() -> TestHome {
    let home = TestHome::new();
    let records = [
        said("session-of-the-crane", 0, "user", "which databases do the releases need"),
        said("session-of-the-crane", 1, "assistant", "the release needs one database"),
    ];
    let path: PathBuf = transcript(&home, "s1.jsonl", &records);
    assert_eq!(capture(&home, &["--cwd", "/"], &path)["inserted"], 2);
    home
}

#[test]
fn terminals_get_colours_relative_times_and_short_ids() {
    let home = remembering();
    let recall = ["recall", "--project", "*", "database", "releases"];
    let shown = on_terminal(home.command(&recall), "");
    assert!(shown.contains("\u{1b}[1;33mdatabase"), "a match is highlighted: {shown:?}");
    assert!(shown.contains("session session-of-t"), "{shown:?}");
    assert!(!shown.contains("session-of-the-crane"), "a short id: {shown:?}");
    let mut plain = home.command(&recall);
    plain.env("NO_COLOR", "1");
    let plain = on_terminal(plain, "");
    assert!(!plain.contains(COLOUR) && plain.contains("database"), "{plain:?}");

    let piped = home.run(&recall);
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert!(!piped.contains(COLOUR) && piped.contains("session-of-the-crane"), "{piped}");
    let ts = export(&home)[0]["ts"].as_str().unwrap().to_owned();
    assert!(piped.contains(&ts) && !shown.contains(&ts), "{piped}");
    assert!(piped.contains("matches database, release"), "whole words: {piped}");
}

/// Turns below the lowest score were counted as "more not shown", and no `--limit` showed them.
#[test]
fn recall_of_nonsense_says_what_to_do() {
    let home = TestHome::new();
    let records: Vec<_> = (0..90)
        .map(|n| said("s", n, "user", &format!("topic {n}: the gauge of lantern {n} reads {n}")))
        .collect();
    let path: PathBuf = transcript(&home, "s.jsonl", &records);
    assert_eq!(capture(&home, &["--cwd", "/"], &path)["inserted"], 90);
    let recall = |options: &[&str]| {
        let arguments = [&["recall"], options, &["zzyzx quux flurbo"]].concat();
        String::from_utf8(home.run(&arguments).stdout).unwrap()
    };
    let both = "nothing matches; `--project '*'` searches all projects; `--min-score 0` shows weak matches too\n";
    assert!(recall(&["--project", "/nowhere"]).ends_with(&format!("0 hits\n{both}")));
    let text = recall(&["--project", "*"]);
    assert_eq!(text, "0 hits\nnothing matches; `--min-score 0` shows weak matches too\n");
    let weak = recall(&["--project", "*", "--min-score", "0"]);
    assert!(weak.contains("10 hits, ") && weak.contains("more not shown"), "{weak}");
}

#[test]
fn interactive_recall_searches_as_one_types_and_prints_the_choice() {
    let home = remembering();
    let recall = ["recall", "--interactive", "--project", "*", "zzz"];
    // Ctrl-U clears the query. The second hit is chosen.
    let steps = [("0 hits", "\u{15}database releases"), ("2 hits", "\u{1b}[B"), ("▌", "\r")];
    let shown = dialogue_on_terminal(home.command(&recall), &steps);
    let (_, printed) = shown.rsplit_once("\u{1b}[?1049l").expect("the user's own screen is back");
    let turns = ["which databases", "the release needs one database"];
    assert_eq!(turns.iter().filter(|turn| printed.contains(**turn)).count(), 1, "{printed:?}");

    let left =
        dialogue_on_terminal(home.command(&["recall", "-i"]), &[("type to search", "\u{3}")]);
    let (_, printed) = left.rsplit_once("\u{1b}[?1049l").expect("the user's own screen is back");
    assert!(!printed.contains("database"), "{printed:?}");

    let piped = home.run(&["recall", "-i", "database"]);
    assert_eq!(piped.status.code(), Some(1), "{piped:?}");
    assert!(String::from_utf8_lossy(&piped.stderr).contains("needs a terminal"), "{piped:?}");
}

/// What `hob recall` prints in docs/memory.md is what it prints.
#[test]
fn recall_of_the_documents_is_real() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memory.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, example) = document.split_once("```console\n$ hob ").expect("an example");
    let (example, _) = example.split_once("```").expect("the end of the example");
    let (command, expected) = example.split_once('\n').expect("what it prints");
    let texts: Vec<&str> = expected.lines().filter_map(|line| line.strip_prefix("  | ")).collect();

    let home = TestHome::new();
    let project = home.user_home().join("src/shop");
    std::fs::create_dir_all(&project).unwrap();
    let two_days_ago = Timestamp::from_second(Timestamp::now().as_second() - 2 * 86_400).unwrap();
    let turn = |n: usize, role: &str| {
        let mut record = said("0197a2f4-1111-4d7e-9a55-3f8b1c2d4e5f", n, role, texts[n]);
        record["timestamp"] = json!(two_days_ago.to_string());
        record
    };
    let path = transcript(&home, "s1.jsonl", &[turn(0, "user"), turn(1, "assistant")]);
    let cwd = project.display().to_string();
    assert_eq!(capture(&home, &["--cwd", &cwd], &path)["inserted"], 2);

    let mut recall = home.command(&command.split(' ').collect::<Vec<&str>>());
    recall.current_dir(&project).env("NO_COLOR", "1");
    let without_ids = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_end());
        lines
            .map(|line| line.split_once("] ").map_or(line, |(_, reason)| reason).to_owned())
            .collect()
    };
    assert_eq!(without_ids(&on_terminal(recall, "")), without_ids(expected));
}

#[test]
fn tables_fit_the_terminal() {
    let home = TestHome::new();
    home.app(&"long-name-".repeat(6));
    home.app("short");
    let server = home.serve();
    let project = folder(&home, &"a-long-folder/".repeat(9));
    let mut run = home.command(&["run", "--agent", "demo", "--keep", "hello"]);
    assert!(run.current_dir(project).output().unwrap().status.success());
    for (list, expected) in [(["app", "list"], "short"), (["sessions", "list"], "demo")] {
        let mut list = home.command(&list);
        list.env("NO_COLOR", "1");
        let shown = on_terminal(list, "");
        assert!(shown.contains("now") && shown.contains(expected), "{shown:?}");
        assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
    }
    drop(server);
    let doctor = on_terminal(home.command(&["doctor"]), "");
    assert!(doctor.contains("\u{1b}[32mok"), "verdicts have colours: {doctor}");
    let mut config = home.command(&["config", "get"]);
    config.env("NO_COLOR", "1");
    let shown = on_terminal(config, "");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.contains('…'), "{shown}");
}

/// A session and a log on a terminal look as everything else does there; a program reads them whole.
#[test]
fn sessions_and_logs_have_relative_times_and_short_ids_on_a_terminal() {
    let home = TestHome::new();
    let server = home.serve();
    let project = folder(&home, "harbour");
    let mut run = home.command(&["run", "--agent", "demo", "--keep", "--json", "hello"]);
    let answer = json_of(&run.current_dir(&project).output().unwrap());
    let id = answer["session_id"].as_str().unwrap();

    let show = ["sessions", "show", &id[..8]];
    let shown = on_terminal(home.command(&show), "");
    let line = |text: &str, key: &str| {
        let found = text.lines().find(|line| line.starts_with(key));
        found.unwrap_or_else(|| panic!("no {key} in {text}")).trim_end().to_owned()
    };
    assert_eq!(line(&shown, "session_id"), format!("session_id     {}", &id[..12]));
    assert_eq!(line(&shown, "cwd"), "cwd            ~/harbour");
    assert_eq!(line(&shown, "created_at"), "created_at     now");
    assert_eq!(line(&shown, "last_turn_at"), "last_turn_at   now");
    let piped = String::from_utf8(home.run(&show).stdout).unwrap();
    assert_eq!(line(&piped, "session_id"), format!("session_id     {id}"));
    assert_eq!(line(&piped, "cwd"), format!("cwd            {}", project.display()));
    assert!(line(&piped, "created_at").ends_with('Z'), "{piped}");

    let ended = |text: &str| {
        let found = text.lines().find(|line| line.contains("turn ended"));
        found.unwrap_or_else(|| panic!("no turn has ended in {text}")).to_owned()
    };
    let logged = ended(&on_terminal(home.command(&["logs"]), ""));
    assert!(logged.starts_with("now ") && !logged.contains(id), "{logged:?}");
    assert!(logged.contains(&format!("session={}", &id[..12])), "{logged:?}");
    let piped = ended(&String::from_utf8(home.run(&["logs"]).stdout).unwrap());
    assert!(piped.starts_with("20") && piped.contains(id), "{piped}");

    let note = json_of(&home.run(&["remember", "--json", "the lamp is green"]));
    let record = note["record_id"].as_str().unwrap();
    let forgot = on_terminal(home.command(&["forget", "--yes", &record[..8]]), "");
    let undo = format!("erased in 24 h, and until then `hob forget --undo {record}`");
    assert!(forgot.contains(&undo), "{forgot:?}");
    drop(server);
}

#[test]
fn lists_and_counts_speak_of_none_and_of_one() {
    let home = TestHome::new();
    let apps = home.run(&["app", "list"]);
    assert!(apps.status.success() && apps.stdout.is_empty(), "{apps:?}");
    let said = String::from_utf8(apps.stderr).unwrap();
    assert_eq!(said, "no apps; `hob app create NAME` creates one\n");
    assert_eq!(json_of(&home.run(&["app", "list", "--json"])), json!({"apps": []}));

    let server = home.serve();
    let memory = || {
        let text = String::from_utf8(home.run(&[]).stdout).unwrap();
        text.lines().find(|line| line.starts_with("memory")).unwrap_or_default().to_owned()
    };
    assert_eq!(memory(), "memory    0 turns from 0 sessions", "no time of a latest turn");
    let path = transcript(&home, "one.jsonl", &[said_once()]);
    let imported = home.run(&["import", path.to_str().unwrap()]);
    let text = String::from_utf8([imported.stdout, imported.stderr].concat()).unwrap();
    assert!(text.contains("imported 1 turn from 1 transcript;"), "{text}");
    assert!(!text.contains("1 turns") && !text.contains("1 transcripts"), "{text}");
    let line = memory();
    assert!(line.starts_with("memory    1 turn from 1 session, the latest 2026-01-02"), "{line}");
    drop(server);
}

fn said_once() -> serde_json::Value {
    said("once", 0, "user", "the lantern is lit")
}

#[test]
fn commands_end_quietly_if_their_reader_leaves() {
    let home = remembering();
    let server = home.serve();
    for arguments in [&["status"][..], &["sessions", "list", "--json"], &["sessions", "list"]] {
        assert_quiet(&home, arguments);
    }
    assert!(server.stop().success());
    for arguments in [
        &["doctor"][..],
        &["recall", "--project", "*", "database"],
        &["recall", "--project", "*", "--json", "database"],
        &["timeline", "--project", "*"],
        &["config", "get"],
        &["completions", "bash"],
        &["agents"],
        &["export"],
        &[],
    ] {
        assert_quiet(&home, arguments);
    }
}

/// Runs a command whose reader has left before the first line.
fn assert_quiet(home: &TestHome, arguments: &[&str]) {
    let mut command = home.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !error.contains("panicked") && !error.contains("Broken pipe"),
        "{arguments:?}: {error}"
    );
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
}

#[test]
fn hob_alone_shows_the_state_and_the_next_step() {
    let home = TestHome::new();
    let output = home.run(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("not running") && text.contains("next: `hob setup`"), "{text}");
    for command in [&["status"][..], &["stop"], &["sessions", "list"]] {
        let error = String::from_utf8(home.run(command).stderr).unwrap();
        assert!(error.contains("no server answers") && !error.contains("os error"), "{error}");
    }
    assert!(!home.hob_home().exists(), "looking makes nothing");
    let installed = home.run(&["hooks", "install", "--client", "claude"]);
    assert!(installed.status.success(), "{installed:?}");
    let text = String::from_utf8(home.run(&[]).stdout).unwrap();
    assert!(text.contains("next: `hob serve`"), "{text}");
    let server = home.serve();
    let user = home.user_home();
    let shown = on_terminal(home.command(&[]), "");
    let is_below = home.hob_home().starts_with(&user);
    assert_eq!(shown.contains("home      ~/"), is_below, "{shown:?}");
    let text = String::from_utf8(home.run(&[]).stdout).unwrap();
    assert!(text.contains(server.url()) && text.contains("next: `hob recall"), "{text}");
}

#[test]
fn times_may_be_said_in_words() {
    let home = remembering();
    let hits = |since: &str, until: &str| {
        let arguments = ["--since", since, "--until", until, "database"];
        let output = home.run(&[&["recall", "--json", "--project", "*"], &arguments[..]].concat());
        json_of(&output)["hits"].as_array().unwrap().len()
    };
    // The turns of the transcript are from January 2026.
    assert_eq!(hits("2026-01-01", "today"), 2);
    assert_eq!(hits("2d", "today"), 0);
    assert_eq!(hits("yesterday", "0h"), 0);
    let wrong = home.run(&["recall", "--since", "soon", "database"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("yesterday, 2d"), "{wrong:?}");
}

/// A full disk behind a redirected output was not reported, and the command exited with 0.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let home = remembering();
    for arguments in [
        &["app", "create", "x"][..],
        &["stats", "--json"],
        &["config", "get"],
        &["export"],
        &["export", "--json"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = home.command(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("cannot write the output"), "{arguments:?}: {said}");
    }
}

/// A pager gets what does not fit on the terminal, and nothing else.
#[test]
fn long_output_on_a_terminal_is_paged() {
    let home = TestHome::new();
    let records: Vec<_> =
        (0..40).map(|n| said("long", n, "user", &format!("turn {n} about the harbour"))).collect();
    let path = transcript(&home, "long.jsonl", &records);
    let project = folder(&home, "harbour");
    capture(&home, &["--cwd", project.to_str().unwrap()], &path);
    let shown = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = home.command(arguments);
        command.current_dir(&project).envs(variables.iter().copied());
        on_terminal(command, "")
    };
    let pager = ("PAGER", "sed 's/^/paged /'");
    let timeline = ["timeline", "--limit", "40"];
    let paged = shown(&timeline, &[pager]);
    assert!(paged.lines().all(|line| line.starts_with("paged ")), "{paged}");
    assert!(paged.contains("turn 0 about") && paged.contains("turn 39 about"), "{paged}");
    assert!(paged.contains("\x1b["), "colours stay: {paged}");
    let paged = shown(&["recall", "--limit", "30", "about the harbour"], &[pager]);
    assert!(paged.starts_with("paged ") && paged.contains("hit"), "{paged}");
    let other = shown(&timeline, &[pager, ("HOB_PAGER", "sed 's/^/other /'")]);
    assert!(other.starts_with("other "), "{other}");
    // Plain output: short, on request, without a pager that works, and for programs.
    let cases: [(&[&str], (&str, &str)); 6] = [
        (&["timeline", "--limit", "2"], pager),
        (&["timeline", "--limit", "40", "--no-pager"], pager),
        (&["timeline", "--limit", "40", "--json"], pager),
        (&timeline, ("PAGER", "")),
        (&timeline, ("PAGER", "cat")),
        (&timeline, ("PAGER", "no-such-pager-anywhere 2>/dev/null")),
    ];
    for (arguments, variable) in cases {
        let plain = shown(arguments, &[variable]);
        assert!(!plain.contains("paged") && plain.contains("turn 39 about"), "{plain}");
    }
    let piped = home.command(&timeline).current_dir(&project).env(pager.0, pager.1).output();
    assert!(!String::from_utf8(piped.unwrap().stdout).unwrap().contains("paged"));
    // A reader that leaves early is no error, in a pager as in a pipe.
    let left = shown(&timeline, &[("PAGER", "head -n 1")]);
    assert_eq!(left.lines().count(), 1, "{left}");
}

/// Also what is no list may be long: checks, settings, agents, a session and its conversation.
#[test]
fn all_long_output_is_paged() {
    let many = (0..30).map(|n| format!("[agents.extra{n}]\ndriver = \"acp\"\ncommand = [\"x\"]\n"));
    let api = api("");
    let config = api.home.hob_home().join("config.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, before + &many.collect::<String>()).unwrap();
    let meta = json!({"title": "a long title ".repeat(200)});
    let id = api.create(&json!({"agent": "acp", "meta": meta}));
    assert!(api.ask(&id, &format!("{}[[say done]]", "a line\n".repeat(40))).contains("done"));
    for arguments in [
        &["doctor"][..],
        &["config", "get"],
        &["agents"],
        &["sessions", "show", &id],
        &["sessions", "tail", "--no-follow", &id],
    ] {
        let shown = |more: &[&str]| {
            let mut command = api.home.command(&[arguments, more].concat());
            command.env("PAGER", "sed 's/^/paged /'");
            on_terminal(command, "")
        };
        let paged = shown(&[]);
        assert!(paged.lines().all(|line| line.starts_with("paged ")), "{arguments:?}: {paged}");
        assert!(paged.lines().count() > 1, "{arguments:?}: {paged}");
        let plain = shown(&["--no-pager"]);
        assert!(!plain.contains("paged ") && !plain.is_empty(), "{arguments:?}: {plain}");
    }
}
