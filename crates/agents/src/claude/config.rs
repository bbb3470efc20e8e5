//! The configuration folder of Claude Code: Hob's own, in which an unattended `claude` shows no dialog,
//! or the user's.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hob_domain::secret::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use hob_files::{owned, write_new};

use crate::owner_copy::copy_from_owner;

/// Variables with which Claude Code needs no login.
const KEY_VARIABLES: [&str; 3] =
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];

/// The configuration folder that an agent uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigFolder {
    /// A folder that Hob made, for one app.
    Own(PathBuf),
    /// The user's folder, for an agent that the user trusts (`sandbox = "off"`).
    Users(PathBuf),
}

impl ConfigFolder {
    /// Chooses the folder for an agent with this environment. An agent with a key and an agent in a sandbox get a
    /// folder below `parent`, others the user's. In a sandbox without a key, the user's login is copied.
    pub fn for_environment(
        environment: &[(OsString, OsString)],
        parent: &Path,
        sandboxed: bool,
    ) -> io::Result<ConfigFolder> {
        let value = |name: &str| {
            let found = environment.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value).filter(|value| !value.is_empty())
        };
        if let Some(key) = KEY_VARIABLES.into_iter().find_map(value) {
            return prepare_own_folder(parent, &key.to_string_lossy()).map(ConfigFolder::Own);
        }
        let (folder, state) = match (value("CLAUDE_CONFIG_DIR"), value("HOME")) {
            (Some(folder), _) => (PathBuf::from(folder), Path::new(folder).join(".claude.json")),
            (None, Some(home)) => {
                (Path::new(home).join(".claude"), Path::new(home).join(".claude.json"))
            }
            (None, None) => {
                return Err(io::Error::other(
                    "neither HOME nor CLAUDE_CONFIG_DIR is set in the agent's environment; set one in agents.NAME.env",
                ));
            }
        };
        if !sandboxed {
            return Ok(ConfigFolder::Users(folder));
        }
        prepare_login_folder(parent, &folder.join(".credentials.json"), &state)
            .map(ConfigFolder::Own)
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
    let tail: String = {
        let letters: Vec<char> = api_key.chars().collect();
        letters[letters.len().saturating_sub(20)..].iter().collect()
    };
    write_state(
        parent.join(name),
        json!({"customApiKeyResponses": {"approved": [tail], "rejected": []}}),
    )
}

/// Creates the configuration folder for the user's login below `parent`, unless it exists, and copies the login, which
/// lies in the file `credentials`. `state` is the user's `.claude.json`, which names the account.
fn prepare_login_folder(parent: &Path, credentials: &Path, state: &Path) -> io::Result<PathBuf> {
    let read = |path: &Path| -> Value {
        let text = owned::read(path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    let expires = read(credentials)["claudeAiOauth"]["expiresAt"].as_u64();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    if expires.is_some_and(|expires| u128::from(expires) <= now) {
        return Err(io::Error::other(
            "your login of Claude Code has expired: use `claude` once yourself, or set ANTHROPIC_API_KEY or \
             CLAUDE_CODE_OAUTH_TOKEN for `hob serve`",
        ));
    }
    let state = read(state);
    let more =
        json!({"oauthAccount": state["oauthAccount"], "primaryApiKey": state["primaryApiKey"]});
    let folder = write_state(parent.join("login"), more)?;
    copy_from_owner(credentials, &folder, Path::new(".credentials.json"))?;
    Ok(folder)
}

/// Creates a folder in which the program asks nothing, with these further fields of its state.
fn write_state(folder: PathBuf, more: Value) -> io::Result<PathBuf> {
    owned::create_dir_all(&folder)?;
    let mut state = json!({
        "hasCompletedOnboarding": true,
        "bypassPermissionsModeAccepted": true,
        "projects": {"/": {
            "hasTrustDialogAccepted": true,
            "hasClaudeMdExternalIncludesApproved": true,
            "hasClaudeMdExternalIncludesWarningShown": true,
        }},
    });
    if let (Some(state), Value::Object(more)) = (state.as_object_mut(), more) {
        state.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    let settings =
        json!({"skipDangerousModePermissionPrompt": true, "enableAllProjectMcpServers": true});
    write_new(&folder.join(".claude.json"), state.to_string().as_bytes())?;
    write_new(&folder.join("settings.json"), settings.to_string().as_bytes())?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn api_key_gets_own_folder_and_trusted_login_the_users() {
        let parent = tempfile::tempdir().unwrap();
        let choose = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.into(), v.into())).collect();
            ConfigFolder::for_environment(&pairs, parent.path(), false)
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
    fn login_in_a_sandbox_is_a_copy_without_the_refresh_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path(".claude")).unwrap();
        fs::write(
            path(".claude/.credentials.json"),
            r#"{"claudeAiOauth":{"accessToken":"a","refreshToken":"r","expiresAt":99999999999999}}"#,
        )
        .unwrap();
        fs::write(
            path(".claude.json"),
            r#"{"oauthAccount":{"emailAddress":"me@x"},"mcpServers":{"x":{}}}"#,
        )
        .unwrap();
        let environment = [("HOME".into(), folder.path().into())];
        let chosen = ConfigFolder::for_environment(&environment, &path("apps"), true).unwrap();
        let ConfigFolder::Own(own) = chosen else { panic!("{chosen:?}") };
        assert!(own.starts_with(path("apps")));
        let read = |name: &str| -> Value {
            serde_json::from_slice(&fs::read(own.join(name)).unwrap()).unwrap()
        };
        let login = read(".credentials.json");
        assert_eq!(login["claudeAiOauth"]["accessToken"], "a");
        assert_eq!(login["claudeAiOauth"]["refreshToken"], "");
        let state = read(".claude.json");
        assert_eq!(state["oauthAccount"]["emailAddress"], "me@x");
        assert!(state["mcpServers"].is_null(), "commands of the user's are not copied");
        fs::write(
            path(".claude/.credentials.json"),
            r#"{"claudeAiOauth":{"accessToken":"a","refreshToken":"r","expiresAt":9}}"#,
        )
        .unwrap();
        let expired = ConfigFolder::for_environment(&environment, &path("apps"), true);
        assert!(expired.unwrap_err().to_string().contains("has expired"));
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
