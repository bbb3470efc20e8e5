//! What a permission request is about, as text for the user: the command, the file with the change, or the other input.

use serde_json::Value;

use super::tool_input::{self, FileChange};

/// The longest detail, in characters and in lines. The end of a longer one is counted, never left out silently.
const MAX_DETAIL_CHARS: usize = 4000;
const MAX_DETAIL_LINES: usize = 60;
/// The unchanged lines that are shown before and after a change.
const CONTEXT_LINES: usize = 2;

/// Returns what a tool call is about, if its title does not say all of it.
pub(super) fn permission_detail(title: &str, call: &Value) -> Option<String> {
    let input = &call["rawInput"];
    // A tool that edits files may have a field `command` that only names what it does.
    let detail = edits_of_content(&call["content"])
        .or_else(|| edits_of_input(input))
        .or_else(|| tool_input::main_argument(input))
        .or_else(|| other_input(input))
        .or_else(|| call["locations"][0]["path"].as_str().map(str::to_owned))?;
    let detail = detail.trim_end();
    let is_said = detail.is_empty() || is_part_of(detail, title);
    (!is_said).then(|| bounded(detail))
}

fn edits_of_content(content: &Value) -> Option<String> {
    let diffs = content.as_array()?.iter().filter(|item| item["type"] == "diff");
    let texts = diffs.map(|item| {
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        change(text("path"), text("oldText"), text("newText"))
    });
    joined(texts.collect())
}

fn edits_of_input(input: &Value) -> Option<String> {
    let changes = tool_input::changes(input).into_iter();
    let texts = changes.map(|FileChange { path, before, after }| change(path, before, after));
    joined(texts.collect())
        .or_else(|| tool_input::diff(input).map(|(path, diff)| format!("{path}\n{diff}")))
}

/// Returns a text of the arguments that have no form of their own.
fn other_input(input: &Value) -> Option<String> {
    let is_empty = input.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty).then(|| input.to_string())
}

fn joined(texts: Vec<String>) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Returns a change of a file: its path, and the lines that go (`-`) and come (`+`).
fn change(path: &str, before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.lines().collect(), after.lines().collect());
    let equal = |(a, b): &(&&str, &&str)| a == b;
    let start = before.iter().zip(&after).take_while(equal).count();
    let (rest_before, rest_after) = (&before[start..], &after[start..]);
    let end = rest_before.iter().rev().zip(rest_after.iter().rev()).take_while(equal).count();
    let mut lines = vec![path.to_owned()];
    let mut add = |mark: &str, texts: &[&str]| {
        lines.extend(texts.iter().map(|text| format!("{mark} {text}").trim_end().to_owned()));
    };
    add(" ", &before[start.saturating_sub(CONTEXT_LINES)..start]);
    add("-", &rest_before[..rest_before.len() - end]);
    add("+", &rest_after[..rest_after.len() - end]);
    let tail = &rest_before[rest_before.len() - end..];
    add(" ", &tail[..tail.len().min(CONTEXT_LINES)]);
    lines.join("\n")
}

/// Returns whether the words of a text follow each other in another one.
fn is_part_of(text: &str, other: &str) -> bool {
    let words = |text: &str| format!(" {} ", text.split_whitespace().collect::<Vec<_>>().join(" "));
    words(other).contains(&words(text))
}

fn bounded(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take(MAX_DETAIL_LINES).collect();
    let kept: String = lines.join("\n").chars().take(MAX_DETAIL_CHARS).collect();
    let left = text.chars().count() - kept.chars().count();
    match left {
        0 => kept,
        left => format!("{kept}\n… and {left} more characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(title: &str, call: Value, expect: Option<&str>) {
        assert_eq!(permission_detail(title, &call).as_deref(), expect, "{call}");
    }

    #[test]
    fn detail_is_the_command_the_change_or_the_input() {
        let input = |input: Value| json!({"rawInput": input});
        check("Bash", input(json!({"command": "rm -rf x\n"})), Some("rm -rf x"));
        check("run", input(json!({"command": ["bash", "-lc", "ls -l"]})), Some("ls -l"));
        check("Bash: rm -rf a && b", input(json!({"command": "rm -rf a &&\n b"})), None);
        let before = "a\nb\nc\nold\nd\ne\nf";
        let after = before.replace("old", "new\nnewer");
        let shown = "src/a.rs\n  b\n  c\n- old\n+ new\n+ newer\n  d\n  e";
        let diff = json!({"type": "diff", "path": "src/a.rs", "oldText": before, "newText": after});
        check("Edit src/a.rs", json!({"content": [diff], "rawInput": {"x": 1}}), Some(shown));
        let edit = json!({"file_path": "src/a.rs", "old_string": before, "new_string": after});
        check("Edit", input(edit), Some(shown));
        let write = json!({"file_path": "/a", "content": "one\n\ntwo\n"});
        check("Write: /a", input(write), Some("/a\n+ one\n+\n+ two"));
        let two = json!({"path": "/a", "edits": [{"oldText": "1", "newText": "2"},
            {"oldText": "3", "newText": "4"}]});
        check("edit", input(two), Some("/a\n- 1\n+ 2\n/a\n- 3\n+ 4"));
        check("fetch", input(json!({"url": "https://a.example"})), Some("https://a.example"));
        check("tool", input(json!({"limit": 3})), Some(r#"{"limit":3}"#));
        check("read", json!({"locations": [{"path": "/etc/passwd"}]}), Some("/etc/passwd"));
        check("ask", json!({"title": "ask"}), None);
    }

    #[test]
    fn long_detail_is_cut_and_says_so() {
        let long = |command: String| {
            permission_detail("Bash", &json!({"rawInput": {"command": command}})).unwrap()
        };
        let text = long("x".repeat(5000) + "rm");
        assert!(text.ends_with("… and 1002 more characters"), "{text}");
        let text = long("y\n".repeat(500));
        assert!(text.lines().count() == MAX_DETAIL_LINES + 1 && text.ends_with("more characters"));
    }
}
