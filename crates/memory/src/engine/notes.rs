//! Notes, corrections and forgetting.

use std::time::Duration;

use hob_domain::memory::{
    Forget, Forgetting, Identity, Principal, ProjectLocation, RecordId, Superseded, Tier, TurnRole,
    TurnSource,
};
use hob_domain::{StoreError, Timestamp};

use serde_json::{Value, json};

use super::state::Engine;
use crate::capture::batch::{CaptureBatch, NOTE_SESSION, RawTurn};

/// How often a note that was forgotten can be made again.
const MAX_ATTEMPTS: usize = 100;

/// Something to remember that is not a turn of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    pub text: String,
    /// Further words that the note is found by.
    pub cue: Option<String>,
    pub role: TurnRole,
    pub tier: Tier,
    pub place: ProjectLocation,
    /// Who wrote it.
    pub source: TurnSource,
}

impl Engine {
    /// Stores a note. Returns its record id, and whether it was stored already.
    pub async fn note(
        &self,
        principal: &Principal,
        note: Note,
        now: Timestamp,
    ) -> Result<(RecordId, bool), StoreError> {
        // A forgotten note is not stored again under its old identity, so that a repeated call does
        // not undo the forgetting. To make it again on purpose, it needs another identity.
        for attempt in 0..MAX_ATTEMPTS {
            let batch = note_batch(&note, format!("note-{attempt}"), now);
            let turn = self.inner.preparer.prepare(&batch).remove(0);
            let id = record_id(&turn.identity);
            let stored = self.inner.store.store_turns(principal, vec![turn], Vec::new()).await?;
            if stored.forgotten == 0 {
                self.inner.model.notify_new_turns();
                return Ok((id, stored.duplicates > 0));
            }
        }
        Err(StoreError::Failed(
            "this note was deleted by `forget` too many times and cannot be stored again; change its text"
                .to_owned(),
        ))
    }

    /// Stores a note under a name that no other note has. Returns its record id.
    pub async fn note_named(
        &self,
        principal: &Principal,
        note: &Note,
        name: &str,
        now: Timestamp,
    ) -> Result<RecordId, StoreError> {
        let turn = self.inner.preparer.prepare(&note_batch(note, name.to_owned(), now)).remove(0);
        let id = record_id(&turn.identity);
        self.inner.store.store_turns(principal, vec![turn], Vec::new()).await?;
        self.inner.model.notify_new_turns();
        Ok(id)
    }

    /// Stores a correction of a record. The old record stays and ranks last. Returns the id of the
    /// correction; `None` if there is no such record.
    pub async fn correct(
        &self,
        principal: &Principal,
        old: &RecordId,
        text: &str,
        source: TurnSource,
        now: Timestamp,
    ) -> Result<Option<RecordId>, StoreError> {
        let Some(record) = self.record(principal, old).await? else {
            return Ok(None);
        };
        let note = Note {
            text: text.to_owned(),
            cue: None,
            role: record.role,
            tier: Tier::Semantic,
            place: record.place,
            source,
        };
        // A bridge may repeat a call, and the same text must then be the same correction. A
        // correction that was forgotten can be made again on purpose.
        for attempt in 0..MAX_ATTEMPTS {
            let batch = note_batch(&note, format!("correction-{old}-{attempt}"), now);
            let turn = self.inner.preparer.prepare(&batch).remove(0);
            match self.inner.store.supersede(principal, old, turn).await? {
                Superseded::By(id) => {
                    self.inner.model.notify_new_turns();
                    return Ok(Some(id));
                }
                Superseded::Missing => return Ok(None),
                Superseded::Forgotten => {}
            }
        }
        Err(StoreError::Failed("this correction was deleted by `forget` too many times and cannot be stored again; change its text".to_owned()))
    }

    /// Hides a record or a session at once. They are erased after [`Engine::undo_period`]. Returns
    /// the number of hidden records.
    pub async fn forget(
        &self,
        principal: &Principal,
        turns: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let count = self.inner.store.forget(Forgetting::hide(principal, turns, now)).await?;
        if self.inner.undo_period.is_zero() {
            self.erase_forgotten(now).await?;
        }
        Ok(count)
    }

    /// Restores a record or a session that was forgotten less than [`Engine::undo_period`] ago.
    /// Returns the number of restored records.
    pub async fn undo_forget(
        &self,
        principal: &Principal,
        turns: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let hidden_since = now.saturating_sub(self.undo_period()).unwrap_or(now);
        let step = Forgetting::restore(principal, turns, hidden_since);
        let count = self.inner.store.forget(step).await?;
        // Restored turns have no terms yet. If this fails, the next start of the server does it: the turns are restored.
        if count > 0
            && let Err(error) = self.rescan_all().await
        {
            tracing::error!(%error, "cannot index restored turns");
        }
        self.inner.model.notify_new_turns();
        Ok(count)
    }

    /// Masks and indexes all turns that older rules have masked, and those without terms.
    async fn rescan_all(&self) -> Result<(), StoreError> {
        while self.rescan().await? > 0 {}
        Ok(())
    }

    /// Erases what was forgotten [`Engine::undo_period`] ago or earlier. Returns the number of
    /// records.
    pub async fn erase_forgotten(&self, now: Timestamp) -> Result<usize, StoreError> {
        // One moment later than the last that can be restored.
        let hidden_before = match self.undo_period() {
            period if period.is_zero() => now + Duration::from_micros(1),
            period => now.saturating_sub(period).unwrap_or(now),
        };
        self.inner.store.forget(Forgetting::Erase { hidden_before }).await
    }

    /// Returns the answer to a request to forget or to restore: how many records, and until when they can be restored.
    pub fn forget_answer(&self, count: usize, is_undo: bool, now: Timestamp) -> Value {
        let can_undo = count > 0 && !is_undo && !self.undo_period().is_zero();
        let until = can_undo.then(|| now.saturating_add(self.undo_period()).ok()).flatten();
        // Rounded down to a second.
        let until = until.and_then(|until| Timestamp::from_second(until.as_second()).ok());
        json!({"count": count, "undo_until": until.map(|until| until.to_string())})
    }

    /// How long a forgotten record can be restored.
    pub fn undo_period(&self) -> Duration {
        self.inner.undo_period
    }

    /// Removes everything that belongs to a principal.
    pub async fn forget_principal(&self, principal: &Principal) -> Result<usize, StoreError> {
        self.inner.store.forget(Forgetting::RemovePrincipal(principal.clone())).await
    }
}

fn note_batch(note: &Note, id: String, now: Timestamp) -> CaptureBatch {
    CaptureBatch {
        session: format!("{NOTE_SESSION}{}", note.place.project),
        place: note.place.clone(),
        client: "mcp".to_owned(),
        source: note.source.clone(),
        turns: vec![RawTurn {
            id: Some(id),
            role: note.role,
            text: note.text.clone(),
            ts: now,
            at: None,
            n: 1,
            answer: None,
            tier: note.tier,
            cue: note.cue.clone(),
        }],
    }
}

fn record_id(identity: &Identity) -> RecordId {
    match identity {
        Identity::Record { key, .. } | Identity::Answer(key) => key.record_id(),
        Identity::Nth(_) => RecordId::new(""),
    }
}
