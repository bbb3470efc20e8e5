//! Opening sealed secrets, and masking or sealing stored turns again.

use hob_domain::StoreError;
use hob_domain::memory::{PageFilter, Record, Remask};

use super::state::Engine;
use crate::capture::prepare::RULES_VERSION;
use crate::capture::seal::OpeningKey;
use crate::capture::sealed_text::{SealedText, restore_secrets, seal_secrets};
use crate::indexer::IndexEntry;
use crate::redact;

/// How many turns are masked or sealed again in one transaction.
const PAGE_TURNS: usize = 200;

impl Engine {
    /// Returns a record's original text, byte for byte; `None` if its seal does not open.
    pub fn unseal(&self, record: &Record) -> Option<String> {
        match &record.sealed {
            None => Some(record.text.clone()),
            Some(sealed) => restore_secrets(&record.text, &self.inner.opening.open(sealed)?),
        }
    }

    /// Masks turns again that were masked by older rules. Returns the number of turns; call it
    /// until that is 0.
    pub async fn rescan(&self) -> Result<usize, StoreError> {
        let old =
            self.inner.store.page(&PageFilter::MaskedBefore(RULES_VERSION), PAGE_TURNS).await?;
        if old.is_empty() {
            return Ok(0);
        }
        let engine = self.clone();
        // Masking takes a processor for a while.
        let masking = tokio::task::spawn_blocking(move || {
            old.iter().map(|record| engine.remasked(record, engine.unseal(record))).collect()
        });
        let changes: Vec<Remask> =
            masking.await.map_err(|error| StoreError::Failed(error.to_string()))?;
        match self.inner.store.remask(changes.clone()).await {
            Ok(()) => Ok(changes.len()),
            Err(error) if error.is_temporary() => Err(error),
            Err(error) => self.remask_each(changes, error).await,
        }
    }

    /// Stores changes one by one, so that one which the store refuses does not keep the others back. Returns the number of
    /// those that were stored, or the error if that is none.
    async fn remask_each(
        &self,
        changes: Vec<Remask>,
        error: StoreError,
    ) -> Result<usize, StoreError> {
        let mut stored = 0;
        for change in changes {
            let seq = change.seq;
            match self.inner.store.remask(vec![change]).await {
                Ok(()) => stored += 1,
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) => tracing::error!(%error, seq, "failed to mask an old turn again"),
            }
        }
        if stored > 0 { Ok(stored) } else { Err(error) }
    }

    /// Seals secrets with this home's key that were sealed with an earlier one. Returns the number
    /// of turns.
    pub async fn reseal(&self, earlier: &OpeningKey) -> Result<usize, StoreError> {
        let (mut after, mut count) = (0, 0);
        loop {
            let page = self.inner.store.page(&PageFilter::All { after }, PAGE_TURNS).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = last.seq;
            let mut changes = Vec::new();
            for record in &page {
                let Some(clear) = record.sealed.as_deref().and_then(|s| earlier.open(s)) else {
                    continue;
                };
                // Secrets that do not fit their text cannot be put back into it; they stay as they
                // are.
                if let Some(original) = restore_secrets(&record.text, &clear) {
                    changes.push(self.remasked(record, Some(original)));
                }
            }
            count += changes.len();
            if !changes.is_empty() {
                self.inner.store.remask(changes).await?;
            }
        }
    }

    /// Builds a record's row again from its original text; from the stored text if the seal does
    /// not open.
    fn remasked(&self, record: &Record, original: Option<String>) -> Remask {
        let preparer = &self.inner.preparer;
        let SealedText { text, sealed } = match &original {
            Some(original) => seal_secrets(original, &preparer.sealing),
            // New rules may find more secrets in the stored text. The old seal keeps those it has.
            None => {
                SealedText { text: redact::mask(&record.text).text, sealed: record.sealed.clone() }
            }
        };
        let cue = record.cue.as_ref().map(|cue| redact::mask(cue).text);
        let IndexEntry { terms, vector } = preparer.indexer.entry(&text, cue.as_deref());
        Remask { seq: record.seq, terms, vector, text, sealed, cue, rules: RULES_VERSION }
    }
}
