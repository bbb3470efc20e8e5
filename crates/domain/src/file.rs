//! Uploaded files: safe names, and how a prompt tells the agent the paths.

/// The length to which file names are cut.
const MAX_NAME_BYTES: usize = 100;

/// The line before the list of paths.
const HEAD: &str = "Files for this request:\n";

/// Returns a name that is safe as the last component of a path. It is the last component of the
/// client's name, with every character outside of `A-Z a-z 0-9 . _ -` replaced. It is never empty,
/// hidden or `..`.
pub fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = last.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    // The end is kept, because it tells the type of the file.
    let name = &name[name.len().saturating_sub(MAX_NAME_BYTES)..];
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "file".to_owned() } else { name.to_owned() }
}

/// Returns the prompt with the paths of its files before it. It ends with the user's text.
pub fn prompt_with_files(prompt: &str, paths: &[String]) -> String {
    if paths.is_empty() {
        return prompt.to_owned();
    }
    let list: String = paths.iter().map(|path| format!("- {path}\n")).collect();
    format!("{HEAD}{list}\n{prompt}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe() {
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
    }
}
