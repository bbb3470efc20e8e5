//! The tables of `docs/agents.md`: what tests have proved about agents and clients.

use std::collections::BTreeSet;
use std::fs;

use hob_testkit::leak::files_below;
use hob_testkit::proof::{REAL, SAMPLE, list_path};

use crate::source::root;

/// A table of the page: programs in rows, abilities in columns.
struct Table {
    programs: &'static [(&'static str, &'static str)],
    abilities: &'static [(&'static str, &'static str)],
}

const AGENTS: Table = Table {
    programs: &[
        ("claude-tui", "Claude Code, `claude-tui`"),
        ("claude-stream", "Claude Code, `claude-stream`"),
        ("claude-agent-acp", "claude-agent-acp"),
        ("opencode-acp", "OpenCode"),
        ("codex-acp", "codex-acp"),
        ("gemini-acp", "Gemini CLI"),
    ],
    abilities: &[
        ("turns", "turns"),
        ("cancel", "cancel"),
        ("shell", "shell"),
        ("permissions", "deny, ask, allow"),
        ("question", "asks for what"),
        ("restart", "after a restart"),
        ("replay", "past said once"),
        ("kill", "after `kill -9`"),
        ("once", "remembered once"),
        ("usage", "tokens"),
        ("cost", "cost"),
        ("model", "model"),
        ("system", "system prompt"),
        ("settings", "modes, commands"),
        ("mcp", "MCP servers"),
        ("sandbox", "strict sandbox"),
        ("other-node", "on another node"),
    ],
};

const CLIENTS: Table = Table {
    programs: &[
        ("claude", "Claude Code"),
        ("codex", "Codex"),
        ("gemini", "Gemini CLI"),
        ("opencode", "OpenCode"),
        ("copilot", "Copilot CLI"),
        ("cursor", "Cursor"),
        ("cline", "Cline"),
        ("roo", "Roo Code"),
        ("qwen", "Qwen Code"),
        ("goose", "goose"),
        ("zed", "Zed"),
        ("aider", "aider"),
        ("specstory", "SpecStory"),
        ("entire", "Entire"),
    ],
    abilities: &[
        ("live", "live"),
        ("import", "import"),
        ("once", "stored once"),
        ("memory-files", "memory files"),
    ],
};

/// What an agent cannot do by itself, and what the page says of it.
const LIMITS: &[(&str, &str, &str)] = &[
    ("codex-acp", "cost", "not told"),
    ("gemini-acp", "cost", "not told"),
    ("claude-tui", "settings", "with `ask` only"),
    ("claude-agent-acp", "other-node", "its records stay on their node"),
    ("opencode-acp", "other-node", "its records stay on their node"),
    ("codex-acp", "other-node", "its records stay on their node"),
    ("gemini-acp", "other-node", "its records stay on their node"),
];

type Proof = (String, String, String);

fn listed() -> BTreeSet<Proof> {
    let text = fs::read_to_string(list_path()).expect("e2e/proofs.tsv");
    let proof = |line: &str| {
        let mut parts = line.split('\t').map(str::to_owned);
        Some((parts.next()?, parts.next()?, parts.next()?))
    };
    text.lines()
        .map(|line| proof(line).unwrap_or_else(|| panic!("three parts: {line:?}")))
        .collect()
}

/// Returns what the list has and no test states, and what tests state and the list does not have.
pub fn differences() -> Vec<String> {
    let mut stated = BTreeSet::new();
    for path in files_below(&root().join("crates/hob/tests")) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (call, evidence) in [("proved_with_program(", REAL), ("proved_with_samples(", SAMPLE)] {
            for (at, _) in text.match_indices(call) {
                let arguments = text[at + call.len()..].split(");").next().unwrap_or_default();
                // Every second part is inside of quotes.
                let mut words = arguments.split('"').skip(1).step_by(2).map(str::to_owned);
                let Some(program) = words.next() else { continue };
                stated.extend(words.map(|word| (program.clone(), word, evidence.to_owned())));
            }
        }
    }
    let listed = listed();
    let known = |(program, ability, _): &&Proof| {
        [&AGENTS, &CLIENTS].iter().any(|table| {
            table.programs.iter().any(|(id, _)| id == program)
                && table.abilities.iter().any(|(id, _)| id == ability)
        })
    };
    let unknown = listed.iter().filter(|proof| !known(proof));
    let unknown = unknown.map(|proof| format!("docs/agents.md has no place for {proof:?}"));
    let gone = listed.difference(&stated).map(|proof| format!("no test states {proof:?}"));
    let new = stated.difference(&listed).map(|proof| format!("the list does not have {proof:?}"));
    let refuted = listed.iter().filter(|(program, ability, _)| limit(program, ability).is_some());
    let refuted = refuted.map(|proof| format!("a test proves what LIMITS denies: {proof:?}"));
    unknown.chain(gone).chain(new).chain(refuted).collect()
}

fn limit(program: &str, ability: &str) -> Option<&'static str> {
    let found = LIMITS.iter().find(|(limited, what, _)| *limited == program && *what == ability);
    found.map(|(_, _, text)| *text)
}

/// Returns the tables that the page should have and does not.
pub fn wrong_tables() -> Vec<String> {
    let page = fs::read_to_string(root().join("docs/agents.md")).expect("docs/agents.md");
    let listed = listed();
    let tables = [&AGENTS, &CLIENTS].map(|table| table.render(&listed)).into_iter();
    tables
        .filter(|table| !page.contains(table.as_str()))
        .map(|table| format!("the page should have\n{table}"))
        .collect()
}

impl Table {
    fn render(&self, proofs: &BTreeSet<Proof>) -> String {
        let headings: Vec<&str> = self.abilities.iter().map(|(_, heading)| *heading).collect();
        let mut text =
            format!("| | {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len() + 1));
        for (program, name) in self.programs {
            let cell = |ability: &str| {
                let has = |evidence: &str| {
                    proofs.contains(&(program.to_string(), ability.to_owned(), evidence.to_owned()))
                };
                if has(REAL) {
                    "yes"
                } else if has(SAMPLE) {
                    "samples"
                } else {
                    limit(program, ability).unwrap_or_default()
                }
            };
            let cells: Vec<&str> = self.abilities.iter().map(|(id, _)| cell(id)).collect();
            text.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
        }
        text
    }
}
