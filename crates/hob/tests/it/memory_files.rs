//! Memory files of Claude Code and Codex: notes that agents wrote for their own later sessions.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hob_testkit::{TestHome, proved_with_samples};
use serde_json::{Value, json};

use crate::memory_setup::*;

/// Writes a file. Its modification time is a fixed moment plus `seconds`, so that tests can order files.
fn write(home: &TestHome, name: &str, text: &str, seconds: u64) -> PathBuf {
    let path = home.user_home().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + seconds);
    File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
    path
}

fn import(home: &TestHome) -> (u64, u64) {
    let answer = json_of(&home.run(&["import", "--json"]));
    assert_eq!(answer["errors"], 0, "{answer}");
    let count = |key: &str| answer[key].as_u64().unwrap();
    (count("inserted"), count("duplicates"))
}

fn hits(home: &TestHome, folder: &Path, query: &[&str]) -> Vec<Value> {
    recall(home, folder, query)["hits"].as_array().unwrap().clone()
}

const CLAUDE: &str = ".claude/projects/-src-herons/memory/MEMORY.md";

#[test]
fn memory_files_are_imported_as_notes_once_and_a_changed_file_supersedes() {
    let home = TestHome::new();
    let (herons, cranes) = (folder(&home, "herons"), folder(&home, "cranes"));
    // The sessions of a project say which folder its memory is about.
    let mut record = said("s1", 0, "user", "look at the nests");
    record["cwd"] = json!(herons);
    transcript(&home, ".claude/projects/-src-herons/s1.jsonl", &[record]);
    let first = "# Memory\n- The heron census runs every Tuesday.\n";
    write(&home, CLAUDE, first, 0);
    let topic = "Heron rings are ordered from the Rotterdam supplier.";
    write(&home, ".claude/projects/-src-herons/memory/rings.md", topic, 0);
    write(&home, ".claude/agent-memory/reviewer/MEMORY.md", "The reviewer prefers short names.", 0);
    let rollout =
        format!("thread_id: t1\ncwd: {}\n\nThe crane winch needs grease.\n", cranes.display());
    write(&home, ".codex/memories/rollout_summaries/2026-02-11-winch.md", &rollout, 0);
    write(&home, ".codex/memories/memory_summary.md", "The user likes terse answers.", 0);
    // Neither what these are made of nor what the user writes for an agent is a memory.
    write(&home, ".codex/memories/raw_memories.md", "raw heron", 0);
    write(&home, ".claude/CLAUDE.md", "instructions about herons", 0);

    assert_eq!(import(&home), (6, 0));
    let notes: Vec<Value> =
        export(&home).into_iter().filter(|turn| turn["tier"] == "semantic").collect();
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert!(notes.iter().all(|note| note["source"] == "import"), "{notes:?}");
    let found = hits(&home, &herons, &["heron census"]);
    assert_eq!(found[0]["text"], first.trim(), "{found:?}");
    assert_eq!(found[0]["origin"], "import");
    let found = hits(&home, &cranes, &["crane winch grease"]);
    assert!(found[0]["text"].as_str().unwrap().contains("winch"), "{found:?}");
    let found = hits(&home, &cranes, &["--project", "*", "terse answers"]);
    assert!(found[0]["text"].as_str().unwrap().contains("terse"), "{found:?}");

    // Once is enough, also for a file that looks new.
    assert_eq!(import(&home), (0, 0));
    write(&home, CLAUDE, first, 5);
    assert_eq!(import(&home), (0, 1));

    // A new text supersedes the one before, and so does an old text that comes back.
    let second = "# Memory\n- The heron census runs every Friday.\n";
    for (seconds, text) in [(10, second), (20, first), (30, second)] {
        write(&home, CLAUDE, text, seconds);
        assert_eq!(import(&home), (1, 0), "{text}");
        let stats = json_of(&home.run(&["stats", "--json"]));
        assert_eq!(stats["superseded"], seconds / 10, "{stats}");
        let found = hits(&home, &herons, &["when does the heron census run"]);
        assert_eq!(found[0]["text"], text.trim(), "{found:?}");
    }

    // A session starts with the newest version, among what agents wrote.
    let started = home.command(&["session-start", "--cwd"]).arg(&herons).output().unwrap();
    let started = String::from_utf8(started.stdout).unwrap();
    let (_, of_agents) = started.split_once("## Notes that agents wrote").expect(&started);
    assert!(of_agents.contains("every Friday"), "{started}");
    assert!(!started.contains("every Tuesday"), "{started}");

    // What was forgotten does not come back.
    let id = hits(&home, &herons, &["Rotterdam"])[0]["record_id"].as_str().unwrap().to_owned();
    assert!(home.run(&["forget", "--yes", &id]).status.success());
    write(&home, ".claude/projects/-src-herons/memory/rings.md", topic, 40);
    assert_eq!(import(&home), (0, 1));
    assert!(exported_texts(&home).iter().all(|text| !text.contains("Rotterdam")));
    proved_with_samples("claude", &["memory-files"]);
    proved_with_samples("codex", &["memory-files"]);
}
