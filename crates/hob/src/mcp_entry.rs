//! The entry of `hob mcp` in the settings of the coding agents.
//!
//! Claude Code reads user-wide servers from `mcpServers` in `.claude.json`, which it rewrites often and which is strict
//! JSON. Codex reads tables `[mcp_servers.NAME]` in `config.toml`. Hob inserts its entry as one stretch of text and
//! removes that stretch again; if another program has formatted the file since, Hob removes the entry by its structure.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;
use serde_json::{Value, json};

use crate::hooks::json_scan::{self, Container};
use crate::hooks::{ClientFolders, HookError, SettingsFile, WriteOutcome};
use crate::setup_record::SetupRecord;

/// The name of the server in the settings.
const NAME: &str = "hob";
/// The maximum number of attempts if another program writes to the same file.
const MAX_ATTEMPTS: usize = 5;

/// The state of the entry in the settings of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    Installed,
    /// There is an entry with Hob's name that runs another program or has other settings.
    Other,
    Absent,
}

/// Returns the file in which a client looks for MCP servers.
pub fn file(client: AgentClient, folders: &ClientFolders) -> PathBuf {
    match client {
        AgentClient::Claude => folders.claude_state.clone(),
        AgentClient::Codex => folders.codex.join("config.toml"),
    }
}

/// Returns the state of the entry.
pub fn status(
    client: AgentClient,
    folders: &ClientFolders,
    hob: &str,
) -> Result<EntryState, HookError> {
    let loaded = SettingsFile::read(&file(client, folders))?;
    let text = loaded.text()?.unwrap_or_default();
    state(client, text, hob).map_err(|reason| loaded.broken(reason))
}

/// Adds the entry. An entry of that name which somebody else wrote stays as it is. Returns whether the file changed.
pub fn install(
    client: AgentClient,
    folders: &ClientFolders,
    hob: &str,
    record: &mut SetupRecord,
) -> Result<bool, HookError> {
    let path = file(client, folders);
    change(&path, |text| {
        let is_new = text.is_none();
        let text = text.unwrap_or_default();
        if state(client, text, hob)? != EntryState::Absent {
            return Ok(None);
        }
        let edited = match client {
            AgentClient::Claude => insert_json(text, hob)?,
            AgentClient::Codex => insert_toml(text, hob)?,
        };
        if is_new {
            SetupRecord::note(&mut record.files, &path);
        }
        if edited.is_new_list {
            SetupRecord::note(&mut record.server_lists, &path);
        }
        Ok(Some(Some(edited.text)))
    })
}

/// Removes the entry if it runs a `hob`. Returns whether the file changed.
pub fn uninstall(
    client: AgentClient,
    folders: &ClientFolders,
    record: &mut SetupRecord,
) -> Result<bool, HookError> {
    let path = file(client, folders);
    let is_new_list = SetupRecord::take(&mut record.server_lists, &path);
    let is_new_file = SetupRecord::take(&mut record.files, &path);
    change(&path, |text| {
        let Some(text) = text else { return Ok(None) };
        let removed = match client {
            AgentClient::Claude => remove_json(text, is_new_list)?,
            AgentClient::Codex => remove_toml(text)?,
        };
        let Some(rest) = removed else { return Ok(None) };
        let is_empty = rest.trim().is_empty() || rest.trim() == "{}";
        Ok(Some(if is_new_file && is_empty { None } else { Some(rest) }))
    })
}

/// The text to write; `None` removes the file.
type Edited = Option<String>;

fn change(
    path: &Path,
    mut edit: impl FnMut(Option<&str>) -> Result<Option<Edited>, String>,
) -> Result<bool, HookError> {
    for _ in 0..MAX_ATTEMPTS {
        let loaded = SettingsFile::read(path)?;
        let edited = edit(loaded.text()?).map_err(|reason| loaded.broken(reason))?;
        let Some(text) = edited else { return Ok(false) };
        loaded.check_writable()?;
        if loaded.replace(text.as_deref())? == WriteOutcome::Written {
            return Ok(true);
        }
    }
    Err(HookError::Contended { file: path.to_owned() })
}

fn state(client: AgentClient, text: &str, hob: &str) -> Result<EntryState, String> {
    let entry = match client {
        AgentClient::Claude => json_entry(text)?,
        AgentClient::Codex => toml_entry(text)?,
    };
    Ok(match entry {
        None => EntryState::Absent,
        Some(entry) if is_ours(&entry) && entry["command"] == hob => EntryState::Installed,
        Some(_) => EntryState::Other,
    })
}

/// Returns whether an entry runs `hob mcp` and nothing else.
fn is_ours(entry: &Value) -> bool {
    let program = entry["command"].as_str().and_then(|command| command.rsplit('/').next());
    program == Some(NAME) && entry["args"] == json!(["mcp"])
}

struct Insertion {
    text: String,
    /// Whether there was no list of servers.
    is_new_list: bool,
}

const SERVERS: &str = "mcpServers";

/// The root of a JSON document and its list of servers.
struct JsonServers {
    root: Container,
    /// The list, and its place among the members of the root.
    servers: Option<(usize, Container)>,
}

fn json_servers(text: &str) -> Result<Option<JsonServers>, String> {
    if json_scan::is_blank(text) {
        return Ok(None);
    }
    json_scan::validate(text).map_err(|error| format!("the file is not valid JSON: {error}"))?;
    let root = json_scan::root(text).ok_or("the file is not a JSON object")?;
    let servers = match root.members(text, SERVERS)[..] {
        [] => None,
        [index] => {
            let list = json_scan::object(text, root.items[index].value.start);
            Some((index, list.ok_or(format!("`{SERVERS}` is not an object"))?))
        }
        _ => return Err(format!("`{SERVERS}` occurs more than once; remove all but one")),
    };
    Ok(Some(JsonServers { root, servers }))
}

fn json_entry(text: &str) -> Result<Option<Value>, String> {
    let Some(JsonServers { servers: Some((_, list)), .. }) = json_servers(text)? else {
        return Ok(None);
    };
    let entry = list.members(text, NAME).last().map(|index| list.items[*index].value.clone());
    Ok(entry.map(|range| serde_json::from_str(&text[range]).unwrap_or_default()))
}

fn insert_json(text: &str, hob: &str) -> Result<Insertion, String> {
    let entry = format!("\"{NAME}\":{}", json!({"type": "stdio", "command": hob, "args": ["mcp"]}));
    let member = format!("\"{SERVERS}\":{{{entry}}}");
    let Some(JsonServers { root, servers }) = json_servers(text)? else {
        return Ok(Insertion { text: format!("{text}{{{member}}}\n"), is_new_list: true });
    };
    let (list, inserted, is_new_list) = match servers {
        Some((_, list)) => (list, entry, false),
        None => (root, member, true),
    };
    let comma = if list.items.is_empty() { "" } else { "," };
    let (before, after) = text.split_at(list.open + 1);
    Ok(Insertion { text: format!("{before}{inserted}{comma}{after}"), is_new_list })
}

/// Returns the text without the entry, or `None` if there is none of Hob's.
fn remove_json(text: &str, is_new_list: bool) -> Result<Option<String>, String> {
    let Some(JsonServers { root, servers: Some((index, list)) }) = json_servers(text)? else {
        return Ok(None);
    };
    let ours = list.members(text, NAME).into_iter().find(|index| {
        let value = &text[list.items[*index].value.clone()];
        serde_json::from_str(value).is_ok_and(|entry: Value| is_ours(&entry))
    });
    let Some(ours) = ours else { return Ok(None) };
    let range = match is_new_list && list.items.len() == 1 {
        true => item_range(text, &root, index),
        false => item_range(text, &list, ours),
    };
    Ok(Some(format!("{}{}", &text[..range.start], &text[range.end..])))
}

/// Returns an item with the comma that separates it from the next one, or from the one before if it is the last. The
/// blanks before the next item go with it, those before this one stay.
fn item_range(text: &str, container: &Container, index: usize) -> Range<usize> {
    let item = &container.items[index];
    match (container.items.get(index + 1), index.checked_sub(1)) {
        (Some(next), _) => {
            item.start()..next.start() - blanks_of_first(text, item.start(), next.start())
        }
        (None, Some(before)) => container.items[before].end()..item.end(),
        (None, None) => item.start()..item.end(),
    }
}

/// Returns the number of blanks before the next item that have to stay: all of them if the removed item had none before
/// it, as when Hob inserted it.
fn blanks_of_first(text: &str, start: usize, next: usize) -> usize {
    match json_scan::blanks_before(text, start).is_empty() {
        true => json_scan::blanks_before(text, next).len(),
        false => 0,
    }
}

fn toml_table(text: &str) -> Result<toml::Table, String> {
    let reason =
        |error: toml::de::Error| format!("the file is not valid TOML: {}", error.message());
    text.parse().map_err(reason)
}

fn toml_entry(text: &str) -> Result<Option<Value>, String> {
    let table = toml_table(text)?;
    let entry = table.get("mcp_servers").and_then(|servers| servers.get(NAME)).cloned();
    Ok(entry.map(|entry| serde_json::to_value(entry).unwrap_or_default()))
}

/// The first line of the entry in TOML.
const HEADER: &str = "[mcp_servers.hob]";

fn insert_toml(text: &str, hob: &str) -> Result<Insertion, String> {
    // A file without a line break at its end gets none, so that the entry can be removed exactly.
    let has_end = text.is_empty() || text.ends_with('\n');
    let (before, after) = if has_end { ("", "\n") } else { ("\n", "") };
    let command = toml::Value::String(hob.to_owned());
    let entry = format!("{HEADER}\ncommand = {command}\nargs = [\"mcp\"]");
    let edited = format!("{text}{before}{entry}{after}");
    // For example `mcp_servers` may be an inline table, which cannot be extended.
    toml_table(&edited).map_err(|_| "`mcp_servers` cannot be extended; add the server by hand")?;
    Ok(Insertion { text: edited, is_new_list: false })
}

/// Returns the text without the entry, or `None` if there is none of Hob's.
fn remove_toml(text: &str) -> Result<Option<String>, String> {
    if !toml_entry(text)?.is_some_and(|entry| is_ours(&entry)) {
        return Ok(None);
    }
    let mut at = 0;
    let mut range = None;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed == HEADER {
            range = Some(at..text.len());
        } else if trimmed.starts_with('[')
            && let Some(open) = &mut range
            && open.end == text.len()
        {
            open.end = at;
        }
        at += line.len();
    }
    let range = range.ok_or(format!("the server is not in a table {HEADER}; remove it by hand"))?;
    let has_end = range.end < text.len() || text.ends_with('\n');
    let start = range.start - usize::from(!has_end && range.start > 0);
    let rest = format!("{}{}", &text[..start], &text[range.end..]);
    toml_table(&rest)?;
    Ok(Some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOB: &str = "/opt/hob";

    fn round_trip(text: &str) {
        let Insertion { text: edited, is_new_list } = insert_json(text, HOB).unwrap();
        assert_eq!(state(AgentClient::Claude, &edited, HOB), Ok(EntryState::Installed), "{edited}");
        let restored = remove_json(&edited, is_new_list).unwrap().unwrap();
        let is_blank = json_scan::is_blank(text) && restored.trim() == "{}";
        assert!(restored == text || is_blank, "{text:?} became {restored:?}");
    }

    #[test]
    fn json_is_restored_byte_for_byte() {
        for text in [
            "",
            "{}",
            "{ \n }",
            "{\"a\":1}",
            "{\n  \"a\": 1,\n  \"b\": [2]\n}\n",
            "{\"mcpServers\":{}}",
            "{\n  \"mcpServers\": { }\n}",
            "{\"mcpServers\":{\"x\":{\"command\":\"y\"}}}",
            "{\n\t\"mcpServers\": {\n\t\t\"x\": {\"command\": \"hob\"}\n\t},\n\t\"z\": 1.0e5\n}",
        ] {
            round_trip(text);
        }
    }

    #[test]
    fn formatted_entry_is_removed_by_its_structure() {
        let text = "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"hob\": {\n      \"command\": \"/x/hob\",\n      \"args\": [\"mcp\"]\n    },\n    \"other\": {}\n  }\n}\n";
        let rest = remove_json(text, false).unwrap().unwrap();
        assert_eq!(rest, "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"other\": {}\n  }\n}\n");
        let alone = "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"hob\": {\"command\": \"hob\", \"args\": [\"mcp\"]}\n  }\n}\n";
        assert_eq!(remove_json(alone, true).unwrap().unwrap(), "{\n  \"a\": 1\n}\n");
    }

    #[test]
    fn entries_of_others_stay() {
        let text = r#"{"mcpServers":{"hob":{"command":"other"}}}"#;
        assert_eq!(state(AgentClient::Claude, text, HOB), Ok(EntryState::Other));
        assert_eq!(remove_json(text, true), Ok(None));
        for broken in ["{", "[]", r#"{"mcpServers":[]}"#, r#"{"mcpServers":{},"mcpServers":{}}"#] {
            assert!(insert_json(broken, HOB).is_err(), "{broken}");
        }
    }

    #[test]
    fn toml_is_restored_byte_for_byte() {
        for text in ["", "a = 1\n", "a = 1", "# note\n[mcp_servers.x]\ncommand = \"y\"\n\n"] {
            let edited = insert_toml(text, "/a \"b\"/hob").unwrap().text;
            assert_eq!(
                state(AgentClient::Codex, &edited, "/a \"b\"/hob"),
                Ok(EntryState::Installed)
            );
            assert_eq!(remove_toml(&edited).unwrap().unwrap(), text);
        }
        let text = insert_toml("a = 1\n", HOB).unwrap().text + "[later]\nb = 2\n";
        assert_eq!(remove_toml(&text).unwrap().unwrap(), "a = 1\n[later]\nb = 2\n");
        assert!(insert_toml("mcp_servers = {}\n", HOB).is_err());
        assert!(state(AgentClient::Codex, "a = ", HOB).is_err());
    }
}
