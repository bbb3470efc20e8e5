//! Files and inputs on the owner's machine that Hob did not write, or not alone.

use hob::{HookInput, SettingsError, check_file, hooks_for, json_edit};
use hob_domain::DataKey;
use hob_domain::memory::TurnSource;
use hob_memory::deferral::{decode, encode};
use hob_memory::redact::find;
use hob_memory::{OpeningKey, OpeningKeys};
use hob_transcript::AgentClient;
use serde_json::Value;

/// Reads a `config.toml`.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match check_file(text) {
        Err(SettingsError::NoHome) => panic!("set HOME"),
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(()) => {}
    }
}

/// Reads the JSON that a client passes to a hook.
pub fn hook_input(bytes: &[u8]) {
    let Some(input) = HookInput::parse(bytes) else { return };
    let followed = [bytes, b" {} and more"].concat();
    let again = HookInput::parse(&followed[..]);
    assert_eq!(format!("{:?}", Some(input)), format!("{again:?}"), "what follows is not read");
}

/// Edits the settings of an agent: installs Hob's hooks and removes them.
pub fn hook_settings(bytes: &[u8]) {
    let Ok(before) = std::str::from_utf8(bytes) else { return };
    let specs = hooks_for(AgentClient::Claude);
    let Ok(entries) = json_edit::survey(Some(before)) else { return };
    let Ok(after) = json_edit::install(Some(before), &specs, "/opt/hob") else { return };
    let again = json_edit::install(Some(&after), &specs, "/opt/hob").expect("hooks are there");
    assert_eq!(again, after, "installing twice changes nothing");
    let found = json_edit::survey(Some(&after)).expect("the edited file is valid");
    for spec in &specs {
        assert!(found.iter().any(|entry| json_edit::matches(entry, spec)), "{after}");
    }
    let restored = json_edit::uninstall(Some(&after)).expect("hooks can be removed");
    if entries.is_empty() {
        assert_eq!(restored.as_deref(), Some(before), "the file is as it was");
    }
}

/// Reads a deferral file, and writes it again.
pub fn deferral(bytes: &[u8]) {
    let keys = OpeningKeys::from(OpeningKey::of(&DataKey::from_bytes([3; 32])));
    let Ok(read) = decode(bytes, "session-1700000000.jsonl", &keys) else { return };
    assert_eq!(read.batch.source, TurnSource::Deferral);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(read.batch.turns.len() + read.bad_lines.len() <= lines);
    assert!(read.bad_lines.iter().all(|line| (1..=lines).contains(line)));
    let write = |read: &hob_memory::deferral::DeferralFile| {
        encode(&read.batch, "/work", &keys.sealing_key(), "2026-01-02T03:04:05Z".parse().unwrap())
            .expect("a batch can be written")
    };
    let written = write(&read);
    check_masked(&written);
    let again = decode(&written, "other.jsonl", &keys).expect("a written file can be read");
    assert!(again.bad_lines.is_empty());
    let texts = |read: &hob_memory::deferral::DeferralFile| -> Vec<String> {
        read.batch.turns.iter().map(|turn| turn.text.clone()).collect()
    };
    assert_eq!(texts(&again), texts(&read), "texts are restored");
    let third = decode(&write(&again), "other.jsonl", &keys).expect("a third time");
    assert_eq!(third, again, "a file that Hob wrote is read back exactly");
}

/// Hob never writes a secret that it recognises in clear.
fn check_masked(written: &[u8]) {
    for line in written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).expect("a line is JSON");
        for field in ["text", "cue", "work", "cwd", "session_id"] {
            let text = line[field].as_str().unwrap_or_default();
            assert_eq!(find(text), [], "{field}: {text:?}");
        }
    }
}
