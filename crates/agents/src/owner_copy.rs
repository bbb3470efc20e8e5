//! Copies of the owner's logins and settings in folders of apps.
//!
//! Agents of apps never work in the owner's configuration folders: files there name commands that the owner's own
//! programs run. A copy of a login has no token with which new tokens are issued. An agent that renewed the login
//! would log the owner out, and one that leaked it would give away more than the tokens of some hours.

use std::io::{self, Read, Write};
use std::path::Path;

use hob_files::{Folder, owned};
use serde_json::Value;

/// Larger files are not copied.
const MAX_BYTES: u64 = 4 << 20;
/// The names that agents give to tokens with which new tokens are issued.
const REFRESH_KEYS: [&str; 3] = ["refresh", "refreshToken", "refresh_token"];

/// Copies a file of the owner's to the path `below` a folder that agents can change but not replace. Nothing happens if
/// the owner has no such file or if the copy is up to date.
pub fn copy_from_owner(from: &Path, folder: &Path, below: &Path) -> io::Result<()> {
    let mut content = Vec::new();
    match owned::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?.take(MAX_BYTES + 1).read_to_end(&mut content)?,
    };
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("{} is too large to be copied", from.display())));
    }
    let content = without_refresh_tokens(content);
    let folder = Folder::open(folder)?;
    if folder.read(below, MAX_BYTES).is_ok_and(|copy| copy == content) {
        return Ok(());
    }
    let (parent, name) =
        below.parent().zip(below.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let parent = folder.create_folders(parent, 0o700)?;
    // Complete under another name first: other agents of the app may be reading it.
    let new = format!(".new-{}", uuid::Uuid::new_v4().simple());
    parent.create_file(Path::new(&new), 0o600)?.write_all(&content)?;
    if parent.replace(new.as_ref(), name).is_ok() {
        return Ok(());
    }
    // A folder of that name is the agent's own doing.
    let aside = format!(".replaced-{}", uuid::Uuid::new_v4().simple());
    parent.rename(name, &parent, aside.as_ref())?;
    parent.replace(new.as_ref(), name)
}

/// Empties the refresh tokens of a JSON document. Other content stays as it is.
fn without_refresh_tokens(content: Vec<u8>) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(&content) else { return content };
    if empty_refresh_tokens(&mut value) { value.to_string().into_bytes() } else { content }
}

/// Returns whether there was one.
fn empty_refresh_tokens(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter_mut().fold(false, |found, (key, value)| {
            let is_token = REFRESH_KEYS.contains(&key.as_str()) && value.is_string();
            if is_token {
                *value = Value::String(String::new());
            }
            is_token | empty_refresh_tokens(value) | found
        }),
        Value::Array(values) => {
            values.iter_mut().fold(false, |found, value| empty_refresh_tokens(value) | found)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn copy_has_no_refresh_token_and_follows_changes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, private) = (folder.path().join("auth.json"), folder.path().join("app"));
        fs::create_dir(&private).unwrap();
        let below = Path::new("codex/auth.json");
        copy_from_owner(&from, &private, below).unwrap();
        assert!(!private.join(below).exists(), "there is nothing to copy");
        for token in ["one", "two"] {
            let login = format!(
                r#"{{"a":{{"refreshToken":"r-{token}","accessToken":"{token}"}},"l":[{{"refresh":"r"}}],"refresh":3}}"#
            );
            fs::write(&from, login).unwrap();
            copy_from_owner(&from, &private, below).unwrap();
            let copy = fs::read_to_string(private.join(below)).unwrap();
            assert_eq!(
                copy,
                format!(
                    r#"{{"a":{{"refreshToken":"","accessToken":"{token}"}},"l":[{{"refresh":""}}],"refresh":3}}"#
                )
            );
        }
        let left = fs::read_dir(private.join("codex")).unwrap().count();
        assert_eq!(left, 1, "no copy of an earlier login is left");
        let mode = fs::metadata(private.join(below)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn link_in_the_apps_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["app", "app2", "elsewhere"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("auth.json"), "key = 1").unwrap();
        fs::write(path("elsewhere/file"), "the owner's").unwrap();
        symlink(path("elsewhere/file"), path("app/auth.json")).unwrap();
        copy_from_owner(&path("auth.json"), &path("app"), Path::new("auth.json")).unwrap();
        assert_eq!(fs::read_to_string(path("elsewhere/file")).unwrap(), "the owner's");
        assert_eq!(fs::read_to_string(path("app/auth.json")).unwrap(), "key = 1");
        symlink(path("elsewhere"), path("app2/codex")).unwrap();
        let below = Path::new("codex/auth.json");
        assert!(copy_from_owner(&path("auth.json"), &path("app2"), below).is_err());
        assert!(!path("elsewhere/auth.json").exists());
    }
}
