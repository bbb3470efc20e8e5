//! The project rules: the invariants of ARCHITECTURE.md and the rules of CONTRIBUTING.md, checked.
#![allow(clippy::disallowed_methods, reason = "asks cargo about the dependencies")]

mod blocking_calls;
mod circles;
mod proofs;
mod scopes;
mod shape;
mod source;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hob_testkit::leak::files_below;
use serde_json::Value;
use sha2::{Digest, Sha256};

use source::root;

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All files of the crates with this ending, by name.
fn sources(ending: &str) -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = files_below(&root().join("crates"));
    files.retain(|path| path.extension().is_some_and(|e| e == ending));
    files.sort();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn packages(metadata: &Value) -> &Vec<Value> {
    metadata["packages"].as_array().unwrap()
}

fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

#[test]
fn crates_depend_only_on_the_layers_below() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("hob-domain", &[][..]),
        ("hob-child", &["hob-files"]),
        ("hob-files", &[]),
        ("hob-index", &[]),
        ("hob-sqlcipher", &[]),
        ("hob-store", &["hob-domain", "hob-index", "hob-sqlcipher"]),
        ("hob-transcript", &["hob-domain"]),
        ("hob-memory", &["hob-domain", "hob-files", "hob-index", "hob-transcript"]),
        ("hob-mcp", &["hob-domain", "hob-memory"]),
        ("hob-terminal", &["hob-child", "hob-domain"]),
        ("hob-agents", &["hob-child", "hob-domain", "hob-files", "hob-terminal", "hob-transcript"]),
        ("hob-sessions", &["hob-agents", "hob-child", "hob-domain", "hob-files", "hob-terminal"]),
        (
            "hob-gateway",
            &["hob-agents", "hob-domain", "hob-mcp", "hob-memory", "hob-sessions", "hob-terminal"],
        ),
        ("hob-testkit", &["hob-child", "hob-domain"]),
        (
            "hob-fuzz",
            &[
                "hob",
                "hob-agents",
                "hob-domain",
                "hob-gateway",
                "hob-mcp",
                "hob-memory",
                "hob-sessions",
                "hob-terminal",
                "hob-transcript",
            ],
        ),
        (
            "hob",
            &[
                "hob-agents",
                "hob-child",
                "hob-domain",
                "hob-files",
                "hob-gateway",
                "hob-mcp",
                "hob-memory",
                "hob-sessions",
                "hob-store",
                "hob-terminal",
                "hob-transcript",
            ],
        ),
    ]);
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|package| is_ours(package)) {
        let package_name = package["name"].as_str().unwrap();
        let allowed =
            allowed.get(package_name).unwrap_or_else(|| panic!("{package_name} is new here"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let target = dependency["name"].as_str().unwrap();
            if target.starts_with("hob") && dependency["kind"].is_null() {
                assert!(allowed.contains(&target), "{package_name} must not depend on {target}");
            }
        }
        let features = package["features"].as_object().unwrap();
        assert!(features.is_empty(), "{package_name} has cargo features: {features:?}");
    }
}

/// Only these crates may use a database, a protocol or the kernel's interfaces.
#[test]
fn libraries_are_used_by_their_owners_only() {
    let owners = [
        ("rusqlite", vec!["hob-sqlcipher", "hob-store"]),
        ("sqlcipher-src", vec!["hob-sqlcipher"]),
        ("aes", vec!["hob-sqlcipher"]),
        ("tokio-postgres", vec!["hob-store"]),
        ("deadpool-postgres", vec!["hob-store"]),
        ("rustls", vec!["hob-store"]),
        ("ruzstd", vec!["hob-store"]),
        ("rmcp", vec!["hob-mcp"]),
        ("agent-client-protocol", vec!["hob-agents"]),
        ("landlock", vec!["hob-child"]),
        ("seccompiler", vec!["hob-child"]),
        ("crypto_box", vec!["hob-memory"]),
        ("ndarray", vec!["hob-memory"]),
        ("axum", vec!["hob-gateway", "hob-testkit"]),
        ("hyper", vec!["hob-gateway"]),
        ("tokio-tungstenite", vec!["hob-gateway", "hob-testkit"]),
        ("vt100", vec!["hob-terminal"]),
        (
            "tokio",
            vec![
                "hob-child",
                "hob-store",
                "hob-memory",
                "hob-mcp",
                "hob-terminal",
                "hob-agents",
                "hob-sessions",
                "hob-gateway",
                "hob",
                "hob-fuzz",
                "hob-testkit",
            ],
        ),
    ];
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|package| is_ours(package)) {
        let package_name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            for (library, owners) in &owners {
                if dependency["name"] == *library && dependency["kind"].is_null() {
                    assert!(
                        owners.contains(&package_name),
                        "{package_name} must not use {library}"
                    );
                }
            }
        }
    }
}

#[test]
fn pure_crates_do_no_io() {
    let pure = ["crates/domain/src", "crates/index/src", "crates/transcript/src"];
    for (file, text) in sources("rs") {
        if !pure.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        for word in
            ["std::fs", "std::net", "std::process", "std::env", "tokio", "::now()", "std::thread"]
        {
            assert!(!text.contains(word), "{file} uses {word}");
        }
    }
}

/// State is passed as an argument. (The scripted agent is a program of its own.)
/// Most of what commands print was written by others, and must pass the printer.
#[test]
fn only_the_printer_prints() {
    let mut violations = Vec::new();
    for file in source::production() {
        if file.path.ends_with("hob/src/printer.rs") {
            continue;
        }
        for (number, line) in file.code.lines().enumerate() {
            if ["println!(", "print!(", "eprint!("].iter().any(|call| line.contains(call)) {
                violations.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert_none("print through crates/hob/src/printer.rs", &violations);
}

#[test]
fn libraries_have_no_globals() {
    for (file, text) in sources("rs") {
        if file.starts_with("crates/testkit") || file.contains("/tests/") {
            continue;
        }
        let global = |line: &&str| {
            let code =
                line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            code.starts_with("static ") || code.starts_with("thread_local!")
        };
        let found: Vec<&str> = text.lines().filter(global).collect();
        assert!(found.is_empty(), "{file}: {found:?}");
    }
}

#[test]
fn unsafe_is_rare_and_explained() {
    for (file, text) in sources("rs") {
        if file.contains("tests/tidy/") {
            continue;
        }
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !code.contains("unsafe {")
                && !code.contains("unsafe fn")
                && !code.contains("unsafe impl")
            {
                continue;
            }
            let tested = file.contains("/tests/") || file.starts_with("crates/testkit");
            // Counting bits with the processor's own instruction, and the functions that SQLCipher calls from C.
            let named = ["crates/index/src/sign_codes.rs", "crates/sqlcipher/src/provider.rs"];
            assert!(
                file.starts_with("crates/child/src") || named.contains(&file.as_str()) || tested,
                "unsafe in {file}:{}",
                number + 1
            );
            let before = &lines[number.saturating_sub(4)..number];
            let explained = before.iter().any(|line| line.contains("SAFETY:"));
            assert!(explained, "{file}:{}: unsafe without a SAFETY comment", number + 1);
        }
    }
}

/// Schemas, importers and the fixtures of old schemas are frozen. A new migration adds a line here.
#[test]
fn migrations_are_frozen() {
    let frozen = [
        (
            "crates/store/src/postgres/migrations/0001_hob.sql",
            "7df27521f912675f9f76803f4890bba46919ca94bfec217dba66515a85ddf05c",
        ),
        (
            "crates/store/src/postgres/migrations/0002_hidden_turns.sql",
            "558230feedb39614896a9c11c680fe5a93dae1842e6b6d2161f8e30040221be9",
        ),
        (
            "crates/store/src/postgres/migrations/0003_responses.sql",
            "7fd8c165d666bee779420268e29713520029eac93be5a18515c38417f14d19db",
        ),
        (
            "crates/store/src/postgres/migrations/0004_documents.sql",
            "de85e2c4d75ddb54f74d2aec57ff7e04ebfac2dadf288e7d9cbc3c716150dd0d",
        ),
        (
            "crates/store/src/postgres/migrations/0005_scopes.sql",
            "f496dea77f84fec7410925d5c6c0016883747299500f47180424e4d12cc8d789",
        ),
        (
            "crates/store/src/postgres/migrations/0006_outbox_attempts.sql",
            "cf5132883d5d7f710ac1ca5da0dfad05a78b270cc325621f46ba8e7126d43832",
        ),
        (
            "crates/store/src/postgres/migrations/import_6.sql",
            "5bc093ad75da580b2146a2d25236c17a417c9317d2b875e37c533ab0bd17dc69",
        ),
        (
            "crates/store/src/sqlite/migrations/ledger/0001_ledger.sql",
            "4e7d7e005b4013f42612a5995ee50e64c0a56e701b6dd978ab30614c8c9cf16a",
        ),
        (
            "crates/store/src/sqlite/migrations/ledger/0002_responses.sql",
            "58cd97402d66bb33f0b3cffe2252b8953df22246afed3d66dacb12f4a660878a",
        ),
        (
            "crates/store/src/sqlite/migrations/ledger/0003_documents.sql",
            "82637b7f10bff5018111baa9466ae7b4163cc5d31c1ade208dd9809a661e5b38",
        ),
        (
            "crates/store/src/sqlite/migrations/ledger/0004_outbox_attempts.sql",
            "fd96813f87dedac61f43128747161cd8cc96db1ec0970aa24eb05aca84bfc1fb",
        ),
        (
            "crates/store/src/sqlite/migrations/ledger/0005_home_run.sql",
            "5fc218458b901b2fcb4d8454ef034b7cc38362cc7d2ae970804d809ef119b873",
        ),
        (
            "crates/store/src/sqlite/migrations/ledger/import_7.sql",
            "721d5205972cf35fbfccd7cda0ab4c5177abb39924bdc79a507862b351e557c4",
        ),
        (
            "crates/store/src/sqlite/migrations/memory/0001_memory.sql",
            "067c367679dbfe123238eaacf386490d9384d58e6c39260e49ff89a59353858e",
        ),
        (
            "crates/store/src/sqlite/migrations/memory/0002_hidden_turns.sql",
            "4e38146e702a262344cfd878e66efa1f78f3d9e61b8233d7e30b6c5456dfbfad",
        ),
        (
            "crates/store/src/sqlite/migrations/memory/0003_home_run.sql",
            "5fc218458b901b2fcb4d8454ef034b7cc38362cc7d2ae970804d809ef119b873",
        ),
        (
            "crates/store/src/sqlite/migrations/memory/import_4.sql",
            "86b00a7dfc249807ab47a99acaedf0a9fa996fa3be4fd6292802f4494c72c83d",
        ),
        (
            "crates/store/tests/fixtures/postgres_6.sql",
            "c649b17fd448f9bfced6655018f7517d229b3925445b141ef0442bcb005887ce",
        ),
        (
            "crates/store/tests/fixtures/sqlite_ledger_7.sql",
            "f6f335ce0b57bc48ed2f89e103c7c8c27095ffbf875542b6b73db68b065f0661",
        ),
        (
            "crates/store/tests/fixtures/sqlite_memory_4.sql",
            "2600aefa57a8d84d4e4c73dd5c3f14809b682d94196421c5f6cbcdeac3c7b31f",
        ),
    ];
    let found: Vec<(String, String)> = sources("sql")
        .into_iter()
        .map(|(file, text)| {
            let digest = Sha256::digest(text.as_bytes());
            (file, digest.iter().map(|byte| format!("{byte:02x}")).collect())
        })
        .collect();
    let found: Vec<(&str, &str)> =
        found.iter().map(|(file, digest)| (file.as_str(), digest.as_str())).collect();
    assert_eq!(found, frozen);
}

/// A file has at most 500 lines, or 800 if most of it is one implementation of a trait. Tests may be longer.
#[test]
fn files_are_short_and_finished() {
    for (file, text) in sources("rs") {
        let lines = text.lines().count();
        let most = if longest_implementation(&text) * 2 > lines { 800 } else { 500 };
        assert!(
            lines <= most || file.contains("/tests/"),
            "{file} has {lines} lines, at most {most}"
        );
        if file.contains("tests/tidy/") {
            continue;
        }
        for word in ["todo!(", "unimplemented!(", "FIXME", "dbg!("] {
            assert!(!text.contains(word), "{file} holds {word}");
        }
    }
}

/// Returns the lines of the longest `impl Trait for Type`.
fn longest_implementation(text: &str) -> usize {
    let (mut longest, mut start) = (0, None);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("impl") && line.contains(" for ") {
            start = Some(number);
        } else if line == "}" {
            longest = longest.max(start.take().map_or(0, |start| number - start));
        }
    }
    longest
}

/// Nothing in the repository names the machine it was written on.
#[test]
fn files_name_no_machine_and_no_registry() {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "git lists the files");
    let files = String::from_utf8(output.stdout).unwrap();
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        if file.contains("tests/tidy/") {
            continue;
        }
        for word in ["/work/main", "/root/", "registry.npmjs.org", "pypi.org", "\"resolved\":"] {
            assert!(!text.contains(word), "{file} holds {word}");
        }
    }
}

#[test]
fn licences_are_on_the_list() {
    let free = [
        "MIT",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "Zlib",
        "Unicode-3.0",
        "CC0-1.0",
        "Unlicense",
        "blessing",
        "WTFPL",
        "0BSD",
        "BSL-1.0",
        "MIT-0",
    ];
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|package| !is_ours(package)) {
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        // Every part of an AND, and one part of each OR, must be on the list.
        let fits = licence.replace(['(', ')'], "").split(" AND ").all(|part| {
            part.split(" OR ")
                .any(|name| free.contains(&name.split(" WITH ").next().unwrap().trim()))
        });
        assert!(fits, "{}: {licence:?}", package["name"]);
    }
}

/// The clients compare versions to find out whether a plugin is new.
#[test]
fn plugins_have_the_version_of_hob() {
    let metadata = metadata();
    let hob = packages(&metadata).iter().find(|package| package["name"] == "hob").unwrap();
    for (file, version) in [
        (".claude-plugin/marketplace.json", "/plugins/0/version"),
        ("plugins/claude-code/.claude-plugin/plugin.json", "/version"),
        ("plugins/codex/.codex-plugin/plugin.json", "/version"),
        ("plugins/gemini/gemini-extension.json", "/version"),
    ] {
        let manifest = fs::read_to_string(root().join(file)).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest.pointer(version), Some(&hob["version"]), "{file}");
    }
}

#[test]
fn plugins_share_the_text_of_the_skill() {
    let skill = |plugin: &str| {
        let path = format!("plugins/{plugin}/skills/recall-past-work/SKILL.md");
        fs::read_to_string(root().join(path)).unwrap()
    };
    assert_eq!(skill("claude-code"), skill("codex"));
}

/// A test binary that `scripts/test` does not run is never run.
#[test]
fn every_test_binary_is_run_by_scripts_test() {
    let script = fs::read_to_string(root().join("scripts/test")).unwrap();
    let metadata = metadata();
    for package in packages(&metadata).iter().filter(|package| is_ours(package)) {
        for target in package["targets"].as_array().unwrap() {
            let name = target["name"].as_str().unwrap();
            if target["kind"][0] == "test" {
                let is_run = script.contains(&format!("--test {name}"));
                assert!(is_run, "scripts/test does not run the test {name} of {}", package["name"]);
            }
        }
    }
}

#[test]
fn ci_runs_exactly_scripts_test() {
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let lines: Vec<&str> = ci.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["exec scripts/test"]);
    assert!(fs::read_to_string(root().join("README.md")).unwrap().contains("\nscripts/test\n"));
}

/// Fails with one line for each violation.
#[track_caller]
fn assert_none(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

#[test]
fn every_proof_is_stated_by_a_test() {
    assert_none("e2e/proofs.tsv and the tests differ", &proofs::differences());
}

#[test]
fn page_about_agents_shows_what_tests_have_proved() {
    assert_none("docs/agents.md differs from e2e/proofs.tsv", &proofs::wrong_tables());
}

#[test]
fn rows_of_all_apps_are_seen_by_listed_functions_only() {
    assert_none("functions that see the rows of all apps", &scopes::differences());
}

#[test]
fn files_form_no_circles() {
    assert_none("files that need each other", &circles::circles_of_files());
}

#[test]
fn folders_form_no_circles() {
    assert_none("folders that need each other", &circles::circles_of_folders());
}

#[test]
fn type_names_are_defined_at_most_three_times() {
    assert_none("type names defined more than three times", &shape::overused_type_names());
}

#[test]
fn storage_ports_have_fewer_than_60_methods() {
    assert_none("too many methods of storage ports", &shape::too_many_port_methods());
}

#[test]
fn public_texts_have_no_retired_words() {
    assert_none("retired words (see CONTRIBUTING.md)", &words::retired_words());
}

#[test]
fn architecture_document_is_short() {
    assert_none("ARCHITECTURE.md is too long", &shape::long_architecture());
}

#[test]
fn doc_comments_stand_alone() {
    assert_none("doc comments that need the one before them", &words::leaning_comments());
}
