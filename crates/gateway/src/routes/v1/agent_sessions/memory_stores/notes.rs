//! The notes in the app's memory that have the current texts of its stores.

use hob_domain::memory::{
    Forget, Principal, ProjectLocation, RecordId, Tier, TurnRole, TurnSource,
};
use hob_domain::{AppName, StoreError, Timestamp};
use hob_memory::Note;

use super::document::MemoryVersion;
use crate::state::Gateway;

/// Returns the project of a store's notes.
pub(super) fn project(store_id: &str) -> String {
    format!("/memory_stores/{store_id}")
}

/// Stores the text of a version. Returns the note.
pub(super) async fn remember(
    gateway: &Gateway,
    app: &AppName,
    store_id: &str,
    version: &MemoryVersion,
) -> Result<String, StoreError> {
    let project = project(store_id);
    let place = ProjectLocation { worktree: project.clone(), project };
    let (path, content) = (version.path.as_deref(), version.content.as_deref());
    let text = format!("{}\n\n{}", path.unwrap_or_default(), content.unwrap_or_default());
    let (role, tier, source) = (TurnRole::User, Tier::Semantic, TurnSource::Mcp);
    let note = Note { text, cue: None, role, tier, place, source };
    // A text may be stored, forgotten and stored again, so it is the version that names the note.
    let now = Timestamp::now();
    let id = gateway.engine.note_named(&principal(app), &note, &version.id, now).await?;
    Ok(id.to_string())
}

/// Forgets notes. Those that are forgotten already stay so.
pub(super) async fn forget(
    gateway: &Gateway,
    app: &AppName,
    record_ids: impl IntoIterator<Item = String>,
) -> Result<(), StoreError> {
    for id in record_ids {
        let what = Forget::Record(RecordId::new(id));
        gateway.engine.forget(&principal(app), &what, Timestamp::now()).await?;
    }
    Ok(())
}

fn principal(app: &AppName) -> Principal {
    match app.is_owner() {
        true => Principal::Owner,
        false => Principal::App(app.as_str().to_owned()),
    }
}
