//! `hob claude prepare`: accepts Claude Code's trust dialog for a folder in advance.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args as ClapArgs, Subcommand};
use hob_files::{owned, write_over};
use serde_json::{Map, Value, json};

use super::Exit;
use crate::printer::{self, outln};

/// Prepare your Claude Code installation for unattended sessions
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    action: ClaudeAction,
}

#[derive(Subcommand)]
enum ClaudeAction {
    /// Mark a folder as trusted, so that Claude Code does not show its trust dialog
    #[command(after_help = "\
Stop all running `claude` processes first; a running one would overwrite the change.

Adds hasTrustDialogAccepted for the folder to Claude Code's .claude.json (in $CLAUDE_CONFIG_DIR or your home \
folder), changes nothing else in it, and keeps the previous file as .claude.json.before-hob. Trusting a folder also \
trusts its subfolders. Agents that sign in with an API key do not need this; Hob gives them their own configuration.")]
    Prepare {
        /// Folder to trust
        #[arg(default_value = ".")]
        folder: PathBuf,
        /// Print {"folder":…,"file":…,"changed":…}
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let ClaudeAction::Prepare { folder, json } = &args.action;
    let folder = folder
        .canonicalize()
        .with_context(|| format!("cannot find the folder {}", folder.display()))?;
    let file = config_file().context("cannot determine your home folder: set HOME")?;
    let changed = trust(&file, &folder)?;
    if *json {
        let (folder, file) = (folder.to_string_lossy(), file.to_string_lossy());
        printer::out_json(&json!({"folder": folder, "file": file, "changed": changed}));
    } else if changed {
        outln!("Claude Code now trusts {} ({})", folder.display(), file.display());
    } else {
        outln!("Claude Code already trusts {}", folder.display());
    }
    Ok(Exit::Done)
}

/// Returns the path of Claude Code's state file.
fn config_file() -> Option<PathBuf> {
    let folder = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty());
    let folder = folder.or_else(|| std::env::var_os("HOME").filter(|home| !home.is_empty()))?;
    Some(PathBuf::from(folder).join(".claude.json"))
}

/// Marks the folder as trusted. Returns `false` if it, or a folder around it, already is.
fn trust(file: &Path, folder: &Path) -> anyhow::Result<bool> {
    let text = match owned::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", file.display()));
        }
    };
    let mut config: Map<String, Value> = match &text {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).with_context(|| {
            format!("{} is not a JSON object; hob did not change it", file.display())
        })?,
    };
    let projects = config.entry("projects").or_insert_with(|| json!({}));
    let Some(projects) = projects.as_object_mut() else {
        bail!("{}: \"projects\" is not an object; hob did not change the file", file.display());
    };
    let trusted = |folder: &Path| {
        let entry = projects.get(folder.to_string_lossy().as_ref());
        entry.is_some_and(|entry| entry["hasTrustDialogAccepted"] == true)
    };
    if folder.ancestors().any(trusted) {
        return Ok(false);
    }
    let entry = projects.entry(folder.to_string_lossy()).or_insert_with(|| json!({}));
    let Some(entry) = entry.as_object_mut() else {
        bail!(
            "{}: the entry for this folder under \"projects\" is not an object; hob did not change the file",
            file.display()
        );
    };
    entry.insert("hasTrustDialogAccepted".to_owned(), json!(true));
    let mode = fs::metadata(file).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    if let Some(text) = &text {
        replace(&file.with_file_name(".claude.json.before-hob"), text, mode)?;
    }
    replace(file, &serde_json::to_string_pretty(&config)?, mode)?;
    Ok(true)
}

fn replace(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    write_over(path, text.as_bytes(), mode)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_changes_nothing_else_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".claude.json");
        let before = json!({"z": 1, "a": {"x": [1, 2]}, "projects": {"/p": {"k": "v"}}});
        fs::write(&file, before.to_string()).unwrap();
        assert!(trust(&file, Path::new("/srv/work")).unwrap());
        let mut expect = before.clone();
        expect["projects"]["/srv/work"] = json!({"hasTrustDialogAccepted": true});
        let after: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(after, expect);
        assert!(!trust(&file, Path::new("/srv/work/inner")).unwrap(), "a parent covers it");
        let kept = fs::read_to_string(folder.path().join(".claude.json.before-hob")).unwrap();
        assert_eq!(kept, before.to_string());
    }

    #[test]
    fn broken_file_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".claude.json");
        for broken in ["{", "[]", r#"{"projects": 3}"#, r#"{"projects": {"/srv": 3}}"#] {
            fs::write(&file, broken).unwrap();
            assert!(trust(&file, Path::new("/srv")).is_err(), "{broken}");
            assert_eq!(fs::read_to_string(&file).unwrap(), broken);
        }
        fs::remove_file(&file).unwrap();
        assert!(trust(&file, Path::new("/srv")).unwrap(), "a new file is made");
    }
}
