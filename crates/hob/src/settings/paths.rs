//! The paths of the home and the socket, which come from the environment alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::source::{SettingsError, Source};
use crate::home::Home;

/// Returns the path of the socket. The MCP bridge needs nothing else, and must start fast.
pub fn socket_path() -> Result<PathBuf, SettingsError> {
    let names =
        ["HOB_SOCKET", "IAI_DAEMON_SOCKET_PATH", "HOB_HOME", "IAI_MCP_STORE", "HOME"].into_iter();
    let set = names.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let environment = set.collect();
    let (root, _) = home(&environment).ok_or(SettingsError::NoHome)?;
    Ok(socket(&environment, &Home::new(root)).0)
}

pub fn home(environment: &BTreeMap<String, String>) -> Option<(PathBuf, Source)> {
    let (value, source) = from_environment(environment, &["HOB_HOME", "IAI_MCP_STORE"])
        .map(|(value, source)| (PathBuf::from(value), source))
        .or_else(|| {
            let home = environment.get("HOME").filter(|home| !home.is_empty())?;
            Some((PathBuf::from(home).join(".hob"), Source::Default))
        })?;
    // Agents run in other folders, where a relative path would be another home.
    Some((std::path::absolute(&value).unwrap_or(value), source))
}

pub fn socket(environment: &BTreeMap<String, String>, home: &Home) -> (PathBuf, Source) {
    from_environment(environment, &["HOB_SOCKET", "IAI_DAEMON_SOCKET_PATH"]).map_or_else(
        || (home.root().join("hob.sock"), Source::Default),
        |(value, source)| (std::path::absolute(&value).unwrap_or_else(|_| value.into()), source),
    )
}

/// Returns the first of these variables that is set and not empty.
pub fn from_environment(
    environment: &BTreeMap<String, String>,
    names: &[&str],
) -> Option<(String, Source)> {
    names.iter().find_map(|name| {
        let value = environment.get(*name).filter(|value| !value.is_empty())?;
        Some((value.clone(), Source::Environment((*name).to_owned())))
    })
}

/// Replaces a leading `~` by the user's home folder.
pub fn expand(path: &str, environment: &BTreeMap<String, String>) -> PathBuf {
    match (path.strip_prefix('~'), environment.get("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}
