//! Circles of files and folders inside a crate.
//!
//! File A depends on file B when A names something that B defines: by `use`, by a path in code, or by declaring B
//! as its module. A name that a `mod.rs` re-exports leads to the file that defines it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source::{SourceFile, production};

type Module = Vec<String>;

/// What a file names, with the line.
struct Reference {
    line: usize,
    path: Vec<String>,
}

/// One crate: its modules and what each brings into scope.
struct Tree<'a> {
    files: BTreeMap<Module, &'a SourceFile>,
    /// By module: names that a `use` brings into scope, with their paths; `*` for all of a module.
    imports: BTreeMap<Module, Vec<(String, Vec<String>)>>,
}

/// From a file to another one, with the line that needs it.
type Edges = BTreeMap<String, BTreeMap<String, usize>>;

/// Returns every circle of files, as a path with lines.
pub fn circles_of_files() -> Vec<String> {
    let files = production();
    let mut found = Vec::new();
    for edges in graphs(&files) {
        found.extend(circles(&edges));
    }
    found
}

/// Returns every circle in which a folder takes part, as a path with lines.
pub fn circles_of_folders() -> Vec<String> {
    let files = production();
    let mut found = Vec::new();
    for edges in graphs(&files) {
        let mut folders: BTreeSet<String> = BTreeSet::new();
        for file in edges.keys() {
            let parts: Vec<&str> = file.split('/').collect();
            folders.extend((3..parts.len()).map(|count| parts[..count].join("/")));
        }
        for folder in folders {
            // What lies directly in this folder: files, and folders as a whole.
            let unit = |file: &str| -> Option<String> {
                let below = file.strip_prefix(&format!("{folder}/"))?;
                let is_face = matches!(below, "mod.rs" | "lib.rs" | "main.rs");
                let name = below.split('/').next().unwrap_or(below);
                (!is_face).then(|| name.trim_end_matches(".rs").to_owned())
            };
            let mut units: Edges = BTreeMap::new();
            let mut examples: BTreeMap<(String, String), String> = BTreeMap::new();
            for (from, targets) in &edges {
                for (to, line) in targets {
                    let (Some(one), Some(other)) = (unit(from), unit(to)) else { continue };
                    if one != other {
                        let example = format!("{from}:{line} → {to}");
                        examples.entry((one.clone(), other.clone())).or_insert(example);
                        units.entry(one).or_default().insert(other, *line);
                    }
                }
            }
            for circle in shortest_circles(&units) {
                let has_folder = |unit: &String| {
                    let prefix = format!("{folder}/{unit}/");
                    edges.keys().any(|file| file.starts_with(&prefix))
                };
                if circle.iter().any(has_folder) {
                    let steps = circle.iter().zip(circle.iter().cycle().skip(1));
                    let lines: Vec<&str> =
                        steps.map(|(a, b)| examples[&(a.clone(), b.clone())].as_str()).collect();
                    found.push(format!("{folder}: {} ({})", closed(&circle), lines.join("; ")));
                }
            }
        }
    }
    found
}

/// Returns the dependencies between the files of each crate.
fn graphs(files: &[SourceFile]) -> Vec<Edges> {
    let mut crates: BTreeMap<(&str, bool), Vec<&SourceFile>> = BTreeMap::new();
    for file in files {
        let is_program = is_of_program(file, files);
        crates.entry((&file.krate, is_program)).or_default().push(file);
    }
    crates.values().map(|files| graph(files)).collect()
}

/// A crate may have a library and a program, each with a module tree.
fn is_of_program(file: &SourceFile, files: &[SourceFile]) -> bool {
    let main = format!("{}/src/main.rs", file.krate);
    let lib = format!("{}/src/lib.rs", file.krate);
    if !files.iter().any(|other| other.path == lib) {
        return true;
    }
    let first = file.module.first();
    let declares = |top: &str| {
        let top = files.iter().find(|other| other.path == top);
        top.is_some_and(|top| first.is_some_and(|first| top.children.contains(first)))
    };
    file.path == main || (declares(&main) && !declares(&lib))
}

fn graph(files: &[&SourceFile]) -> Edges {
    let mut tree = Tree { files: BTreeMap::new(), imports: BTreeMap::new() };
    for file in files {
        tree.files.insert(file.module.clone(), file);
        let imports = uses(&file.code).into_iter().map(|(name, reference)| (name, reference.path));
        tree.imports.insert(file.module.clone(), imports.collect());
    }
    let mut edges: Edges = BTreeMap::new();
    for file in files {
        let targets = edges.entry(file.path.clone()).or_default();
        let mut add = |target: &Module, line: usize| {
            if let Some(target) = tree.files.get(target).filter(|target| target.path != file.path) {
                targets.entry(target.path.clone()).or_insert(line);
            }
        };
        let used = uses(&file.code).into_iter().map(|(_, reference)| reference);
        let inline = inline_modules(&file.code);
        for mut reference in used.chain(paths(&file.code)) {
            // In an inline module, `super` is this file.
            let is_inline = inline.iter().any(|lines| lines.contains(&reference.line));
            if is_inline && reference.path.first().is_some_and(|first| first == "super") {
                reference.path[0] = "self".to_owned();
            }
            if let Some(target) = tree.resolve(&file.module, &reference.path, 0) {
                add(&target, reference.line);
            }
        }
        for child in &file.children {
            let mut module = file.module.clone();
            module.push(child.clone());
            let line = file.code.lines().position(|line| line.contains(&format!("mod {child};")));
            add(&module, line.unwrap_or_default() + 1);
        }
    }
    edges
}

impl Tree<'_> {
    /// Returns the module whose file defines what a path names; `None` outside the crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            name if self.has(from, name) => {
                let mut module = from.clone();
                module.push(name.to_owned());
                module
            }
            _ => return None,
        };
        for (at, name) in rest.iter().enumerate() {
            if name == "super" {
                module.pop();
            } else if self.has(&module, name) {
                module.push(name.clone());
            } else {
                return self.definition(&module, name, &rest[at + 1..], depth).or(Some(module));
            }
        }
        Some(module)
    }

    fn has(&self, module: &Module, child: &str) -> bool {
        let mut path = module.clone();
        path.push(child.to_owned());
        self.files.contains_key(&path)
    }

    /// Follows a name that a module imports or re-exports.
    fn definition(
        &self,
        module: &Module,
        name: &str,
        rest: &[String],
        depth: usize,
    ) -> Option<Module> {
        if depth > 8 || self.files.get(module).is_some_and(|file| defines(&file.code, name)) {
            return None;
        }
        let imports = self.imports.get(module)?;
        let follow = |path: &[String]| {
            let mut path = path.to_vec();
            path.extend(rest.iter().cloned());
            self.resolve(module, &path, depth + 1)
        };
        let exact = imports.iter().find(|(known, _)| known == name);
        if let Some((_, path)) = exact {
            return follow(path);
        }
        imports.iter().filter(|(known, _)| known == "*").find_map(|(_, path)| {
            let mut path = path.clone();
            path.push(name.to_owned());
            let target = self.resolve(module, &path, depth + 1)?;
            self.files.get(&target).is_some_and(|file| defines(&file.code, name)).then_some(target)
        })
    }
}

/// Whether a file defines an item of this name.
fn defines(code: &str, name: &str) -> bool {
    let kinds = ["struct", "enum", "trait", "type", "const", "static", "fn", "union", "mod"];
    code.lines().any(|line| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| word.starts_with("pub") || matches!(*word, "async" | "unsafe"));
        let Some(kind) = words.next().filter(|kind| kinds.contains(kind)) else {
            return line.trim_start().starts_with(&format!("macro_rules! {name}"));
        };
        let mut word = words.next().unwrap_or_default();
        if kind == "const" && word == "fn" {
            word = words.next().unwrap_or_default();
        }
        let word: String = word.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        word == name
    })
}

/// Returns what every `use` brings into scope: the name, and where it comes from.
fn uses(code: &str) -> Vec<(String, Reference)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = code[at..].find("use ").map(|start| at + start) {
        at = start + 4;
        let before = code[..start].trim_end_matches([' ', '\n']);
        let starts_item = code[..start].ends_with(['\n', ' ', ')']) || start == 0;
        let line_start = code[..start].rfind('\n').map_or(0, |n| n + 1);
        let lead = code[line_start..start].trim();
        let is_use = lead.is_empty() || lead == "pub" || lead.starts_with("pub(");
        if !starts_item || !is_use || before.ends_with("+ ") {
            continue;
        }
        let Some(end) = code[at..].find(';').map(|end| at + end) else { break };
        let line = code[..start].matches('\n').count() + 1;
        let mut names = Vec::new();
        expand(&code[at..end], &[], &mut names);
        found.extend(names.into_iter().map(|(name, path)| (name, Reference { line, path })));
        at = end;
    }
    found
}

/// Expands `a::{b, c::{d as e, *}}`.
fn expand(text: &str, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    if let Some(open) = text.find('{') {
        let mut path = before.to_vec();
        path.extend(segments(&text[..open]));
        let inner = text[open + 1..].trim_end().strip_suffix('}').unwrap_or(&text[open + 1..]);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&inner[start..at], &path, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        expand(&inner[start..], &path, found);
        return;
    }
    let (text, alias) = match text.split_once(" as ") {
        Some((text, alias)) => (text, Some(alias.trim().to_owned())),
        None => (text, None),
    };
    let mut path = before.to_vec();
    path.extend(segments(text));
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let Some(last) = path.last().cloned() else { return };
    if last == "*" {
        path.pop();
    }
    found.push((alias.unwrap_or(last), path));
}

fn segments(text: &str) -> impl Iterator<Item = String> {
    text.split("::").map(|part| part.trim().to_owned()).filter(|part| !part.is_empty())
}

/// Returns the lines of every `mod name { … }`.
fn inline_modules(code: &str) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut found = Vec::new();
    let mut start: Option<(usize, String)> = None;
    for (number, line) in code.lines().enumerate() {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_module = words.last() == Some(&"{") && words[..words.len() - 1].contains(&"mod");
        match &start {
            None if is_module => start = Some((number + 1, indent)),
            // The formatter puts the closing brace below the `mod`.
            Some((first, outer)) if line.trim_end() == format!("{outer}}}") => {
                found.push(*first..=number + 1);
                start = None;
            }
            _ => {}
        }
    }
    found
}

/// Returns the paths in code that begin with `crate::`, `super::` or a lower-case name.
fn paths(code: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        if line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ") {
            continue;
        }
        // A visibility such as `pub(in crate::store)` is no dependency.
        let line = match line.split_once("pub(in ").and_then(|(_, rest)| rest.split_once(')')) {
            Some((_, rest)) => rest,
            None => line,
        };
        let bytes = line.as_bytes();
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let mut at = 0;
        while at < bytes.len() {
            let starts = is_word(bytes[at]) && (at == 0 || !is_word(bytes[at - 1]));
            let continues = at >= 2 && &line[at - 2..at] == "::";
            if !starts || continues || !line.is_char_boundary(at) {
                at += 1;
                continue;
            }
            let mut end = at;
            while end < bytes.len()
                && (is_word(bytes[end])
                    || (bytes[end] == b':' && bytes.get(end + 1) == Some(&b':'))
                    || (bytes[end] == b':' && end > 0 && bytes[end - 1] == b':'))
            {
                end += 1;
            }
            let path: Vec<String> = segments(&line[at..end]).collect();
            if path.len() > 1 && path[0].starts_with(|c: char| c.is_lowercase()) {
                found.push(Reference { line: number + 1, path });
            }
            at = end.max(at + 1);
        }
    }
    found
}

fn circles(edges: &Edges) -> Vec<String> {
    let mut found = Vec::new();
    for circle in shortest_circles(edges) {
        let steps = circle.iter().zip(circle.iter().cycle().skip(1));
        let lines: Vec<String> =
            steps.map(|(from, to)| format!("{from}:{} → {to}", edges[from][to])).collect();
        found.push(lines.join("; "));
    }
    found
}

fn closed(circle: &[String]) -> String {
    format!("{} → {}", circle.join(" → "), circle[0])
}

/// Returns one shortest circle of every group of nodes that all reach each other.
fn shortest_circles(edges: &Edges) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut next = vec![start];
            while let Some(node) = next.pop() {
                for target in edges.get(node).into_iter().flat_map(BTreeMap::keys) {
                    if seen.insert(target) {
                        next.push(target);
                    }
                }
            }
            (start, seen)
        })
        .collect();
    let mut done: BTreeSet<&String> = BTreeSet::new();
    let mut found = Vec::new();
    for start in edges.keys() {
        if done.contains(start) || !reach[start].contains(start) {
            continue;
        }
        let group: BTreeSet<&String> = reach[start]
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|reach| reach.contains(start)))
            .copied()
            .collect();
        // One circle for every direct pair; a longer one where there is no pair.
        let mut circles: Vec<Vec<String>> = Vec::new();
        for one in &group {
            for other in edges[*one].keys().filter(|other| group.contains(other)) {
                let back = edges.get(other).is_some_and(|targets| targets.contains_key(*one));
                if back && *one < other {
                    circles.push(vec![(*one).clone(), other.clone()]);
                }
            }
        }
        if circles.is_empty() {
            let all = group.iter().filter_map(|node| shortest_from(edges, node, &group));
            circles.extend(all.min_by_key(Vec::len));
        }
        found.extend(circles);
        done.extend(group);
    }
    found
}

fn shortest_from(edges: &Edges, start: &String, group: &BTreeSet<&String>) -> Option<Vec<String>> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(node) = next.pop_front() {
        for target in edges[node].keys().filter(|target| group.contains(target)) {
            if target == start {
                let mut circle = vec![node.clone()];
                let mut at = node;
                while let Some(previous) = before.get(at) {
                    circle.push((*previous).clone());
                    at = previous;
                }
                circle.reverse();
                return Some(circle);
            }
            if !before.contains_key(target) {
                before.insert(target, node);
                next.push_back(target);
            }
        }
    }
    None
}

fn source(path: &str, module: &[&str], code: &str) -> SourceFile {
    SourceFile {
        path: path.to_owned(),
        krate: "crates/x".to_owned(),
        module: module.iter().map(|part| (*part).to_owned()).collect(),
        code: code.to_owned(),
        literals: Vec::new(),
        docs: Vec::new(),
        children: code
            .lines()
            .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';').map(str::to_owned))
            .collect(),
    }
}

#[test]
fn circle_through_a_re_export_is_found() {
    let files = [
        source("crates/x/src/lib.rs", &[], "mod a;\nmod b;\npub use a::X;\n"),
        source("crates/x/src/a.rs", &["a"], "use crate::b::Y;\npub struct X(Y);\n"),
        source("crates/x/src/b.rs", &["b"], "pub struct Y;\nfn f() {\n    crate::X::new();\n}\n"),
    ];
    let found: Vec<String> = graphs(&files).iter().flat_map(circles).collect();
    let expected =
        "crates/x/src/a.rs:1 → crates/x/src/b.rs; crates/x/src/b.rs:3 → crates/x/src/a.rs";
    assert_eq!(found, [expected]);
}

#[test]
fn child_that_uses_what_its_parent_defines_is_a_circle() {
    let parent = |code: &str| source("crates/x/src/lib.rs", &[], code);
    let child = || source("crates/x/src/a.rs", &["a"], "use super::{X, Z as W};\n");
    let files = [parent("mod a;\npub struct X;\n"), child()];
    assert_eq!(graphs(&files).iter().flat_map(circles).count(), 1);
    // A parent that only re-exports is none.
    let other = source("crates/x/src/b.rs", &["b"], "pub struct X;\npub struct Z;\n");
    let files = [parent("mod a;\nmod b;\npub use b::{X, Z};\n"), child(), other];
    assert_eq!(graphs(&files).iter().flat_map(circles).count(), 0);
}

#[test]
fn circle_of_three_is_found() {
    let edge = |to: &str| BTreeMap::from([(to.to_owned(), 1)]);
    let edges: Edges = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
        .map(|(from, to)| (from.to_owned(), edge(to)))
        .into();
    assert_eq!(shortest_circles(&edges), [["a", "b", "c"].map(str::to_owned)]);
}
