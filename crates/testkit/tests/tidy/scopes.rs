//! Row-level security: which functions of the store see the rows of all apps.

use std::collections::BTreeSet;

use crate::source::production;

/// The functions that may see the rows of all apps, and why: the work of nodes and maintenance, acts of the owner, a token
/// or a session whose app is to be found, and migrations. All others are limited to an app or a principal.
const SEES_ALL: &[(&str, &[&str])] = &[
    ("ledger/postgres/apps.rs", &["apps"]),
    ("ledger/postgres/audit.rs", &["append_audit", "list_audit"]),
    (
        "ledger/postgres/cluster.rs",
        &[
            "commands",
            "complete_command",
            "drop_files",
            "leased_sessions",
            "open_count",
            "remove_command",
        ],
    ),
    ("ledger/postgres/leases.rs", &["acquire", "live_holder"]),
    ("ledger/postgres/session_lists.rs", &["list", "list_page", "usage"]),
    (
        "ledger/postgres/sessions.rs",
        &["change_outbox", "close_session", "create_within", "delete", "outbox"],
    ),
    ("ledger/postgres/store.rs", &["of_app_or_all", "read_all", "read_rows", "write_rows"]),
    (
        "memory/postgres/migrate.rs",
        &[
            "begin",
            "clear",
            "complete",
            "last",
            "page",
            "put_turns",
            "put_vectors",
            "query_slowly",
            "target_state",
        ],
    ),
    (
        "memory/postgres/store.rs",
        &["events", "forget", "merge", "note_event", "of_all", "page", "remask", "write_again"],
    ),
    (
        "memory/postgres/vectors.rs",
        &["drop_other_vectors", "embedded", "save_vectors", "without_vector"],
    ),
    ("postgres/migrations.rs", &["run"]),
];

/// Returns every function that sees the rows of all apps and is not listed, or is listed and does not.
pub fn differences() -> Vec<String> {
    let mut found = BTreeSet::new();
    for file in production() {
        let Some(path) = file.path.strip_prefix("crates/store/src/") else { continue };
        if path.ends_with("row_scope.rs") {
            continue;
        }
        let mut function = String::new();
        for line in file.code.lines() {
            let words = line.split_once("fn ").filter(|(before, _)| is_head(before));
            if let Some((_, rest)) = words {
                function = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            }
            let sees_all = ["RowScope::All", ".of_all()", ".of_app_or_all("];
            if sees_all.iter().any(|word| line.contains(word)) {
                found.insert(format!("{path} {function}"));
            }
        }
    }
    let listed: BTreeSet<String> = SEES_ALL
        .iter()
        .flat_map(|(path, names)| names.iter().map(move |name| format!("{path} {name}")))
        .collect();
    found.symmetric_difference(&listed).cloned().collect()
}

/// Returns whether `fn` after this text begins a function.
fn is_head(before: &str) -> bool {
    let before = before.trim();
    ["", "async", "pub", "pub async"].contains(&before)
        || before.starts_with("pub(") && !before.contains("->")
}
