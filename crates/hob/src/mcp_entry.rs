//! The entry of `hob mcp` in the settings of the coding agents.
//!
//! Claude Code reads user-wide servers from `mcpServers` in `.claude.json`, which it rewrites often and which is strict
//! JSON. Gemini CLI reads `mcpServers` in `settings.json`, next to the hooks. Codex reads tables `[mcp_servers.NAME]` in `config.toml`. Hob inserts its entry as one stretch of text and
//! removes that stretch again; if another program has formatted the file since, Hob removes the entry by its structure.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;
use serde_json::{Value, json};

use crate::hooks::json_scan::{self, Container};
use crate::hooks::{ClientFolders, Edited, HookError, SettingsFile};
use crate::setup_record::{RecordedEntry, SetupRecord};

/// The name of the server in the settings.
const NAME: &str = hob_mcp::SERVER_NAME;

/// What an entry runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path of `hob`.
    pub program: String,
    /// `$HOB_HOME`, unless it is the default.
    pub home: Option<String>,
}

/// The state of the entry in the settings of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    Installed,
    /// Hob's own entry runs another `hob`, or is for another home.
    Outdated,
    /// There is an entry with Hob's name that somebody else wrote or has changed.
    Other,
    Absent,
}

/// What there is to remove.
#[derive(Debug, PartialEq, Eq)]
pub enum Removal {
    /// There is no entry.
    Absent,
    /// The user has changed the entry since, so it stays.
    Changed,
    /// The text of the file without the entry.
    Rest(String),
}

/// Returns the file in which a client looks for MCP servers. OpenCode needs no entry: Hob's plugin adds the server.
pub fn file(client: AgentClient, folders: &ClientFolders) -> Option<PathBuf> {
    match client {
        AgentClient::Claude => Some(folders.claude_state.clone()),
        AgentClient::Codex => Some(folders.codex.join("config.toml")),
        AgentClient::Gemini => Some(folders.settings_file(client)),
        AgentClient::Opencode => None,
    }
}

/// Returns the state of the entry. It is an error if the entry is missing and cannot be added.
pub fn status(
    client: AgentClient,
    folders: &ClientFolders,
    entry: &Entry,
    record: &SetupRecord,
) -> Result<EntryState, HookError> {
    let Some(path) = file(client, folders) else { return Ok(EntryState::Installed) };
    let loaded = SettingsFile::read(&path)?;
    let found = state(client, loaded.text()?, entry, record.entry(&path).is_some());
    let found = found.map_err(|reason| loaded.broken(reason))?;
    let edited = edited(client, loaded.text()?, entry, &found);
    if edited.map_err(|reason| loaded.broken(reason))?.is_some() {
        loaded.check_writable()?;
    }
    Ok(found)
}

/// Adds or updates the entry. One that somebody else wrote stays as it is. `save` stores the record before the file
/// changes, so that an interrupted change can be undone.
pub fn install(
    client: AgentClient,
    folders: &ClientFolders,
    entry: &Entry,
    record: &mut SetupRecord,
    save: &dyn Fn(&SetupRecord) -> std::io::Result<()>,
) -> Result<(), HookError> {
    let Some(path) = file(client, folders) else { return Ok(()) };
    change(&path, |text| {
        let is_recorded = record.entry(&path).is_some();
        let found = state(client, text, entry, is_recorded)?;
        let Some(inserted) = edited(client, text, entry, &found)? else { return Ok(None) };
        record.note_entry(RecordedEntry {
            client,
            file: path.clone(),
            is_new_file: text.is_none(),
            is_new_list: inserted.is_new_list,
        });
        save(record).map_err(|error| {
            format!("cannot record what `hob setup` is about to change: {error}")
        })?;
        Ok(Some(Some(inserted.text)))
    })?;
    Ok(())
}

/// Returns what [`uninstall`] would do.
pub fn removal(recorded: &RecordedEntry) -> Result<Removal, HookError> {
    let loaded = SettingsFile::read(&recorded.file)?;
    let Some(text) = loaded.text()? else { return Ok(Removal::Absent) };
    let removal = remove(recorded.client, text, recorded.is_new_list);
    let removal = removal.map_err(|reason| loaded.broken(reason))?;
    if matches!(removal, Removal::Rest(_)) {
        loaded.check_writable()?;
    }
    Ok(removal)
}

/// Removes the entry that `hob setup` has added to a file. Returns whether the file changed.
pub fn uninstall(entry: &RecordedEntry, record: &mut SetupRecord) -> Result<bool, HookError> {
    let changed = change(&entry.file, |text| {
        let Some(text) = text else { return Ok(None) };
        let Removal::Rest(rest) = remove(entry.client, text, entry.is_new_list)? else {
            return Ok(None);
        };
        let is_empty = rest.trim().is_empty() || rest.trim() == "{}";
        Ok(Some(if entry.is_new_file && is_empty { None } else { Some(rest) }))
    })?;
    record.drop_entry(&entry.file);
    Ok(changed)
}

fn change(
    path: &Path,
    mut edit: impl FnMut(Option<&str>) -> Result<Option<Edited>, String>,
) -> Result<bool, HookError> {
    SettingsFile::edit(path, |loaded| {
        let edited = edit(loaded.text()?).map_err(|reason| loaded.broken(reason))?;
        if edited.is_some() {
            loaded.check_writable()?;
        }
        Ok(edited)
    })
}

fn state(
    client: AgentClient,
    text: Option<&str>,
    entry: &Entry,
    is_recorded: bool,
) -> Result<EntryState, String> {
    let Some(text) = text else { return Ok(EntryState::Absent) };
    let found = if is_toml(client) { toml_entry(text)? } else { json_entry(text)? };
    Ok(match found {
        None => EntryState::Absent,
        Some(found) if is_ours(&found) && runs(&found, entry) => EntryState::Installed,
        Some(_) if is_recorded => match remove(client, text, false)? {
            Removal::Rest(_) => EntryState::Outdated,
            Removal::Absent | Removal::Changed => EntryState::Other,
        },
        Some(_) => EntryState::Other,
    })
}

/// Returns the text with the entry, or `None` if there is nothing to do.
fn edited(
    client: AgentClient,
    text: Option<&str>,
    entry: &Entry,
    found: &EntryState,
) -> Result<Option<Insertion>, String> {
    let without = match found {
        EntryState::Installed | EntryState::Other => return Ok(None),
        EntryState::Outdated => match remove(client, text.unwrap_or_default(), false)? {
            Removal::Rest(rest) => Some(rest),
            Removal::Absent | Removal::Changed => None,
        },
        EntryState::Absent => None,
    };
    insert(client, without.as_deref().or(text), entry).map(Some)
}

fn insert(client: AgentClient, text: Option<&str>, entry: &Entry) -> Result<Insertion, String> {
    match is_toml(client) {
        true => insert_toml(text.unwrap_or_default(), entry),
        false => insert_json(text, entry, client),
    }
}

fn remove(client: AgentClient, text: &str, is_new_list: bool) -> Result<Removal, String> {
    if is_toml(client) { remove_toml(text) } else { remove_json(text, is_new_list) }
}

fn is_toml(client: AgentClient) -> bool {
    client == AgentClient::Codex
}

/// Returns whether an entry runs `hob mcp` and has no settings that Hob does not write.
fn is_ours(found: &Value) -> bool {
    let program = found["command"].as_str().and_then(|command| command.rsplit('/').next());
    let has_only = |value: &Value, keys: &[&str]| {
        value
            .as_object()
            .is_some_and(|members| members.keys().all(|key| keys.contains(&key.as_str())))
    };
    program == Some(NAME)
        && found["args"] == json!(["mcp"])
        && has_only(found, &["type", "command", "args", "env"])
        && (found["env"].is_null() || has_only(&found["env"], &["HOB_HOME"]))
}

/// Returns whether an entry runs this program on this home.
fn runs(found: &Value, entry: &Entry) -> bool {
    found["command"] == *entry.program && found["env"]["HOB_HOME"].as_str() == entry.home.as_deref()
}

#[derive(Debug)]
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

fn json_servers(text: &str) -> Result<JsonServers, String> {
    if json_scan::is_blank(text) {
        return Err("the file is empty; remove it".to_owned());
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
    Ok(JsonServers { root, servers })
}

fn json_entry(text: &str) -> Result<Option<Value>, String> {
    let Some((_, list)) = json_servers(text)?.servers else { return Ok(None) };
    let entry = list.members(text, NAME).last().map(|index| list.items[*index].value.clone());
    Ok(entry.map(|range| serde_json::from_str(&text[range]).unwrap_or_default()))
}

fn insert_json(
    text: Option<&str>,
    entry: &Entry,
    client: AgentClient,
) -> Result<Insertion, String> {
    let mut value = json!({"command": entry.program, "args": ["mcp"]});
    if client == AgentClient::Claude {
        value["type"] = json!("stdio");
    }
    if let Some(home) = &entry.home {
        value["env"] = json!({"HOB_HOME": home});
    }
    let entry = format!("\"{NAME}\":{value}");
    let member = format!("\"{SERVERS}\":{{{entry}}}");
    let Some(text) = text else {
        return Ok(Insertion { text: format!("{{{member}}}\n"), is_new_list: true });
    };
    let JsonServers { root, servers } = json_servers(text)?;
    let (list, inserted, is_new_list) = match servers {
        Some((_, list)) => (list, entry, false),
        None => (root, member, true),
    };
    let comma = if list.items.is_empty() { "" } else { "," };
    let (before, after) = text.split_at(list.open + 1);
    Ok(Insertion { text: format!("{before}{inserted}{comma}{after}"), is_new_list })
}

fn remove_json(text: &str, is_new_list: bool) -> Result<Removal, String> {
    let JsonServers { root, servers } = json_servers(text)?;
    let Some((index, list)) = servers else { return Ok(Removal::Absent) };
    let named = list.members(text, NAME);
    let ours = named.iter().copied().find(|index| {
        let value = &text[list.items[*index].value.clone()];
        serde_json::from_str(value).is_ok_and(|entry: Value| is_ours(&entry))
    });
    let Some(ours) = ours else {
        return Ok(if named.is_empty() { Removal::Absent } else { Removal::Changed });
    };
    let range = match is_new_list && list.items.len() == 1 {
        true => item_range(text, &root, index),
        false => item_range(text, &list, ours),
    };
    Ok(Removal::Rest(format!("{}{}", &text[..range.start], &text[range.end..])))
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
    let Some(servers) = table.get("mcp_servers") else { return Ok(None) };
    let servers = servers.as_table().ok_or("`mcp_servers` is not a table")?;
    Ok(servers.get(NAME).map(|entry| serde_json::to_value(entry).unwrap_or_default()))
}

/// The first line of the entry in TOML.
const HEADER: &str = "[mcp_servers.hob]";

fn insert_toml(text: &str, entry: &Entry) -> Result<Insertion, String> {
    toml_entry(text)?;
    // A file without a line break at its end gets none, so that the entry can be removed exactly.
    let has_end = text.is_empty() || text.ends_with('\n');
    let (before, after) = if has_end { ("", "\n") } else { ("\n", "") };
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut entry_text =
        format!("{HEADER}\ncommand = {}\nargs = [\"mcp\"]", quoted(&entry.program));
    if let Some(home) = &entry.home {
        entry_text.push_str(&format!("\nenv = {{ HOB_HOME = {} }}", quoted(home)));
    }
    let edited = format!("{text}{before}{entry_text}{after}");
    // For example `mcp_servers` may be an inline table, which cannot be extended.
    toml_table(&edited).map_err(|_| {
        format!("`mcp_servers` is written in a form that Hob does not edit; add `hob = {{ command = {}, args = [\"mcp\"] }}` to it yourself", quoted(&entry.program))
    })?;
    Ok(Insertion { text: edited, is_new_list: false })
}

/// Removes only the lines that Hob writes.
fn remove_toml(text: &str) -> Result<Removal, String> {
    let Some(found) = toml_entry(text)? else { return Ok(Removal::Absent) };
    if !is_ours(&found) {
        return Ok(Removal::Changed);
    }
    let mut at = 0;
    let mut range: Option<Range<usize>> = None;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let is_ours = |line: &str| {
            ["command =", "args =", "env ="].iter().any(|start| line.starts_with(start))
        };
        match &mut range {
            None if line.trim() == HEADER => range = Some(at..end),
            Some(range) if range.end == at && is_ours(line.trim()) => range.end = end,
            _ => {}
        }
        at = end;
    }
    let Some(range) = range else { return Ok(Removal::Changed) };
    let has_end = range.end < text.len() || text.ends_with('\n');
    let start = range.start - usize::from(!has_end && range.start > 0);
    let rest = format!("{}{}", &text[..start], &text[range.end..]);
    // What else was in the table would now be in another one.
    let mut expected = toml_table(text)?;
    if let Some(servers) = expected.get_mut("mcp_servers").and_then(toml::Value::as_table_mut) {
        servers.remove(NAME);
        if servers.is_empty() {
            expected.remove("mcp_servers");
        }
    }
    let Ok(mut left) = toml_table(&rest) else { return Ok(Removal::Changed) };
    if left.get("mcp_servers").and_then(toml::Value::as_table).is_some_and(toml::Table::is_empty) {
        left.remove("mcp_servers");
    }
    Ok(if left == expected { Removal::Rest(rest) } else { Removal::Changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { program: "/opt/hob".to_owned(), home: None }
    }

    fn of(client: AgentClient, text: &str) -> Result<EntryState, String> {
        state(client, Some(text), &entry(), false)
    }

    fn rest(removal: Result<Removal, String>) -> String {
        match removal {
            Ok(Removal::Rest(rest)) => rest,
            other => panic!("{other:?}"),
        }
    }

    fn round_trip(text: &str) {
        let Insertion { text: edited, is_new_list } =
            insert_json(Some(text), &entry(), AgentClient::Claude).unwrap();
        assert_eq!(of(AgentClient::Claude, &edited), Ok(EntryState::Installed), "{edited}");
        assert_eq!(remove_json(&edited, is_new_list), Ok(Removal::Rest(text.to_owned())));
    }

    #[test]
    fn json_is_restored_byte_for_byte() {
        for text in [
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
        let rest = rest(remove_json(text, false));
        assert_eq!(rest, "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"other\": {}\n  }\n}\n");
        let alone = "{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"hob\": {\"command\": \"hob\", \"args\": [\"mcp\"]}\n  }\n}\n";
        assert_eq!(self::rest(remove_json(alone, true)), "{\n  \"a\": 1\n}\n");
    }

    #[test]
    fn entries_of_others_stay() {
        let text = r#"{"mcpServers":{"hob":{"command":"other"}}}"#;
        assert_eq!(of(AgentClient::Claude, text), Ok(EntryState::Other));
        assert_eq!(remove_json(text, true), Ok(Removal::Changed));
        assert_eq!(remove_json(r#"{"mcpServers":{}}"#, true), Ok(Removal::Absent));
        for broken in
            ["", "{", "[]", r#"{"mcpServers":[]}"#, r#"{"mcpServers":{},"mcpServers":{}}"#]
        {
            let inserted = insert_json(Some(broken), &entry(), AgentClient::Gemini);
            assert!(inserted.is_err(), "{broken}");
        }
        let other = r#"{"mcpServers":{"hob":{"command":"/old/hob","args":["mcp"]}}}"#;
        assert_eq!(of(AgentClient::Claude, other), Ok(EntryState::Other));
        let recorded = state(AgentClient::Claude, Some(other), &entry(), true);
        assert_eq!(recorded, Ok(EntryState::Outdated));
    }

    #[test]
    fn toml_is_restored_byte_for_byte() {
        let entry = Entry { program: "/a \"b\"/hob".to_owned(), home: Some("/my home".to_owned()) };
        for text in ["", "a = 1\n", "a = 1", "# note\n[mcp_servers.x]\ncommand = \"y\"\n\n"] {
            let edited = insert_toml(text, &entry).unwrap().text;
            let found = state(AgentClient::Codex, Some(&edited), &entry, false);
            assert_eq!(found, Ok(EntryState::Installed));
            assert_eq!(remove_toml(&edited), Ok(Removal::Rest(text.to_owned())));
        }
    }

    #[test]
    fn what_the_user_added_to_toml_stays() {
        let text = insert_toml("a = 1\n", &entry()).unwrap().text;
        let later = format!("{text}# about b\n[later]\nb = 2\n");
        let rest = rest(remove_toml(&later));
        assert_eq!(rest, "a = 1\n# about b\n[later]\nb = 2\n");
        for added in ["timeout = 2\n", "[mcp_servers.hob.env]\nX = \"y\"\n"] {
            let removed = remove_toml(&format!("{text}{added}"));
            assert_eq!(removed, Ok(Removal::Changed), "{added}");
        }
        for wrong in
            ["mcp_servers = {}\n", "mcp_servers = \"x\"\n", "[[mcp_servers]]\nx = 1\n", "a = "]
        {
            assert!(insert_toml(wrong, &entry()).is_err(), "{wrong}");
        }
    }
}
