//! The input of a tool call, in which agents name equal things differently: the command, the file, the change.
//!
//! The console reads inputs by the lists of `console/src/events/detail.ts`, and a test below keeps them equal.

use serde_json::Value;

/// The names of these fields differ between agents. If an input has several, the first of a list counts.
const COMMANDS: &[&str] = &["command", "cmd"];
const PATHS: &[&str] =
    &["file_path", "filePath", "filepath", "notebook_path", "path", "abs_path", "absolute_path"];
const SUBJECTS: &[&str] = &["pattern", "url", "query"];
const BEFORE: &[&str] = &["old_string", "oldString", "old_str", "oldText"];
const AFTER: &[&str] = &["new_string", "newString", "new_str", "newText", "new_source"];
const WHOLE: &[&str] = &["content", "file_text"];

/// A change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileChange<'a> {
    pub path: &'a str,
    /// Empty for a new file.
    pub before: &'a str,
    pub after: &'a str,
}

/// Returns what a tool works on: its command, else its file, pattern or address.
pub fn main_argument(input: &Value) -> Option<String> {
    command(input).or_else(|| subject(input).map(str::to_owned))
}

/// Returns a command that is a text or a list of words.
pub(super) fn command(input: &Value) -> Option<String> {
    let command = COMMANDS.iter().map(|key| &input[*key]).find(|value| !value.is_null())?;
    if let Some(text) = command.as_str() {
        return Some(text.to_owned());
    }
    let words: Vec<&str> = command.as_array()?.iter().filter_map(Value::as_str).collect();
    match &words[..] {
        // A shell that runs one script.
        [shell, "-c" | "-lc", script] if shell.ends_with("sh") => Some((*script).to_owned()),
        words => Some(words.join(" ")),
    }
}

/// Returns the file, pattern or address that a tool works on.
pub(super) fn subject(input: &Value) -> Option<&str> {
    first(input, PATHS).or_else(|| first(input, SUBJECTS))
}

/// Returns the changes that a tool makes.
pub(super) fn changes(input: &Value) -> Vec<FileChange<'_>> {
    let Some(path) = first(input, PATHS) else { return Vec::new() };
    let replaced = |edit| {
        let before = first(edit, BEFORE).unwrap_or_default();
        first(edit, AFTER).map(|after| FileChange { path, before, after })
    };
    let many = input["edits"].as_array().into_iter().flatten().filter_map(replaced);
    let many: Vec<FileChange<'_>> = many.collect();
    if !many.is_empty() {
        return many;
    }
    let whole = || first(input, WHOLE).map(|after| FileChange { path, before: "", after });
    replaced(input).or_else(whole).into_iter().collect()
}

/// Returns the file and the text of a change that a tool has as a diff.
pub(super) fn diff(input: &Value) -> Option<(&str, &str)> {
    first(input, PATHS).zip(input["diff"].as_str())
}

fn first<'a>(input: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| input[*key].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Names that only one side knew made a question show a diff on the terminal and plain text in the console.
    #[test]
    fn console_knows_the_same_names_in_the_same_order() {
        let console = include_str!("../../../../console/src/events/detail.ts");
        let names = |list: &str| -> Vec<&str> {
            let (_, rest) = console.split_once(&format!("\nconst {list} = [")).expect(list);
            let (list, _) = rest.split_once("];").expect("the end of the list");
            list.split(',').map(|name| name.trim().trim_matches('\'')).collect()
        };
        for (list, expected) in [
            ("COMMANDS", COMMANDS),
            ("PATHS", PATHS),
            ("SUBJECTS", SUBJECTS),
            ("BEFORE", BEFORE),
            ("AFTER", AFTER),
            ("WHOLE", WHOLE),
        ] {
            assert_eq!(names(list), expected, "{list}");
        }
    }

    #[test]
    fn main_argument_is_the_command_the_file_or_the_subject() {
        let check = |input: Value, expect: Option<&str>| {
            assert_eq!(main_argument(&input).as_deref(), expect, "{input}");
        };
        check(json!({"cmd": ["bash", "-lc", "ls -l"], "path": "/a"}), Some("ls -l"));
        check(json!({"filepath": "/a", "query": "x"}), Some("/a"));
        check(json!({"query": "x"}), Some("x"));
        check(json!({"limit": 3}), None);
    }
}
