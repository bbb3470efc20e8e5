//! A sentence model of the user's in addition to the built-in table: enabled, changed and disabled during
//! captures and recalls.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hob_testkit::{HobServer, TestHome, tiny_model, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::memory_setup::*;

fn serve(home: &TestHome, model: Option<&Path>) -> HobServer {
    home.serve_with(|command| {
        if let Some(model) = model {
            command.env("HOB_MEMORY_MODEL", model);
        }
    })
}

fn stats(home: &TestHome, folder: &Path) -> Value {
    Bridge::new(home, folder).call("memory_stats", json!({}))
}

/// Waits until every turn has a vector of the model, and returns the statistics.
fn wait_for_vectors(home: &TestHome, folder: &Path) -> Value {
    wait_until("all turns are embedded", || {
        let stats = stats(home, folder);
        (stats["model"]["state"] == "ready").then_some(stats)
    })
}

/// A session of some turns about one thing each.
fn session(home: &TestHome, number: usize) -> (PathBuf, Vec<String>) {
    let name = format!("019a0000-0000-7000-8000-{number:012}");
    let text = |turn: usize| {
        format!("the deploy of service number{number}x{turn} failed: its port was taken by login")
    };
    let texts: Vec<String> = (0..6).map(text).collect();
    let records: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| said(&name, n, ["user", "assistant"][n % 2], text))
        .collect();
    (transcript(home, &format!("{name}.jsonl"), &records), texts)
}

/// Returns a copy of the tiny model with another pooling, so that its vectors differ.
fn other_model(home: &TestHome) -> PathBuf {
    let copy = folder(home, "bge-other");
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(tiny_model().join(name), copy.join(name)).unwrap();
    }
    copy
}

#[test]
fn switching_models_under_load_loses_nothing() {
    let home = TestHome::new();
    let project = folder(&home, "project");
    let cwd = project.to_str().unwrap();
    let mut server = Some(serve(&home, None));
    let mut first = Vec::new();
    for number in 0..20 {
        let (path, texts) = session(&home, number);
        // A server that does not answer within a second counts as unreachable, so a slow machine defers.
        let said = capture(&home, &["--cwd", cwd], &path);
        match said["status"] == "deferred" {
            true => wait_for_drain(&home),
            false => assert_eq!(said["inserted"], 6, "{said}"),
        }
        first.extend(texts);
    }
    let (stop, asked, captured) =
        (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(20));
    // Odd while there is no server.
    let switches = AtomicUsize::new(0);
    let (tiny, other) = (tiny_model(), other_model(&home));
    std::thread::scope(|scope| {
        let ask = || {
            let mut bridge = Bridge::new(&home, &project);
            while !stop.load(Ordering::SeqCst) {
                let text = &first[asked.load(Ordering::SeqCst) % first.len()];
                let cue = text.split(' ').nth(4).unwrap();
                let before = switches.load(Ordering::SeqCst);
                let answer = bridge.tool("memory_recall", json!({"cue": cue, "limit": 5}));
                if answer["isError"] == true {
                    // There is no answer without a server; the request is repeated.
                    let now = switches.load(Ordering::SeqCst);
                    assert!(before % 2 == 1 || now != before, "{answer}");
                    continue;
                }
                let answer = &answer["structuredContent"];
                assert_eq!(answer["hits"][0]["text"], **text, "{cue}: {answer}");
                assert_eq!(answer["partial"], false);
                asked.fetch_add(1, Ordering::SeqCst);
            }
        };
        let come = || {
            while !stop.load(Ordering::SeqCst) {
                let (path, _) = session(&home, captured.load(Ordering::SeqCst));
                capture(&home, &["--cwd", cwd], &path);
                captured.fetch_add(1, Ordering::SeqCst);
            }
        };
        // Whatever goes wrong here, those two must come to an end.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _stop = Stop(&stop);
        scope.spawn(ask);
        scope.spawn(come);
        // To a model, killed in the middle, to another one, back to the table, and to the model again.
        let ways = [Some(&tiny), Some(&tiny), Some(&other), None, Some(&tiny)];
        for (round, model) in ways.into_iter().enumerate() {
            let (before, came) = (asked.load(Ordering::SeqCst), captured.load(Ordering::SeqCst));
            wait_until("recalls and captures continue", || {
                let enough = asked.load(Ordering::SeqCst) > before + 10
                    && captured.load(Ordering::SeqCst) > came + 1;
                enough.then_some(())
            });
            switches.fetch_add(1, Ordering::SeqCst);
            let old = server.take().unwrap();
            if round != 1 {
                old.signal(Signal::SIGTERM);
                let socket = home.hob_home().join("hob.sock");
                wait_until("the server has stopped", || (!socket.exists()).then_some(()));
            }
            old.kill();
            server = Some(serve(&home, model.map(PathBuf::as_path)));
            switches.fetch_add(1, Ordering::SeqCst);
        }
    });
    wait_for_drain(&home);
    let all = 6 * captured.load(Ordering::SeqCst);
    let told = wait_for_vectors(&home, &project);
    assert_eq!((&told["turns"], &told["model"]["embedded"]), (&json!(all), &json!(all)));
    assert_eq!(exported_texts(&home).len(), all);
    let mut bridge = Bridge::new(&home, &project);
    for number in 0..captured.load(Ordering::SeqCst) {
        let found = bridge.recalled(json!({"cue": format!("number{number}x3"), "limit": 5}));
        assert!(found[0].contains(&format!("number{number}x3 ")), "{number}: {found:?}");
    }
    drop(bridge);
    server.unwrap().stop();
}

#[test]
fn folder_without_a_model_is_reported_and_ignored() {
    let home = TestHome::new();
    let project = folder(&home, "project");
    let broken = folder(&home, "broken");
    std::fs::write(broken.join("config.json"), "{}").unwrap();
    let server = serve(&home, Some(&broken));
    let (path, texts) = session(&home, 1);
    assert_eq!(capture(&home, &["--cwd", project.to_str().unwrap()], &path)["inserted"], 6);
    let told = wait_until("the model is given up", || {
        let stats = stats(&home, &project);
        (stats["model"]["state"] == "failed").then_some(stats)
    });
    let health = told["health"].as_str().unwrap();
    assert!(health.contains("broken/config.json") && health.contains("built-in table"), "{health}");
    assert!(recall(&home, &project, &["number1x2"])["hits"][0]["text"] == texts[2]);
    let mut doctor = home.command(&["doctor", "--json"]);
    let checked = json_of(&doctor.env("HOB_MEMORY_MODEL", &broken).output().unwrap());
    let mut checks = checked["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["name"] == "model").expect("a check of the model");
    assert_eq!(check["verdict"], "warning");
    assert!(check["says"].as_str().unwrap().contains("broken/config.json"), "{check}");
    server.stop();
}

#[test]
fn progress_of_a_model_upgrade_is_shown() {
    let home = TestHome::new();
    let project = folder(&home, "project");
    let model = tiny_model();
    let server = serve(&home, Some(&model));
    let (path, _) = session(&home, 1);
    capture(&home, &["--cwd", project.to_str().unwrap()], &path);
    let told = wait_for_vectors(&home, &project);
    assert_eq!((&told["model"]["embedded"], &told["health"]), (&json!(6), &json!("ok")));
    for command in ["status", "doctor"] {
        let output = home.command(&[command]).env("HOB_MEMORY_MODEL", &model).output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        assert!(words.contains("tiny-model has embedded 6 of 6 turns"), "{command}: {words}");
    }
    server.stop();
}
