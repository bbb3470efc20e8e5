//! No asynchronous function waits for the disk: on a disk that hangs, it would stop a thread of the runtime.

use crate::source;

/// Calls that may wait for the disk, or that wait by design.
const BLOCKING: [&str; 16] = [
    "owned::",
    "hob_files::",
    "fs::metadata(",
    "fs::symlink_metadata(",
    "fs::canonicalize(",
    "Folder::open",
    "open_regular(",
    "open_linked_regular(",
    "read_regular(",
    "write_new(",
    "write_over(",
    ".canonicalize()",
    ".exists()",
    ".is_dir()",
    ".is_file()",
    "thread::sleep(",
];

/// The functions that move a call to a thread of its own.
const SPAWNING: [&str; 3] = ["spawn_blocking(", "on_file(", "on_disk("];

/// Files whose asynchronous functions run only while the server starts or stops, or in a command.
const STARTING: [&str; 5] = [
    "crates/hob/src/commands/serve/parts.rs",
    "crates/hob/src/commands/serve/server.rs",
    "crates/hob/src/commands/store.rs",
    "crates/hob/src/memory.rs",
    "crates/sessions/src/session/sessions.rs",
];

/// A call inside another function is not seen. The watchdog of the server finds those.
#[test]
fn asynchronous_functions_do_not_wait_for_the_disk() {
    let mut found = Vec::new();
    for file in source::production() {
        if STARTING.contains(&file.path.as_str()) || file.krate == "crates/fuzz" {
            continue;
        }
        for (line, call) in blocking_calls(&file.code) {
            found.push(format!("{}:{line}: {call}", file.path));
        }
    }
    assert!(found.is_empty(), "move these calls into `spawn_blocking`:\n{}", found.join("\n"));
}

#[test]
fn blocking_calls_are_found_in_asynchronous_code_only() {
    let code = "fn a() { owned::read(p); }\n\
                async fn b() {\n    owned::read(p);\n    spawn_blocking(move || { owned::read(p) });\n}\n\
                fn c() { async move { p.exists() } }";
    let found = blocking_calls(code);
    assert_eq!(found, [(3, "owned::"), (6, ".exists()")]);
}

/// Returns the blocking calls in asynchronous functions and blocks, with their lines, except those that are passed to
/// `spawn_blocking`.
fn blocking_calls(code: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let mut end = 0;
    for (start, _) in code.match_indices("async ") {
        let is_word = !code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        // A nested block is part of the outer one.
        if start < end || !is_word {
            continue;
        }
        let Some(body) = body_of(&code[start..]) else { continue };
        let (from, to) = (start + body.start, start + body.end);
        end = to;
        let inside = without_spawned(&code[from..to]);
        for call in BLOCKING {
            for (at, _) in inside.match_indices(call) {
                found.push((code[..from + at].lines().count().max(1), call));
            }
        }
    }
    found.sort();
    found
}

/// Returns the place of the body of what begins with `async`; `None` for a function without one.
fn body_of(code: &str) -> Option<std::ops::Range<usize>> {
    let open = code.find(['{', ';'])?;
    if code.as_bytes()[open] == b';' {
        return None;
    }
    Some(open..open + length_to_closing(&code[open..], '{', '}'))
}

/// Replaces what is moved to another thread by spaces, so that everything else stays where it was.
fn without_spawned(code: &str) -> String {
    let mut text = code.to_owned();
    for (at, call) in SPAWNING.iter().flat_map(|call| code.match_indices(call)) {
        let open = at + call.len() - 1;
        let close = open + length_to_closing(&code[open..], '(', ')');
        let blank: String =
            code[open..close].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        text.replace_range(open..close, &blank);
    }
    text
}

fn length_to_closing(code: &str, open: char, close: char) -> usize {
    let mut depth = 0;
    for (at, character) in code.char_indices() {
        if character == open {
            depth += 1;
        } else if character == close {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    code.len()
}
