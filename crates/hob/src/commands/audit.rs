//! The owner's acts of commands that do not go through the server, in the audit log.

use std::io::Write;

use anyhow::Context as _;
use hob_domain::Timestamp;
use hob_files::owned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::home::Home;
use crate::migration_guard::Opener;
use crate::printer::errln;
use crate::settings::Resolved;
use crate::{keys, ledger, memory};

/// An act that is not in the audit log yet.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotedAct {
    pub at: Timestamp,
    pub action: String,
    pub target: String,
}

/// Writes an act into the audit log. A home that cannot be written must stay readable, so a failure is a warning.
pub fn record(settings: &Resolved, action: &str, target: &str) {
    if let Err(error) = append(settings, action, target) {
        warn(action, &error);
    }
}

/// Notes an act on the databases or the settings. The ledger may be missing, damaged or unknown at this time, so the next
/// start of the server writes the act into the audit log.
pub fn note(home: &Home, action: &str, target: &str) {
    if let Err(error) = append_note(home, action, target) {
        warn(action, &error);
    }
}

fn warn(action: &str, error: &anyhow::Error) {
    errln!("hob: warning: cannot write {action} into the audit log: {error:#}");
}

fn append(settings: &Resolved, action: &str, target: &str) -> anyhow::Result<()> {
    let _shared = settings.home.share_store()?;
    let key = keys::data_key(&settings.home, settings.passphrase.as_deref())?;
    memory::runtime()?.block_on(async {
        let store = ledger::open(settings, &key, Opener::Command).await?.ledger;
        store.append_audit(Timestamp::now(), action, target, &json!({})).await?;
        Ok(())
    })
}

fn append_note(home: &Home, action: &str, target: &str) -> anyhow::Result<()> {
    let (action, target) = (action.to_owned(), target.to_owned());
    let mut line = serde_json::to_vec(&NotedAct { at: Timestamp::now(), action, target })?;
    line.push(b'\n');
    let path = home.noted_acts();
    let mut file = owned::open_to_append(&path, 0o600)
        .with_context(|| format!("cannot open {}", path.display()))?;
    file.write_all(&line)?;
    Ok(file.sync_all()?)
}

/// Returns the acts that were noted. They stay noted until [`forget_notes`], so that none is lost if the server is killed
/// meanwhile.
pub fn notes(home: &Home) -> Vec<NotedAct> {
    let taken = home.taken_acts();
    // Acts that are noted from now on are for the next start.
    if !taken.exists() {
        let _ = owned::rename(home.noted_acts(), &taken);
    }
    let text = owned::read_to_string(&taken).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Removes the acts that [`notes`] returned.
pub fn forget_notes(home: &Home) -> anyhow::Result<()> {
    let taken = home.taken_acts();
    if taken.exists() {
        owned::remove_file(&taken).with_context(|| format!("cannot remove {}", taken.display()))?;
    }
    Ok(())
}
