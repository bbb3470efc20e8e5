//! Secrets: in no file, in no answer, and still there for their owner. The samples are put together at
//! run time, so that no scanner flags this file.

use std::fs;
use std::path::Path;
use std::process::Output;

use hob_testkit::TestHome;
use hob_testkit::leak::files_below;
use serde_json::{Value, json};

use crate::memory_setup::*;

const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";
const CAPITALS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// A body that looks random and is the same on every run.
fn body(alphabet: &str, length: usize, seed: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (seed * 1000 + length) as u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        alphabet.as_bytes()[(state >> 33) as usize % alphabet.len()] as char
    };
    (0..length).map(|_| next()).collect()
}

/// Returns fifty secrets, each with its sentence; `@` marks the position of the secret.
pub fn secrets() -> Vec<(String, String)> {
    let shapes = [
        ("AKIA", CAPITALS, 16),
        ("ASIA", CAPITALS, 16),
        ("ghp_", MIXED, 36),
        ("ghs_", MIXED, 36),
        ("github_pat_", MIXED, 82),
        ("glpat-", MIXED, 20),
        ("sk-", MIXED, 48),
        ("sk-proj-", MIXED, 120),
        ("sk-ant-api03-", MIXED, 95),
        ("sk-or-v1-", HEX, 64),
        ("AIza", MIXED, 35),
        ("ya29.", MIXED, 100),
        ("GOCSPX-", MIXED, 28),
        ("xoxb-1234567890-", MIXED, 24),
        ("xapp-1-", MIXED, 40),
        ("sk_live_", MIXED, 24),
        ("rk_live_", MIXED, 24),
        ("whsec_", MIXED, 32),
        ("AC", HEX, 32),
        ("npm_", MIXED, 36),
        ("pypi-AgEI", MIXED, 120),
        ("rubygems_", HEX, 48),
        ("dckr_pat_", MIXED, 27),
        ("dop_v1_", HEX, 64),
        ("hf_", MIXED, 34),
        ("r8_", MIXED, 37),
        ("gsk_", MIXED, 52),
        ("dapi", HEX, 32),
        ("hvs.", MIXED, 95),
        ("shpat_", HEX, 32),
        ("NRAK-", CAPITALS, 27),
        ("sntryu_", HEX, 64),
        ("ntn_", MIXED, 46),
        ("lin_api_", MIXED, 40),
        ("figd_", MIXED, 40),
        ("pul-", HEX, 40),
        ("sbp_", HEX, 40),
        ("nfp_", MIXED, 36),
        ("ATATT3", MIXED, 180),
        ("AGE-SECRET-KEY-1", CAPITALS, 58),
        ("123456789:", MIXED, 35),
    ];
    let around = ["use @ now", "see `@`.", "{\"v\":\"@\"}", "export X=@", "the token\n@\nworks"];
    let mut all: Vec<(String, String)> = shapes
        .iter()
        .enumerate()
        .map(|(n, (prefix, alphabet, length))| {
            (format!("{prefix}{}", body(alphabet, *length, n)), around[n % around.len()].to_owned())
        })
        .collect();
    let dashes = "-----";
    let key = [body(MIXED, 64, 1), body(MIXED, 64, 2), body(MIXED, 40, 3)].join("\n");
    let in_words = [
        ("password = \"@\"", format!("Tr0ub4dor{}", body(MIXED, 6, 4))),
        ("login --password @ now", format!("hunter2{}", body(MIXED, 6, 5))),
        ("postgres://joe:@@db:5432/app", format!("c0rrect{}", body(MIXED, 6, 6))),
        ("Authorization: Bearer @", body(HEX, 32, 7)),
        ("aws_secret_access_key = @", body(MIXED, 40, 8)),
        ("https://example.com/?token=@&c=d", body(HEX, 32, 9)),
        (
            "the cookie is @ here",
            format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", body(MIXED, 30, 10), body(MIXED, 43, 11)),
        ),
        ("what is @ for?", body(MIXED, 40, 12)),
        (
            "K=@",
            format!(
                "{dashes}BEGIN RSA PRIVATE KEY{dashes}\n{key}\n{dashes}END RSA PRIVATE KEY{dashes}"
            ),
        ),
    ];
    all.extend(in_words.map(|(around, secret)| (secret, around.to_owned())));
    assert_eq!(all.len(), 50);
    all
}

/// The planted texts: sentences with a secret each, and the secrets in the fields around them.
struct Planted {
    sentences: Vec<String>,
    needles: Vec<String>,
    session: String,
    cwd: String,
}

fn planted() -> Planted {
    let secrets = secrets();
    let sentences = secrets.iter().enumerate().map(|(n, (secret, around))| {
        let (before, after) = around.split_once('@').unwrap();
        format!("periwinkle {n:02}: {before}{secret}{after}")
    });
    let places: Vec<String> =
        (100..102).map(|seed| format!("ghp_{}", body(MIXED, 36, seed))).collect();
    // Of a long secret any line is one.
    let mut needles: Vec<String> =
        secrets.iter().flat_map(|(secret, _)| secret.lines().map(str::to_owned)).collect();
    needles.retain(|needle| !needle.starts_with("-----"));
    needles.extend(places.iter().cloned());
    Planted {
        sentences: sentences.collect(),
        needles,
        session: format!("work-{}", places[0]),
        cwd: format!("/srv/{}/project", places[1]),
    }
}

fn records(planted: &Planted) -> Vec<Value> {
    let role = |n: usize| ["user", "assistant"][n % 2];
    let mut records: Vec<Value> = (0..planted.sentences.len())
        .map(|n| said("r", n, role(n), &planted.sentences[n]))
        .collect();
    for record in &mut records {
        record["sessionId"] = json!(planted.session);
        record["cwd"] = json!(planted.cwd);
    }
    records
}

/// Returns every file below a folder that has one of these texts, in UTF-8 or UTF-16, in its contents or name.
fn holding(folder: &Path, needles: &[String]) -> Vec<String> {
    let wide: Vec<String> =
        needles.iter().map(|needle| needle.chars().flat_map(|c| [c, '\0']).collect()).collect();
    let mut found = Vec::new();
    for path in files_below(folder) {
        let name = path.display().to_string();
        let bytes = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        for needle in needles.iter().chain(&wide) {
            if text.contains(needle.as_str()) || name.contains(needle.as_str()) {
                found.push(format!("{name}: {needle}"));
            }
        }
    }
    found
}

fn assert_free(what: &str, output: &Output, needles: &[String]) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    for needle in needles {
        assert!(!text.contains(needle), "{what} shows {needle}: {text}");
    }
}

/// Returns the original texts of all turns, unsealed and sorted.
pub fn unsealed(home: &TestHome) -> Vec<String> {
    let output = home.run(&["export", "--unseal", "--yes"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut texts: Vec<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_owned()
        })
        .collect();
    texts.sort();
    texts
}

/// Captures all planted texts in one way and searches every file for them, before and after the drain.
fn plant(way: &str, serving: bool) {
    let home = TestHome::new();
    let planted = planted();
    let at = |when: &str| {
        let found = holding(&home.hob_home(), &planted.needles);
        assert!(found.is_empty(), "{way}, serving: {serving}, {when}: {found:#?}");
    };
    let server = serving.then(|| home.serve());
    let name = format!("transcripts/{}.jsonl", planted.session);
    let path = transcript(&home, &name, &records(&planted));
    match way {
        "hook" => hook(
            &home,
            &json!({"session_id": planted.session, "transcript_path": path, "cwd": planted.cwd,
                "hook_event_name": "Stop", "last_assistant_message": planted.sentences[49]}),
        ),
        "hook without names" => {
            hook(&home, &json!({"transcript_path": path, "hook_event_name": "SessionEnd"}));
        }
        "no-spawn" => drop(capture(
            &home,
            &["--no-spawn", "--session-id", &planted.session, "--cwd", &planted.cwd],
            &path,
        )),
        "default" => drop(capture(&home, &[], &path)),
        "import" => {
            let output = home.run(&["import", path.to_str().unwrap()]);
            assert!(output.status.success(), "{output:?}");
        }
        _ => {
            let mut bridge = Bridge::new(&home, &home.user_home());
            for sentence in &planted.sentences {
                let note = json!({"text": sentence, "cue": sentence, "project": planted.cwd});
                bridge.call("memory_capture", note);
            }
        }
    }
    at("before the drain");
    let server = server.unwrap_or_else(|| home.serve());
    wait_for_drain(&home);
    at("after the drain");
    let mut bridge = Bridge::new(&home, &home.user_home());
    let all = json!({"cue": "periwinkle", "project": "*", "limit": 500, "budget_tokens": 99999});
    let found = bridge.tool("memory_recall", all).to_string();
    let turns = bridge.tool("memory_timeline", json!({"project": "*", "limit": 500})).to_string();
    for needle in &planted.needles {
        assert!(!found.contains(needle) && !turns.contains(needle), "{way}: {needle} is shown");
    }
    drop(bridge);
    let cwd = planted.cwd.as_str();
    let shows: [&[&str]; 6] = [
        &[
            "recall",
            "--json",
            "--project",
            "*",
            "--limit",
            "500",
            "--budget-tokens",
            "99999",
            "periwinkle",
        ],
        &["recall", "--project", "*", "periwinkle"],
        &["export"],
        &["session-start", "--cwd", cwd, "--budget-tokens", "99999"],
        &["doctor", "--json"],
        &["status", "--json"],
    ];
    for arguments in shows {
        assert_free(
            &format!("{way}: hob {}", arguments[0]),
            &home.run(arguments),
            &planted.needles,
        );
    }
    let one = home.run(&[
        "recall",
        "--json",
        "--unseal",
        "--yes",
        "--project",
        "*",
        "--limit",
        "1",
        "periwinkle 49",
    ]);
    assert_eq!(json_of(&one)["hits"][0]["text"], planted.sentences[49], "{way}: byte for byte");
    assert!(server.stop().success());
    assert_eq!(unsealed(&home), planted.sentences, "{way}, serving: {serving}: byte for byte");
    at("after the stop");
    let said = holding(&home.hob_home(), &["periwinkle".to_owned()]);
    assert!(said.is_empty(), "{way}, serving: {serving}: what was said is in {said:#?}");
}

#[test]
fn no_secret_of_a_hook_is_in_any_file() {
    plant("hook", false);
    plant("hook", true);
}

#[test]
fn no_secret_of_a_transcripts_own_names_is_in_any_file() {
    plant("hook without names", false);
    plant("hook without names", true);
}

#[test]
fn no_secret_of_a_captured_transcript_is_in_any_file() {
    plant("no-spawn", false);
    plant("default", false);
    plant("default", true);
}

#[test]
fn no_secret_of_an_import_or_a_tool_is_in_any_file() {
    plant("import", false);
    plant("import", true);
    plant("mcp", true);
}

/// Two sessions whose names differ in a secret alone are two sessions.
#[test]
fn session_names_that_differ_in_a_secret_are_not_merged() {
    let home = TestHome::new();
    for seed in 0..2 {
        let session = format!("ghp_{}", body(MIXED, 36, seed));
        let path = transcript(&home, &format!("{seed}.jsonl"), &[bare("user", "the same words")]);
        let answer = capture(&home, &["--session-id", &session], &path);
        assert_eq!(answer["inserted"], 1, "session {seed}: {answer}");
    }
    let rows = export(&home);
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0]["session_id"], rows[1]["session_id"]);
}

#[test]
fn ordinary_words_are_not_masked() {
    let home = TestHome::new();
    let hex = |length| body(HEX, length, 0);
    let texts = [
        format!("commit {} fixes it", hex(40)),
        format!("git show {}", &hex(40)[..12]),
        format!("checksum = \"{}\"", hex(64)),
        format!("image@sha256:{}", hex(64)),
        "the id is 6ba7b810-9dad-11d1-80b4-00c04fd430c8".to_owned(),
        "x86_64-unknown-linux-gnu-1.90.0-2025-09-14T00:00:00.000Z".to_owned(),
        "see /home/joe/projects/hob/crates/hob/tests/it/memory_secrets.rs:42:17".to_owned(),
        "serde_json v1.0.145 and tokio 1.47.1+spec-1.1.0".to_owned(),
        "password: String, token = next_token()".to_owned(),
    ];
    let records: Vec<Value> =
        texts.iter().enumerate().map(|(n, text)| said("s", n, "user", text)).collect();
    capture(&home, &[], &transcript(&home, "t.jsonl", &records));
    assert_eq!(exported_texts(&home), texts);
}
