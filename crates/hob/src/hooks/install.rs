//! Installs, shows and removes the hooks of one client.
//!
//! The settings belong to the user. An edit therefore only inserts or deletes Hob's own entries in the text, refuses a
//! file that it does not understand, replaces the file in one step, and keeps a backup. [`super::clients`] describes what
//! each client reads, [`super::json_edit`] how an edit stays reversible.

use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;

use super::clients::{self, Places};
use super::command;
use super::error::HookError;
use super::file::{self, Loaded, Outcome};
use super::json_edit::{self, EditError, Entry};
use super::wanted::hooks_for;

/// How Hob's hooks stand in the settings of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// All hooks are there and run this `hob`.
    Installed,
    /// Some hooks are there; these events have none.
    Partial { missing: Vec<String> },
    /// All hooks are there, but some run these other programs.
    Outdated { programs: Vec<String> },
    /// No hook of ours is there.
    Absent,
    /// The settings cannot be read, for this reason.
    Broken(String),
}

/// What was found or done.
#[derive(Debug, Clone)]
pub struct Report {
    pub client: AgentClient,
    pub file: PathBuf,
    /// The state afterwards.
    pub state: State,
    pub changed: bool,
    /// The backup, if there is one now.
    pub backup: Option<PathBuf>,
    /// Whole sentences about what keeps the hooks from running and is not ours to change.
    pub notes: Vec<String>,
}

/// Puts all hooks in that are missing and points older ones to `hob`, an absolute path.
pub fn install(client: AgentClient, places: &Places, hob: &Path) -> Result<Report, HookError> {
    let program = program(hob)?;
    let edit = |text: Option<&str>| json_edit::install(text, &hooks_for(client), program).map(Some);
    change(client, places, &edit)?.report(client, places, Some(program))
}

/// Takes all hooks of ours out, whichever `hob` they run.
///
/// When nothing else was changed since they were installed, the file is byte for byte what it was,
/// and the backup goes with them. Otherwise the backup stays, with the file as it was before.
pub fn uninstall(client: AgentClient, places: &Places) -> Result<Report, HookError> {
    let changed = change(client, places, &json_edit::uninstall)?;
    if changed == Change::Made {
        let named = places.settings_file(client);
        let loaded = Loaded::read(&named)?;
        file::drop_backup_equal_to(&named, loaded.text()?)?;
    }
    changed.report(client, places, None)
}

/// Says how the hooks stand and changes nothing; broken settings are a state here, not an error.
pub fn status(client: AgentClient, places: &Places, hob: &Path) -> Result<Report, HookError> {
    let program = program(hob)?;
    match Change::None.report(client, places, Some(program)) {
        Err(HookError::Broken { reason, .. }) => {
            let file = places.settings_file(client);
            let backup = existing_backup(&file);
            let state = State::Broken(reason);
            Ok(Report { client, file, state, changed: false, backup, notes: Vec::new() })
        }
        result => result,
    }
}

type Edit<'a> = &'a dyn Fn(Option<&str>) -> Result<Option<String>, EditError>;

/// How often an edit is tried again when another program writes the same file.
const ATTEMPTS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Made,
    None,
}

impl Change {
    /// Looks at the file again, so that the report tells what is, not what was meant to be.
    fn report(
        self,
        client: AgentClient,
        places: &Places,
        program: Option<&str>,
    ) -> Result<Report, HookError> {
        let file = places.settings_file(client);
        let loaded = Loaded::read(&file)?;
        let text = loaded.text()?;
        let entries = json_edit::survey(text).map_err(|error| loaded.broken(error.to_string()))?;
        let state = state(client, &entries, program);
        let notes = clients::notes(client, places, text, &entries);
        let backup = existing_backup(&file);
        Ok(Report { client, file, state, changed: self == Self::Made, backup, notes })
    }
}

fn change(client: AgentClient, places: &Places, edit: Edit<'_>) -> Result<Change, HookError> {
    let named = places.settings_file(client);
    for _ in 0..ATTEMPTS {
        let loaded = Loaded::read(&named)?;
        let before = loaded.text()?;
        let refuse = |error: EditError| loaded.broken(error.to_string());
        let after = edit(before).map_err(refuse)?;
        if after.as_deref() == before {
            return Ok(Change::None);
        }
        loaded.check_writable()?;
        loaded.back_up(json_edit::uninstall(before).map_err(refuse)?.as_deref())?;
        if loaded.replace(after.as_deref())? == Outcome::Written {
            return Ok(Change::Made);
        }
    }
    Err(HookError::Contended { file: named })
}

fn state(client: AgentClient, entries: &[Entry], program: Option<&str>) -> State {
    let wanted = hooks_for(client);
    let missing: Vec<String> = wanted
        .iter()
        .filter(|wanted| !entries.iter().any(|entry| json_edit::serves(entry, wanted)))
        .map(|wanted| wanted.event.to_owned())
        .collect();
    let mut programs: Vec<String> = entries
        .iter()
        .filter(|entry| wanted.iter().any(|wanted| json_edit::serves(entry, wanted)))
        .map(|entry| entry.command.program.clone())
        .filter(|found| program.is_some_and(|program| program != found))
        .collect();
    programs.sort();
    programs.dedup();
    if missing.len() == wanted.len() {
        State::Absent
    } else if !missing.is_empty() {
        State::Partial { missing }
    } else if !programs.is_empty() {
        State::Outdated { programs }
    } else {
        State::Installed
    }
}

/// Checks that a hook with this program would run, and would be recognised as ours later.
fn program(hob: &Path) -> Result<&str, HookError> {
    let refuse = |reason| HookError::Program { program: hob.to_owned(), reason };
    let name = hob.file_name();
    if name.is_none_or(|name| name != command::PROGRAM_NAME) {
        return Err(refuse("the program must be called `hob`"));
    }
    if !hob.is_absolute() {
        return Err(refuse("the path must be absolute"));
    }
    hob.to_str().ok_or_else(|| refuse("the path must be UTF-8"))
}

fn existing_backup(named: &Path) -> Option<PathBuf> {
    Some(file::backup_path(named)).filter(|backup| backup.exists())
}
