//! Hob's plugin for OpenCode: one file, which Hob writes and removes as a whole.
//!
//! OpenCode (1.18.33) has no hooks, but loads every script in the folder `plugins` next to its settings. The script
//! gives each finished turn to `hob capture-turn`, adds `hob mcp` to the MCP servers, and tells a new session what Hob
//! remembers. It changes no settings of OpenCode.

use std::path::Path;

use super::error::HookError;
use super::file::SettingsFile;
use super::hook_spec::json_string;

/// The script as the repository has it. It runs the `hob` on the PATH.
const SCRIPT: &str = include_str!("../../../../plugins/opencode/hob.js");
/// The line that names the program, up to the name.
const PROGRAM_LINE: &str = "const HOB = ";

/// What is at the place of the file.
#[derive(Debug, PartialEq, Eq)]
pub enum PluginFile {
    Absent,
    /// Hob's script of this version, which runs this program.
    Current {
        program: String,
    },
    /// Hob's script of another version.
    Old {
        program: String,
    },
    /// Something that Hob did not write.
    Foreign,
}

/// Returns what is at the place of the file.
pub fn find(file: &Path) -> Result<PluginFile, HookError> {
    let loaded = SettingsFile::read(file)?;
    Ok(loaded.text()?.map_or(PluginFile::Absent, recognise))
}

/// Writes the script that runs this program. Returns whether the file changed. A file that Hob did not write stays.
pub fn install(file: &Path, program: &str) -> Result<bool, HookError> {
    let script = script(program);
    SettingsFile::edit(file, |loaded| {
        let before = loaded.text()?;
        if before == Some(script.as_str()) {
            return Ok(None);
        }
        refuse_foreign(loaded, before)?;
        loaded.check_writable()?;
        Ok(Some(Some(script.clone())))
    })
}

/// Removes the script. Returns whether there was one. A file that Hob did not write stays.
pub fn uninstall(file: &Path) -> Result<bool, HookError> {
    SettingsFile::edit(file, |loaded| {
        let before = loaded.text()?;
        if before.is_none() {
            return Ok(None);
        }
        refuse_foreign(loaded, before)?;
        loaded.check_writable()?;
        Ok(Some(None))
    })
}

fn refuse_foreign(loaded: &SettingsFile, text: Option<&str>) -> Result<(), HookError> {
    match text.map(recognise) {
        Some(PluginFile::Foreign) => Err(loaded.broken(FOREIGN.to_owned())),
        _ => Ok(()),
    }
}

/// Why a file that Hob did not write stays.
pub const FOREIGN: &str = "Hob did not write this file; rename it and try again";

fn script(program: &str) -> String {
    let line = |line: &str| match line.strip_prefix(PROGRAM_LINE) {
        Some(_) => format!("{PROGRAM_LINE}{};\n", json_string(program)),
        None => line.to_owned(),
    };
    SCRIPT.split_inclusive('\n').map(line).collect()
}

fn recognise(text: &str) -> PluginFile {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let named = text.lines().find_map(|line| line.strip_prefix(PROGRAM_LINE)?.strip_suffix(';'));
    let program = named.and_then(|name| serde_json::from_str::<String>(name).ok());
    match program {
        Some(program) if text == script(&program) => PluginFile::Current { program },
        Some(program) if first(text) == first(SCRIPT) => PluginFile::Old { program },
        _ => PluginFile::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_scripts_are_recognised() {
        let current = |program: &str| PluginFile::Current { program: program.to_owned() };
        assert_eq!(recognise(SCRIPT), current("hob"));
        let odd = "/a \"b\"/$&/hob";
        assert_eq!(recognise(&script(odd)), current(odd));
        let old = format!("{SCRIPT}// more\n");
        assert_eq!(recognise(&old), PluginFile::Old { program: "hob".to_owned() });
        for other in ["", "export const Mine = async () => ({});\nconst HOB = \"hob\";\n"] {
            assert_eq!(recognise(other), PluginFile::Foreign, "{other}");
        }
    }
}
