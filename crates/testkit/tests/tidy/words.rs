//! The language of public surfaces: help, settings, errors, logs, API descriptions, documents and the console.

use std::fs;
use std::path::PathBuf;

use crate::source::{SourceFile, production, root};

/// Words and turns of phrase that do not return. See "How we write" in CONTRIBUTING.md.
const RETIRED: &[&str] = &[
    "anew",
    "as what",
    "attends",
    "be said",
    "bell",
    "bells",
    "beside",
    "errand",
    "errands",
    "for so long",
    "heard of",
    "house",
    "is said to",
    "is told",
    "moving house",
    "none of ours",
    "of ours",
    "outfit",
    "outfits",
    "rarity",
    "rung",
    "second look",
    "so long",
    "so many",
    "such a one",
    "walls",
    "whoever",
    "wish",
    "wishes",
];

/// Returns every retired word on a public surface, with its place.
pub fn retired_words() -> Vec<String> {
    let mut found = Vec::new();
    for file in production() {
        for (line, text) in public_texts(&file) {
            report(&file.path, line, &text, &mut found);
        }
    }
    for path in documents() {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let is_code = !name.ends_with(".md");
        for (number, line) in text.lines().enumerate() {
            let line = if is_code { texts_of_script(line) } else { line.to_owned() };
            report(&name, number + 1, &line, &mut found);
        }
    }
    found
}

fn report(file: &str, line: usize, text: &str, found: &mut Vec<String>) {
    for word in RETIRED {
        if has_word(text, word) {
            let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            found.push(format!("{file}:{line}: \"{word}\" in: {text:.120}"));
        }
    }
}

/// Whether a text has this word or phrase, in any case, between word boundaries.
fn has_word(text: &str, word: &str) -> bool {
    let text = text.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !is_letter(before) && !is_letter(after)
    })
}

/// Returns the texts of a file that users may read: every text with a space in it that is not SQL, and the doc
/// comments from which help and API descriptions are made.
fn public_texts(file: &SourceFile) -> Vec<(usize, String)> {
    let is_sql = |text: &str| {
        let words =
            ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "CREATE ", "WHERE ", " FROM ", "ALTER "];
        words.iter().any(|word| text.contains(word))
    };
    let sentences = file.literals.iter().filter(|(_, text)| text.contains(' ') && !is_sql(text));
    let mut texts: Vec<(usize, String)> = sentences.cloned().collect();
    let describes =
        ["Args)]", "Args,", "Subcommand", "Parser", "ToSchema", "utoipa::path", "JsonSchema"];
    if describes.iter().any(|word| file.code.contains(word)) {
        texts.extend(file.docs.iter().cloned());
    }
    texts
}

/// Returns what is text in a line of TypeScript: a comment, quoted sentences, and what stands between tags.
fn texts_of_script(line: &str) -> String {
    let line = line.trim();
    if line.starts_with("//") || line.starts_with('*') || line.starts_with("/*") {
        return line.to_owned();
    }
    let mut texts = Vec::new();
    for quote in ['\'', '"', '`'] {
        texts.extend(line.split(quote).skip(1).step_by(2).filter(|text| text.contains(' ')));
    }
    texts.extend(line.split('>').skip(1).filter_map(|rest| rest.split('<').next()));
    if !line.contains(['=', ';', '(', '{', '<']) {
        texts.push(line);
    }
    texts.join(" | ")
}

/// Returns the documents and the console's sources.
fn documents() -> Vec<PathBuf> {
    let mut files = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs"), root().join("console/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if matches!(ending, "md" | "ts" | "tsx" | "html") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Returns every doc comment that begins with words which need the comment before it.
pub fn leaning_comments() -> Vec<String> {
    let mut found = Vec::new();
    for file in production() {
        for (line, text) in &file.docs {
            for start in ["The same", "The other way", "Whether it is so", "Likewise", "Ditto"] {
                if text.starts_with(start) {
                    found.push(format!("{}:{line}: {text:.100}", file.path));
                }
            }
        }
    }
    found
}

#[test]
fn words_are_found_between_boundaries_in_any_case() {
    assert!(has_word("Whoever types first", "whoever") && has_word("it is told.", "is told"));
    assert!(!has_word("households", "house") && !has_word("the_house_of", "house"));
}
