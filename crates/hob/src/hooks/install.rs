//! Installs, shows and removes the hooks of one client, or its plugin where it has no hooks.
//!
//! The settings belong to the user. An edit therefore only inserts or deletes Hob's own entries in
//! the text, refuses a file that it does not understand, replaces the file in one step, and keeps a
//! backup. [`super::clients`] describes what each client reads, [`super::json_edit`] how an edit
//! stays reversible.

use std::path::{Path, PathBuf};

use hob_transcript::AgentClient;

use super::clients::{self, ClientFolders};
use super::command;
use super::error::HookError;
use super::file::{self, SettingsFile};
use super::hook_spec::hooks_for;
use super::json_edit::{self, EditError, HookEntry};
use super::plugin;
use super::plugin_file::{self, PluginFile};

/// The state of Hob's hooks in the settings of one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookState {
    /// All hooks exist and run this `hob`.
    Installed,
    /// Some hooks exist; the named events have none.
    Partial { missing: Vec<String> },
    /// All hooks exist, but some run the named programs instead of this `hob`.
    Outdated { programs: Vec<String> },
    /// The settings have no hooks of Hob, but Hob's plugin brings them.
    Plugin,
    /// There are no hooks of Hob.
    Absent,
    /// The settings file cannot be edited; the text gives the reason.
    Broken(String),
}

/// The result of a command for one client.
#[derive(Debug, Clone)]
pub struct Report {
    pub client: AgentClient,
    pub file: PathBuf,
    /// The state after the command.
    pub state: HookState,
    pub changed: bool,
    /// The backup, if one exists after the command.
    pub backup: Option<PathBuf>,
    /// Sentences about settings that keep the hooks from running and that only the user may change.
    pub notes: Vec<String>,
    /// The id of Hob's plugin, if it is enabled.
    pub plugin: Option<String>,
}

/// Adds the missing hooks, and changes existing ones to run `hob`, an absolute path. Adds none if Hob's plugin brings
/// them.
pub fn install(
    client: AgentClient,
    folders: &ClientFolders,
    hob: &Path,
) -> Result<Report, HookError> {
    let program = program(hob)?;
    if client == AgentClient::Opencode {
        let file = folders.settings_file(client);
        let change = Change::of(plugin_file::install(&file, program)?);
        return change.report_script(file, Some(program));
    }
    let found = Change::None.report(client, folders, Some(program))?;
    if found.state == HookState::Plugin {
        return Ok(found);
    }
    let edit = |text: Option<&str>| json_edit::install(text, &hooks_for(client), program).map(Some);
    change(client, folders, &edit)?.report(client, folders, Some(program))
}

/// Removes all hooks that run a `hob`.
///
/// If the file has not changed otherwise since the installation, it is byte for byte what it was,
/// and the backup is removed. Otherwise the backup stays, with the file as it was before the
/// installation.
pub fn uninstall(client: AgentClient, folders: &ClientFolders) -> Result<Report, HookError> {
    if client == AgentClient::Opencode {
        let file = folders.settings_file(client);
        return Change::of(plugin_file::uninstall(&file)?).report_script(file, None);
    }
    let changed = change(client, folders, &json_edit::uninstall)?;
    if changed == Change::Made {
        let named = folders.settings_file(client);
        let loaded = SettingsFile::read(&named)?;
        file::drop_backup_equal_to(&named, loaded.text()?)?;
    }
    changed.report(client, folders, None)
}

/// Returns the state of the hooks and changes nothing. A broken settings file is a state, not an
/// error.
pub fn status(
    client: AgentClient,
    folders: &ClientFolders,
    hob: &Path,
) -> Result<Report, HookError> {
    let program = program(hob)?;
    if client == AgentClient::Opencode {
        return Change::None.report_script(folders.settings_file(client), Some(program));
    }
    match Change::None.report(client, folders, Some(program)) {
        Err(HookError::Broken { reason, .. }) => {
            let file = folders.settings_file(client);
            let backup = existing_backup(&file);
            let state = HookState::Broken(reason);
            let plugin = plugin::enabled(client, folders);
            Ok(Report { client, file, state, changed: false, backup, notes: Vec::new(), plugin })
        }
        result => result,
    }
}

/// Returns whether the settings have hooks that run a `hob`, which [`uninstall`] would remove.
pub fn has_hooks(client: AgentClient, folders: &ClientFolders) -> Result<bool, HookError> {
    let loaded = SettingsFile::read(&folders.settings_file(client))?;
    if client == AgentClient::Opencode {
        let found = plugin_file::find(&folders.settings_file(client))?;
        let has_script = !matches!(found, PluginFile::Absent | PluginFile::Foreign);
        if has_script {
            loaded.check_writable()?;
        }
        return Ok(has_script);
    }
    let before = loaded.text()?;
    let after = json_edit::uninstall(before).map_err(|error| loaded.broken(error.to_string()))?;
    let has_hooks = after.as_deref() != before;
    if has_hooks {
        loaded.check_writable()?;
    }
    Ok(has_hooks)
}

type Edit<'a> = &'a dyn Fn(Option<&str>) -> Result<Option<String>, EditError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Made,
    None,
}

impl Change {
    fn of(is_changed: bool) -> Change {
        if is_changed { Change::Made } else { Change::None }
    }

    /// Reads the script of OpenCode again, so that the report shows the actual state.
    fn report_script(self, file: PathBuf, program: Option<&str>) -> Result<Report, HookError> {
        let state = match plugin_file::find(&file)? {
            PluginFile::Absent => HookState::Absent,
            PluginFile::Foreign => HookState::Broken(plugin_file::FOREIGN.to_owned()),
            PluginFile::Current { program: found } if program.is_none_or(|own| own == found) => {
                HookState::Installed
            }
            PluginFile::Current { program } => HookState::Outdated { programs: vec![program] },
            PluginFile::Old { program } => {
                HookState::Outdated { programs: vec![format!("{program} as of another version")] }
            }
        };
        let (client, changed) = (AgentClient::Opencode, self == Self::Made);
        Ok(Report { client, file, state, changed, backup: None, notes: Vec::new(), plugin: None })
    }

    /// Reads the file again, so that the report shows the actual state.
    fn report(
        self,
        client: AgentClient,
        folders: &ClientFolders,
        program: Option<&str>,
    ) -> Result<Report, HookError> {
        let file = folders.settings_file(client);
        let loaded = SettingsFile::read(&file)?;
        let text = loaded.text()?;
        let entries = json_edit::survey(text).map_err(|error| loaded.broken(error.to_string()))?;
        let plugin = plugin::enabled(client, folders);
        let state = match state(client, &entries, program) {
            HookState::Absent if plugin.is_some() && plugin::finds_hob() => HookState::Plugin,
            state => state,
        };
        let notes = clients::notes(client, folders, text, &entries);
        let backup = existing_backup(&file);
        Ok(Report { client, file, state, changed: self == Self::Made, backup, notes, plugin })
    }
}

fn change(
    client: AgentClient,
    folders: &ClientFolders,
    edit: Edit<'_>,
) -> Result<Change, HookError> {
    let changed = SettingsFile::edit(&folders.settings_file(client), |loaded| {
        let before = loaded.text()?;
        let refuse = |error: EditError| loaded.broken(error.to_string());
        let after = edit(before).map_err(refuse)?;
        if after.as_deref() == before {
            return Ok(None);
        }
        loaded.check_writable()?;
        loaded.back_up(json_edit::uninstall(before).map_err(refuse)?.as_deref())?;
        Ok(Some(after))
    })?;
    Ok(Change::of(changed))
}

fn state(client: AgentClient, entries: &[HookEntry], program: Option<&str>) -> HookState {
    let specs = hooks_for(client);
    let missing: Vec<String> = specs
        .iter()
        .filter(|spec| !entries.iter().any(|entry| json_edit::matches(entry, spec)))
        .map(|spec| spec.event.to_owned())
        .collect();
    let mut programs: Vec<String> = entries
        .iter()
        .filter(|entry| specs.iter().any(|spec| json_edit::matches(entry, spec)))
        .map(|entry| entry.command.program.clone())
        .filter(|found| program.is_some_and(|program| program != found))
        .collect();
    programs.sort();
    programs.dedup();
    if missing.len() == specs.len() {
        HookState::Absent
    } else if !missing.is_empty() {
        HookState::Partial { missing }
    } else if !programs.is_empty() {
        HookState::Outdated { programs }
    } else {
        HookState::Installed
    }
}

/// Checks that a hook with this program would run, and that Hob would recognise it later.
fn program(hob: &Path) -> Result<&str, HookError> {
    let refuse = |reason| HookError::Program { program: hob.to_owned(), reason };
    let name = hob.file_name();
    if name.is_none_or(|name| name != command::PROGRAM_NAME) {
        return Err(refuse("its file name must be `hob`; rename it"));
    }
    if !hob.is_absolute() {
        return Err(refuse("its path must be absolute; run hob by its full path"));
    }
    hob.to_str().ok_or_else(|| refuse("its path must be UTF-8; move it to another folder"))
}

fn existing_backup(named: &Path) -> Option<PathBuf> {
    Some(file::backup_path(named)).filter(|backup| backup.exists())
}
