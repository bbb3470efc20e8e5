//! The configuration folder of Claude Code: Hob's own, in which an unattended `claude` shows no dialog,
//! or the user's.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hob_domain::secret::hex;
use serde_json::json;
use sha2::{Digest, Sha256};

use hob_files::write_new;

/// The configuration folder that an agent uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFolder {
    /// Made by [`prepare_own_folder`], for an agent with an API key.
    Own(PathBuf),
    /// The user's folder, with the user's login. Credentials are never copied: refreshing a copy would
    /// log the user out.
    Users(PathBuf),
}

impl ConfigFolder {
    /// Chooses the folder for an agent with this environment: Hob's own below `parent` if there is an API
    /// key, else the user's.
    pub fn for_environment(
        environment: &[(OsString, OsString)],
        parent: &Path,
    ) -> io::Result<ConfigFolder> {
        let value = |name: &str| {
            let found = environment.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value).filter(|value| !value.is_empty())
        };
        if let Some(key) = value("ANTHROPIC_API_KEY").or_else(|| value("ANTHROPIC_AUTH_TOKEN")) {
            return prepare_own_folder(parent, &key.to_string_lossy()).map(ConfigFolder::Own);
        }
        match (value("CLAUDE_CONFIG_DIR"), value("HOME")) {
            (Some(folder), _) => Ok(ConfigFolder::Users(folder.into())),
            (None, Some(home)) => Ok(ConfigFolder::Users(Path::new(home).join(".claude"))),
            (None, None) => Err(io::Error::other(
                "neither HOME nor CLAUDE_CONFIG_DIR is set in the agent's environment; set one in agents.NAME.env",
            )),
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            ConfigFolder::Own(path) | ConfigFolder::Users(path) => path,
        }
    }
}

/// Creates the configuration folder for an API key below `parent`, unless it exists, and returns it.
///
/// Its files are written once and then left to the CLI, which rewrites `.claude.json` itself. The root
/// folder is marked as trusted, and with it every folder: sessions get their folder from Hob, and a
/// question that nobody sees protects nobody.
pub fn prepare_own_folder(parent: &Path, api_key: &str) -> io::Result<PathBuf> {
    let name = hex(&Sha256::digest(api_key.as_bytes())[..8]);
    let folder = parent.join(name);
    fs::create_dir_all(&folder)?;
    let tail: String = {
        let letters: Vec<char> = api_key.chars().collect();
        letters[letters.len().saturating_sub(20)..].iter().collect()
    };
    let state = json!({
        "hasCompletedOnboarding": true,
        "bypassPermissionsModeAccepted": true,
        "customApiKeyResponses": {"approved": [tail], "rejected": []},
        "projects": {"/": {
            "hasTrustDialogAccepted": true,
            "hasClaudeMdExternalIncludesApproved": true,
            "hasClaudeMdExternalIncludesWarningShown": true,
        }},
    });
    let settings =
        json!({"skipDangerousModePermissionPrompt": true, "enableAllProjectMcpServers": true});
    write_new(&folder.join(".claude.json"), state.to_string().as_bytes())?;
    write_new(&folder.join("settings.json"), settings.to_string().as_bytes())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_gets_own_folder_and_login_the_users() {
        let parent = tempfile::tempdir().unwrap();
        let choose = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.into(), v.into())).collect();
            ConfigFolder::for_environment(&pairs, parent.path())
        };
        let own = choose(&[("HOME", "/h"), ("ANTHROPIC_API_KEY", "sk-1")]).unwrap();
        assert!(matches!(own, ConfigFolder::Own(path) if path.starts_with(parent.path())));
        let users = |path: &str| ConfigFolder::Users(path.into());
        assert_eq!(
            choose(&[("HOME", "/h"), ("ANTHROPIC_API_KEY", "")]).unwrap(),
            users("/h/.claude")
        );
        assert_eq!(choose(&[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "/c")]).unwrap(), users("/c"));
        assert!(choose(&[]).is_err());
    }

    #[test]
    fn a_folder_per_key_made_once() {
        let parent = tempfile::tempdir().unwrap();
        let folder =
            prepare_own_folder(parent.path(), "sk-0123456789-0123456789-0123456789").unwrap();
        let file = folder.join(".claude.json");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(r#"["123456789-0123456789"]"#), "{text}");
        assert!(!text.contains("sk-"), "the key itself is not in it");
        fs::write(&file, "the CLI's own").unwrap();
        prepare_own_folder(parent.path(), "sk-0123456789-0123456789-0123456789").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "the CLI's own");
        assert_ne!(prepare_own_folder(parent.path(), "another").unwrap(), folder);
    }
}
