//! Makes captured turns ready for the store: masked, sealed, analysed and embedded.

use hob_domain::memory::{NewTurn, words_key};

use super::batch::{CaptureBatch, RawTurn};
use super::seal::SealingKey;
use super::sealed_text::{SealedText, seal_secrets};
use crate::indexer::{IndexEntry, TextIndexer};
use crate::redact::{self, masked_name};
use crate::text::analyse;

/// The version of the rules by which a stored turn was masked and analysed.
pub const RULES_VERSION: u32 = redact::RULES_VERSION + analyse::VERSION - 1;

/// Prepares turns for the store.
pub struct Preparer {
    pub indexer: TextIndexer,
    pub sealing: SealingKey,
}

impl Preparer {
    pub fn prepare(&self, batch: &CaptureBatch) -> Vec<NewTurn> {
        batch.turns.iter().map(|turn| self.prepare_turn(batch, turn)).collect()
    }

    fn prepare_turn(&self, batch: &CaptureBatch, turn: &RawTurn) -> NewTurn {
        let SealedText { text, sealed } = seal_secrets(&turn.text, &self.sealing);
        let cue = turn.cue.as_ref().map(|cue| redact::mask(cue).text);
        let session = masked_name(&batch.session);
        let IndexEntry { terms, vector } = self.indexer.entry(&text, cue.as_deref());
        NewTurn {
            identity: turn.identity(&session),
            words: words_key(turn.role, &turn.text),
            session,
            place: batch.place.clone(),
            role: turn.role,
            tier: turn.tier,
            vector,
            terms,
            text,
            sealed,
            cue,
            ts: turn.ts,
            at: turn.at.unwrap_or(turn.ts),
            client: batch.client.clone(),
            source: batch.source.clone(),
            rules: RULES_VERSION,
        }
    }
}
