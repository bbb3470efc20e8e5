//! Reads the workspace's Rust files: which are production code, what is code in them, and what is text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of production code.
pub struct SourceFile {
    /// Relative to the workspace.
    pub path: String,
    /// The crate's folder, and the module's path inside the crate.
    pub krate: String,
    pub module: Vec<String>,
    /// The program without comments, texts and test modules. Every line is where it was.
    pub code: String,
    /// String literals outside test modules, with their lines.
    pub literals: Vec<(usize, String)>,
    /// Doc comments outside test modules, with the lines they begin on.
    pub docs: Vec<(usize, String)>,
    /// Modules that this file declares in files of their own.
    pub children: Vec<String>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Returns every file that is compiled into a library or a program, in all crates but the test kit.
pub fn production() -> Vec<SourceFile> {
    let mut crates: Vec<PathBuf> =
        fs::read_dir(root().join("crates")).expect("crates").flatten().map(|e| e.path()).collect();
    crates.sort();
    let mut files = Vec::new();
    for krate in crates.iter().filter(|krate| !krate.ends_with("testkit")) {
        for top in ["src/lib.rs", "src/main.rs"] {
            if krate.join(top).exists() {
                read_module(krate, &krate.join(top), Vec::new(), &mut files);
            }
        }
    }
    files
}

fn read_module(krate: &Path, path: &Path, module: Vec<String>, files: &mut Vec<SourceFile>) {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lexed = lex(&text);
    let hidden = hide_tests(&mut lexed.code);
    let visible = |line: &usize| !hidden.iter().any(|(from, to)| (from..=to).contains(&line));
    lexed.literals.retain(|(line, _)| visible(line));
    lexed.docs.retain(|(line, _)| visible(line));
    let is_face = path.ends_with("mod.rs") || path.ends_with("lib.rs") || path.ends_with("main.rs");
    let folder = match is_face {
        true => path.parent().expect("a folder").to_owned(),
        false => path.with_extension(""),
    };
    let children = declared_modules(&lexed.code);
    let name = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
    files.push(SourceFile {
        path: name(path),
        krate: name(krate),
        module: module.clone(),
        code: lexed.code,
        literals: lexed.literals,
        docs: lexed.docs,
        children: children.clone(),
    });
    for child in children {
        let files_of = [folder.join(format!("{child}.rs")), folder.join(&child).join("mod.rs")];
        if let Some(file) = files_of.iter().find(|file| file.exists()) {
            let mut module = module.clone();
            module.push(child);
            read_module(krate, file, module, files);
        }
    }
}

/// Returns the modules that are declared as `mod name;`.
fn declared_modules(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let line = line.strip_prefix("pub(super) ").unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let name = line.strip_prefix("mod ").and_then(|rest| rest.trim_end().strip_suffix(';'));
        found.extend(name.map(str::to_owned));
    }
    found
}

struct Lexed {
    code: String,
    literals: Vec<(usize, String)>,
    docs: Vec<(usize, String)>,
}

/// Blanks comments and texts, and collects them.
fn lex(text: &str) -> Lexed {
    let chars: Vec<char> = text.chars().collect();
    let mut lexed = Lexed { code: String::new(), literals: Vec::new(), docs: Vec::new() };
    let (mut at, mut line) = (0, 1);
    let mut last_doc_line = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let end = token_end(rest, lexed.code.chars().next_back());
        let token: String = rest[..end].iter().collect();
        if token.starts_with("//") || token.starts_with("/*") {
            let doc = token.strip_prefix("///").or_else(|| token.strip_prefix("//!"));
            if let Some(doc) = doc.filter(|doc| !doc.starts_with('/')) {
                match lexed.docs.last_mut().filter(|_| last_doc_line + 1 == line) {
                    Some((_, text)) => *text += &format!(" {}", doc.trim()),
                    None => lexed.docs.push((line, doc.trim().to_owned())),
                }
                last_doc_line = line;
            }
            blank(&token, &mut lexed.code);
        } else if end > 1 && token.ends_with(['"', '#']) {
            lexed.literals.push((line, literal(&token)));
            blank(&token, &mut lexed.code);
        } else if end > 1 && token.ends_with('\'') {
            blank(&token, &mut lexed.code);
        } else {
            lexed.code.push_str(&token);
        }
        line += token.matches('\n').count();
        at += end;
    }
    lexed
}

/// Returns how many characters the comment, text or character at the start has; 1 for any other character.
fn token_end(rest: &[char], before: Option<char>) -> usize {
    let starts = |text: &str| text.chars().enumerate().all(|(n, c)| rest.get(n) == Some(&c));
    let until = |from: usize, stop: &str| {
        let stop: Vec<char> = stop.chars().collect();
        (from..rest.len())
            .find(|at| rest[*at..].starts_with(&stop))
            .map_or(rest.len(), |at| at + stop.len())
    };
    if starts("//") {
        return rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
    }
    if starts("/*") {
        return until(2, "*/");
    }
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_word && (starts("r\"") || starts("r#") || starts("br\"") || starts("br#")) {
        let from = rest.iter().position(|c| *c == 'r').unwrap_or_default() + 1;
        let hashes = rest[from..].iter().take_while(|c| **c == '#').count();
        if rest.get(from + hashes) == Some(&'"') {
            return until(from + hashes + 1, &format!("\"{}", "#".repeat(hashes)));
        }
        return 1;
    }
    if rest[0] == '"' {
        let mut at = 1;
        while at < rest.len() && rest[at] != '"' {
            at += if rest[at] == '\\' { 2 } else { 1 };
        }
        return (at + 1).min(rest.len());
    }
    if rest[0] == '\'' {
        // A character, not a lifetime.
        if rest.get(1) == Some(&'\\') {
            return rest.iter().skip(3).position(|c| *c == '\'').map_or(1, |at| at + 4);
        }
        if rest.get(2) == Some(&'\'') {
            return 3;
        }
    }
    1
}

fn literal(token: &str) -> String {
    let text = token.trim_start_matches(['b', 'r']).trim_matches('#');
    let text = text.strip_prefix('"').unwrap_or(text);
    let text = text.strip_suffix('"').unwrap_or(text);
    // A backslash at the end of a line joins it with the next one.
    let lines: Vec<&str> = text.split("\\\n").collect();
    lines.iter().enumerate().map(|(n, l)| if n == 0 { *l } else { l.trim_start() }).collect()
}

fn blank(token: &str, code: &mut String) {
    code.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
}

/// Blanks every item under `#[cfg(test)]`, and returns the lines they had.
fn hide_tests(code: &mut String) -> Vec<(usize, usize)> {
    let mut hidden = Vec::new();
    while let Some(start) = code.find("#[cfg(test)]") {
        let mut end = code.len();
        let mut depth = 0;
        for (at, c) in code[start..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 1 => {
                    end = start + at + 1;
                    break;
                }
                '}' => depth -= 1,
                ';' if depth == 0 => {
                    end = start + at + 1;
                    break;
                }
                _ => {}
            }
        }
        let line = |at: usize| code[..at].matches('\n').count() + 1;
        hidden.push((line(start), line(end)));
        let mut blanked = String::new();
        blank(&code[start..end], &mut blanked);
        // Blanks may be shorter in bytes than what they replace; lines stay.
        code.replace_range(start..end, &blanked);
    }
    hidden
}

/// Returns all types that production code defines, by name, with their places.
pub fn types(files: &[SourceFile]) -> BTreeMap<String, Vec<String>> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        for (number, line) in file.code.lines().enumerate() {
            let indented = line.starts_with(' ');
            let mut words = line.split_whitespace().peekable();
            words.next_if(|word| word.starts_with("pub"));
            let kind = words.next().unwrap_or_default();
            let defines = matches!(kind, "struct" | "enum" | "trait" | "union")
                // Indented ones are associated types.
                || (kind == "type" && !indented);
            let name = words.next().unwrap_or_default();
            let name: String =
                name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if defines && !name.is_empty() {
                types.entry(name).or_default().push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    types
}

#[test]
fn lexer_keeps_code_and_collects_texts() {
    let text = "/// Doc\n/// goes on.\nfn f<'a>() { g(\"a // b\", '\"', r#\"c \" d\"#); } // end\n";
    let lexed = lex(text);
    assert_eq!(lexed.docs, [(1, "Doc goes on.".to_owned())]);
    assert_eq!(lexed.literals, [(3, "a // b".to_owned()), (3, "c \" d".to_owned())]);
    assert_eq!(lexed.code.lines().nth(2).unwrap().replace(' ', ""), "fnf<'a>(){g(,,);}");
}

#[test]
fn test_modules_are_hidden() {
    let mut code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n".to_owned();
    assert_eq!(hide_tests(&mut code), [(2, 5)]);
    assert!(code.contains("fn a") && !code.contains("fn b") && code.contains("fn c"));
}
