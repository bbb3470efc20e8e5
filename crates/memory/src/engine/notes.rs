//! Notes and corrections.

use hob_domain::memory::{
    Identity, NOTE_SESSION, Principal, ProjectLocation, Record, RecordId, Superseded, Tier,
    TurnRole, TurnSource,
};
use hob_domain::{StoreError, Timestamp};

use super::state::Engine;
use crate::capture::batch::{CaptureBatch, RawTurn};

/// How often a note that was forgotten can be made again.
const MAX_ATTEMPTS: usize = 100;
/// How many corrections of corrections are followed to the newest one.
const MAX_CORRECTIONS: usize = 10_000;

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

    /// Stores a correction of a record. The old record stays and ranks last. If the record was corrected before, its newest
    /// correction is superseded, so that one text is in force. Returns the id of the correction; `None` if there is no
    /// such record.
    pub async fn correct(
        &self,
        principal: &Principal,
        old: &RecordId,
        text: &str,
        source: TurnSource,
        now: Timestamp,
    ) -> Result<Option<RecordId>, StoreError> {
        let Some(mut newest) = self.newest_version(principal, old).await? else {
            return Ok(None);
        };
        let note = Note {
            text: text.to_owned(),
            cue: None,
            role: newest.role,
            tier: Tier::Semantic,
            place: newest.place.clone(),
            source,
        };
        let mut forgotten = 0;
        for _ in 0..MAX_ATTEMPTS {
            // A text that comes back after another one is a correction of its own. A correction that was forgotten can
            // be made again on purpose.
            let name = format!("correction-{}-{forgotten}", newest.id);
            let turn = self.inner.preparer.prepare(&note_batch(&note, name, now)).remove(0);
            // A bridge may repeat a call. Two secrets can have the same mask.
            let is_known = newest.id != *old && newest.text == turn.text;
            if is_known && (turn.sealed.is_none() || self.is_correction(&newest, &note, now)) {
                return Ok(Some(newest.id));
            }
            match self.inner.store.supersede(principal, &newest.id, turn).await? {
                Superseded::By(id) => {
                    self.inner.model.notify_new_turns();
                    return Ok(Some(id));
                }
                Superseded::Forgotten => forgotten += 1,
                // The record was corrected or forgotten meanwhile.
                Superseded::Already(_) | Superseded::Missing => {
                    match self.newest_version(principal, old).await? {
                        Some(record) => newest = record,
                        None => return Ok(None),
                    }
                }
            }
        }
        Err(StoreError::Failed("this correction was deleted by `forget` too many times and cannot be stored again; change its text".to_owned()))
    }

    /// Returns whether a record is the correction that this note makes, with the same secrets.
    fn is_correction(&self, record: &Record, note: &Note, now: Timestamp) -> bool {
        let Some(old) = &record.supersedes else { return false };
        let batch = note_batch(note, format!("correction-{old}-0"), now);
        let turn = self.inner.preparer.prepare(&batch).remove(0);
        record_id(&turn.identity) == record.id
    }

    /// Returns the newest correction of a record, or the record itself if it has none.
    pub(super) async fn newest_version(
        &self,
        principal: &Principal,
        id: &RecordId,
    ) -> Result<Option<Record>, StoreError> {
        let Some(mut newest) = self.record(principal, id).await? else {
            return Ok(None);
        };
        for _ in 0..MAX_CORRECTIONS {
            let Some(newer) = &newest.superseded_by else { break };
            let Some(record) = self.record(principal, newer).await? else { break };
            newest = record;
        }
        Ok(Some(newest))
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
