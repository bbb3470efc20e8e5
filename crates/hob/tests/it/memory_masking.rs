//! Masking: every way into the memory masks alike.

use std::collections::BTreeSet;
use std::fs;

use hob_testkit::{SecretSample, TestHome, parse_secret_samples};
use serde_json::{Value, json};

use crate::api::{Api, api};
use crate::memory_setup::*;

const SECRETS: &str = include_str!("../../../memory/src/redact/samples/secrets.txt");
/// How many of the hundred samples must be masked.
const MIN_MASKED: usize = 92;

fn samples() -> Vec<SecretSample> {
    let samples = parse_secret_samples(SECRETS);
    assert_eq!(samples.len(), 100);
    samples
}

/// Asserts that no more samples than allowed have one of their secrets in a text.
fn assert_masked(way: &str, samples: &[SecretSample], text: &str) {
    let shown: Vec<&str> = samples
        .iter()
        .filter(|sample| sample.needles().any(|needle| text.contains(needle)))
        .map(|sample| sample.name.as_str())
        .collect();
    assert!(samples.len() - shown.len() >= MIN_MASKED, "{way} shows {shown:#?}");
}

/// Returns the texts in all deferral files.
fn deferred_texts(home: &TestHome) -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for path in deferrals(home) {
        for line in fs::read_to_string(path).unwrap().lines().skip(1) {
            let turn: Value = serde_json::from_str(line).unwrap();
            texts.insert(turn["text"].as_str().unwrap().to_owned());
        }
    }
    texts
}

/// Returns what the memory has of a transcript of all samples, captured while no server runs.
fn deferred_transcript(samples: &[SecretSample]) -> (TestHome, BTreeSet<String>) {
    let home = TestHome::new();
    let records: Vec<Value> =
        samples.iter().enumerate().map(|(n, sample)| said("s", n, "user", &sample.text)).collect();
    let path = transcript(&home, "t.jsonl", &records);
    capture(&home, &["--no-spawn"], &path);
    let texts = deferred_texts(&home);
    assert_eq!(texts.len(), samples.len());
    (home, texts)
}

#[test]
fn deferral_files_and_exports_show_masked_samples_alike() {
    let samples = samples();
    let (home, deferred) = deferred_transcript(&samples);
    let files: String =
        deferrals(&home).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_masked("a deferral file", &samples, &files);
    assert_masked("a deferral file", &samples, &deferred.iter().cloned().collect::<String>());
    let server = home.serve();
    wait_for_drain(&home);
    let exported: BTreeSet<String> = exported_texts(&home).into_iter().collect();
    assert_eq!(exported, deferred);
    assert!(server.stop().success());
}

#[test]
fn stop_hooks_mask_like_transcripts() {
    let samples = samples();
    let (_, expected) = deferred_transcript(&samples);
    let home = TestHome::new();
    for (n, sample) in samples.iter().enumerate() {
        hook(
            &home,
            &json!({"session_id": format!("s{n}"), "hook_event_name": "Stop",
                "last_assistant_message": sample.text}),
        );
    }
    assert_eq!(deferred_texts(&home), expected);
}

#[test]
fn memories_of_apps_mask_like_transcripts() {
    let samples = samples();
    let (_, expected) = deferred_transcript(&samples);
    let api: Api = api("");
    let token = api.home.app("notes");
    for sample in &samples {
        api.tool(&token, "memory_capture", json!({"text": sample.text, "cue": sample.text}));
    }
    let turns = api.tool(&token, "memory_timeline", json!({"project": "*", "limit": 500}));
    let shown: BTreeSet<String> = texts(turns["turns"].as_array().unwrap()).into_iter().collect();
    assert_eq!(shown, expected);
    assert_masked("an app's memory", &samples, &turns.to_string());
}
