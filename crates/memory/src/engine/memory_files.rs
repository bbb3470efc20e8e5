//! Storing the memory files of agents.

use hob_domain::StoreError;
use hob_domain::memory::{ImportMark, Principal, Scope, Stored, Superseded, Window};

use super::state::Engine;
use crate::capture::batch::CaptureBatch;

/// How many versions of a file are looked at for the latest one.
const MAX_VERSIONS: usize = 1000;

impl Engine {
    /// Stores a memory file, which is a session of one note. A changed file supersedes what was stored of it before;
    /// one that has not changed is stored already. Marks the import as done.
    pub async fn store_memory_file(
        &self,
        principal: &Principal,
        batch: CaptureBatch,
        mark: ImportMark,
    ) -> Result<Stored, StoreError> {
        let preparer = &self.inner.preparer;
        let Some(note) = preparer.prepare(&batch).pop() else {
            return self.note_import(principal, mark, Stored::default()).await;
        };
        let scope = Scope { session: Some(note.session), ..Scope::default() };
        let window = Window { scope, around: None, limit: MAX_VERSIONS };
        let versions = self.timeline(principal, &window).await?;
        let latest = versions.iter().max_by_key(|record| record.seq);
        if latest.is_some_and(|record| record.text == note.text) {
            let stored = Stored { duplicates: 1, ..Stored::default() };
            return self.note_import(principal, mark, stored).await;
        }
        // A text that comes back after another one is a version of its own.
        let occurrence = versions.iter().filter(|record| record.text == note.text).count();
        let mut named = batch;
        for turn in &mut named.turns {
            turn.id = Some(format!("memory-file-{occurrence}"));
        }
        let turns = preparer.prepare(&named);
        // A correction of the latest version is older than the file, too.
        let latest = match latest {
            Some(record) => self.newest_version(principal, &record.id).await?,
            None => None,
        };
        let stored = match (&latest, turns.first()) {
            (Some(old), Some(new)) => {
                match self.inner.store.supersede(principal, &old.id, new.clone()).await? {
                    Superseded::By(_) => Stored { inserted: 1, ..Stored::default() },
                    Superseded::Forgotten => Stored { forgotten: 1, ..Stored::default() },
                    // It was corrected or forgotten meanwhile. Without its mark, the next import reads the file again.
                    Superseded::Already(_) | Superseded::Missing => return Ok(Stored::default()),
                }
            }
            _ => self.inner.store.store_turns(principal, turns, Vec::new()).await?,
        };
        self.inner.model.notify_new_turns();
        self.note_import(principal, mark, stored).await
    }

    /// Marks an import as done, and returns its outcome.
    async fn note_import(
        &self,
        principal: &Principal,
        mark: ImportMark,
        stored: Stored,
    ) -> Result<Stored, StoreError> {
        self.inner.store.store_turns(principal, Vec::new(), vec![mark]).await?;
        Ok(stored)
    }
}
