//! Uploaded files: safe names, and how a prompt tells the agent where they are.

/// The longest name a file keeps.
const NAME_LIMIT: usize = 100;

/// What comes before the paths.
const HEAD: &str = "Files for this request:\n";

/// A name that is safe as the last part of a path: the last component of what the client said, with
/// everything outside `A-Z a-z 0-9 . _ -` replaced. Never empty, never hidden, never `..`.
pub fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = last.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    // The end matters more than the beginning: it says what kind of file it is.
    let name = &name[name.len().saturating_sub(NAME_LIMIT)..];
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "file".to_owned() } else { name.to_owned() }
}

/// The prompt with the paths of its files before it. It ends with the user's own text.
pub fn prompt_with_files(prompt: &str, paths: &[String]) -> String {
    if paths.is_empty() {
        return prompt.to_owned();
    }
    let list: String = paths.iter().map(|path| format!("- {path}\n")).collect();
    format!("{HEAD}{list}\n{prompt}")
}

/// The paths before a prompt.
pub fn files_of_prompt(prompt: &str) -> Vec<&str> {
    let lines = prompt.strip_prefix(HEAD).unwrap_or_default().lines();
    lines.map_while(|line| line.strip_prefix("- ")).collect()
}

/// The same prompt with other paths before it, as many as there are. One that only looks like that stays as it is.
pub fn with_other_files(prompt: &str, paths: &[String]) -> String {
    let named = files_of_prompt(prompt);
    let named: Vec<String> = named.into_iter().map(str::to_owned).collect();
    match prompt.strip_prefix(&prompt_with_files("", &named)) {
        Some(text) if !named.is_empty() && named.len() == paths.len() => {
            prompt_with_files(text, paths)
        }
        _ => prompt.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe() {
        let check = |name: &str, expect: &str| assert_eq!(safe_name(name), expect, "{name:?}");
        check("notes.txt", "notes.txt");
        check("../../etc/passwd", "passwd");
        check("C:\\temp\\a b.doc", "a_b.doc");
        check("..", "file");
        check(".ssh", "ssh");
        check("-rf", "rf");
        check("", "file");
        check("a/", "file");
        check("日本.md", "__.md");
        check("a\0b\nc", "a_b_c");
        let long = format!("{}.txt", "x".repeat(300));
        assert_eq!(safe_name(&long).len(), 100);
        assert!(safe_name(&long).ends_with(".txt"));
    }

    /// Seed 003.
    #[test]
    fn format_prompt_with_files() {
        assert_eq!(prompt_with_files("hello", &[]), "hello");
        let annotated = prompt_with_files("hello", &["/data/x.txt".into(), "/data/y.txt".into()]);
        assert!(annotated.contains("/data/x.txt") && annotated.contains("/data/y.txt"));
        assert!(annotated.ends_with("hello"));
        assert_eq!(files_of_prompt(&annotated), ["/data/x.txt", "/data/y.txt"]);
        assert!(files_of_prompt("hello").is_empty());
        let moved = with_other_files(&annotated, &["/a".into(), "/b".into()]);
        assert_eq!(moved, prompt_with_files("hello", &["/a".into(), "/b".into()]));
        for only_alike in
            ["- x", "- x\né", "- x\nhello", "- x\r\n\r\nhello", "", "\n", "- x\n- y\n\nz"]
        {
            let prompt = format!("{HEAD}{only_alike}");
            assert_eq!(with_other_files(&prompt, &["/a".into()]), prompt, "{only_alike:?}");
        }
    }
}
