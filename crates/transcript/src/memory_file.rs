//! Memory files: notes that an agent writes for its own later sessions. What the user writes for an agent, such as
//! `CLAUDE.md`, is none.
//!
//! **Claude Code** (2.1) has a folder `projects/PROJECT/memory` with `MEMORY.md` and one file per topic, and a folder
//! `agent-memory/NAME` for each sub-agent that has a memory. **Qwen Code** has such a folder in `.qwen`. **Codex** (0.166) has a folder `memories` with `MEMORY.md`,
//! `memory_summary.md` and one file per session in `rollout_summaries`; its `raw_memories.md` is what these are made of.

use std::path::Path;

use crate::client::RecordedClient;

/// How many lines of a file may name its folder.
const MAX_HEADER_LINES: usize = 20;

/// Returns the client whose memory a file is, by the file's path.
pub fn memory_file_client(path: &Path) -> Option<RecordedClient> {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    let (name, folders) = names.split_last()?;
    if !name.ends_with(".md") {
        return None;
    }
    // Claude Code names the folder of a project by its path, with a dash for each slash.
    let is_project =
        |at: &[&str]| matches!(at, ["projects", project, "memory"] if project.starts_with('-'));
    let is_agent = |at: &[&str]| matches!(at, ["agent-memory" | "agent-memory-local", _]);
    if folders.contains(&".qwen") {
        return folders.windows(3).any(is_project).then_some(RecordedClient::Qwen);
    }
    if folders.windows(3).any(is_project) || folders.windows(2).next_back().is_some_and(is_agent) {
        return Some(RecordedClient::Claude);
    }
    let is_codex = match folders {
        [.., "memories"] => matches!(*name, "MEMORY.md" | "memory_summary.md"),
        [.., "memories", "rollout_summaries"] => true,
        _ => false,
    };
    is_codex.then_some(RecordedClient::Codex)
}

/// Returns the folder that the first lines of a memory file name. Codex writes it into summaries of sessions.
pub fn memory_file_folder(text: &str) -> Option<&str> {
    let folder = text.lines().take(MAX_HEADER_LINES).find_map(|line| line.strip_prefix("cwd:"))?;
    Some(folder.trim()).filter(|folder| folder.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_files_are_recognised_by_their_paths() {
        let check = |path: &str, expect: Option<RecordedClient>| {
            assert_eq!(memory_file_client(Path::new(path)), expect, "{path}");
        };
        let (claude, codex) = (Some(RecordedClient::Claude), Some(RecordedClient::Codex));
        check("/h/.claude/projects/-h-src/memory/MEMORY.md", claude);
        check("/h/.claude/projects/-h-src/memory/topics/api.md", claude);
        check("/h/.claude/agent-memory/reviewer/MEMORY.md", claude);
        check("/r/.claude/agent-memory-local/reviewer/notes.md", claude);
        check("/h/.qwen/projects/-h-src/memory/user.md", Some(RecordedClient::Qwen));
        check("/h/.codex/memories/MEMORY.md", codex);
        check("/h/.codex/memories/rollout_summaries/2026-02-11T15-35-19-jqmb-x.md", codex);
        for other in [
            "/h/.codex/memories/raw_memories.md",
            "/h/.codex/memories/skills/x/SKILL.md",
            "/h/.claude/CLAUDE.md",
            "/h/.claude/projects/-h-src/memory/notes.txt",
            "/h/src/projects/site/memory/README.md",
            "/h/.claude/agent-memory/README.md",
            "/h/.qwen/QWEN.md",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn header_names_the_folder() {
        let text = "thread_id: x\nupdated_at: y\ncwd: /home/me/src\n\n# Task\n";
        assert_eq!(memory_file_folder(text), Some("/home/me/src"));
        assert_eq!(memory_file_folder("# Task\ncwd: unknown\n"), None);
    }
}
