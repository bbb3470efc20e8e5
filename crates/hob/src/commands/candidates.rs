//! Candidates for completions. Without a server, or with settings that cannot be read, there are none.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use hob_gateway::client::Method;
use hob_memory::{ForgetRequest, ForgetRequests};
use serde_json::Value;

use crate::memory;
use crate::owner_client;
use crate::printer::one_line;
use crate::settings;

/// How long the user waits for the server while typing.
const DEADLINE: Duration = Duration::from_secs(1);
/// How many of the latest turns are offered, how many are asked for their sessions, and how much of their texts is shown.
const MAX_RECORDS: usize = 50;
const MAX_TURNS: usize = 200;
const MAX_TEXT_CHARS: usize = 60;

/// Returns the sessions whose ID begins with what was typed.
pub fn sessions(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let mut found = listed_sessions().unwrap_or_default();
    found.retain(|session| id_of(session).starts_with(&*typed));
    found.iter().map(|session| candidate(id_of(session), description(session))).collect()
}

/// Returns the agents whose name begins with what was typed.
pub fn agents(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let Ok(settings) = settings::load(Vec::new()) else { return Vec::new() };
    let names = settings.agents.keys().map(|name| name.as_str().to_owned());
    names.filter(|name| name.starts_with(&*typed)).map(CompletionCandidate::new).collect()
}

/// Returns the settings whose key begins with what was typed.
pub fn settings(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let Ok(settings) = settings::load(Vec::new()) else { return Vec::new() };
    let keys = settings.rows.into_iter().map(|row| row.key);
    keys.filter(|key| key.starts_with(&*typed)).map(CompletionCandidate::new).collect()
}

/// Returns the apps whose name begins with what was typed.
pub fn apps(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let mut found = listed("/admin/apps", "apps").unwrap_or_default();
    found.retain(|app| text(app, "app").starts_with(&*typed));
    found.iter().map(|app| CompletionCandidate::new(text(app, "app"))).collect()
}

/// Returns the latest turns of the memory whose record ID begins with what was typed.
pub fn records(typed: &OsStr) -> Vec<CompletionCandidate> {
    latest_turns(MAX_RECORDS, "record_id", typed)
}

/// Returns the sessions of the latest turns of the memory whose ID begins with what was typed, the latest first.
pub fn memory_sessions(typed: &OsStr) -> Vec<CompletionCandidate> {
    latest_turns(MAX_TURNS, "session_id", typed)
}

/// Returns the requests of agents to forget something whose ID begins with what was typed. They are files, so that no
/// server is asked.
pub fn forget_requests(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let Ok(settings) = settings::load(Vec::new()) else { return Vec::new() };
    let mut found = ForgetRequests::new(settings.home.forget_requests()).all();
    found.retain(|request| request.id.starts_with(&*typed));
    let what = |request: &ForgetRequest| match (&request.record_id, &request.session_id) {
        (Some(id), _) => format!("record {id}"),
        (None, session) => format!("session {}", session.as_deref().unwrap_or_default()),
    };
    found.iter().map(|request| candidate(&request.id, one_line(&what(request)))).collect()
}

/// Returns the different values of a field of the latest turns that begin with what was typed, each with the beginning
/// of its first turn.
fn latest_turns(limit: usize, field: &str, typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let path = format!("/admin/memory/timeline?limit={limit}");
    let turns = listed(&path, "turns").unwrap_or_default();
    let mut found: Vec<(&str, String)> = Vec::new();
    for turn in &turns {
        let id = text(turn, field);
        // Others name the sessions; a line end would be another candidate.
        let is_offered = id.starts_with(&*typed) && !id.contains(char::is_whitespace);
        if is_offered && one_line(id) == id && !found.iter().any(|(known, _)| *known == id) {
            let said = one_line(text(turn, "text")).chars().take(MAX_TEXT_CHARS).collect();
            found.push((id, said));
        }
    }
    found.into_iter().rev().map(|(id, said)| candidate(id, said)).collect()
}

fn listed_sessions() -> anyhow::Result<Vec<Value>> {
    listed("/admin/sessions", "sessions")
}

/// Asks the server for a list.
fn listed(path: &str, field: &str) -> anyhow::Result<Vec<Value>> {
    let settings = settings::load(Vec::new())?;
    memory::runtime()?.block_on(async {
        let ask = async {
            let mut client = owner_client::connect(&settings.socket).await?;
            owner_client::request(&mut client, Method::GET, path, None).await
        };
        let answer = tokio::time::timeout(DEADLINE, ask).await??;
        Ok(answer[field].as_array().cloned().unwrap_or_default())
    })
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn id_of(session: &Value) -> &str {
    session["session_id"].as_str().unwrap_or_default()
}

fn description(session: &Value) -> String {
    let text = |name: &str| session[name].as_str().unwrap_or_default();
    // Folders may have any name; a line end would be another candidate.
    let shown = format!("{} {} {}", text("agent"), text("state"), text("cwd"));
    shown.chars().filter(|character| !character.is_control()).collect()
}

fn candidate(value: &str, description: String) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(description.into()))
}
