//! Opening sealed secrets, and masking or sealing stored turns again.

use std::time::Duration;

use hob_domain::memory::{MaintenanceEvent, PageFilter, Record, Remask};
use hob_domain::{StoreError, Timestamp};

use super::state::Engine;
use crate::capture::prepare::RULES_VERSION;
use crate::capture::seal::OpeningKey;
use crate::capture::sealed_text::{SealedText, restore_secrets, seal_secrets};
use crate::indexer::IndexEntry;
use crate::redact;

/// How many turns are masked or sealed again in one transaction.
const PAGE_TURNS: usize = 200;
/// After this many turns of a page that take too long, the rest of it is skipped.
const MAX_HANGING_TURNS: usize = 3;
/// A rescan gives up after this many turns that cannot be masked again.
const MAX_SKIPPED_TURNS: usize = 10_000;

/// How long masking again may take.
struct RescanTimes {
    page: Duration,
    /// For one turn of a page that failed as a whole.
    turn: Duration,
}

impl Default for RescanTimes {
    fn default() -> RescanTimes {
        RescanTimes { page: Duration::from_secs(60), turn: Duration::from_secs(10) }
    }
}

impl Engine {
    /// Returns a record's original text, byte for byte; `None` if its seal does not open.
    pub fn unseal(&self, record: &Record) -> Option<String> {
        match &record.sealed {
            None => Some(record.text.clone()),
            Some(sealed) => restore_secrets(&record.text, &self.inner.opening.open(sealed)?),
        }
    }

    /// Masks turns again that were masked by older rules. Returns the number of turns; call it until that is 0. Turns that
    /// cannot be masked again are added to `skipped` and stay as they are.
    pub async fn rescan(&self, skipped: &mut Vec<i64>) -> Result<usize, StoreError> {
        self.rescan_within(&RescanTimes::default(), skipped).await
    }

    async fn rescan_within(
        &self,
        times: &RescanTimes,
        skipped: &mut Vec<i64>,
    ) -> Result<usize, StoreError> {
        if skipped.len() >= MAX_SKIPPED_TURNS {
            tracing::error!("too many old turns cannot be masked again; the others are left too");
            return Ok(0);
        }
        let without = skipped.clone();
        let filter = PageFilter::MaskedBefore { rules: RULES_VERSION, without };
        let old = self.inner.store.page(&filter, PAGE_TURNS).await?;
        let count = old.len();
        if count == 0 {
            return Ok(0);
        }
        let mut failed = Vec::new();
        let changes = match self.remasked_within(times.page, old.clone()).await {
            Ok(changes) => changes,
            Err(_) => self.remasked_each(times.turn, old, &mut failed).await,
        };
        match self.inner.store.remask(changes.clone()).await {
            Ok(()) => {}
            Err(error) if error.is_of_the_store() => return Err(error),
            Err(_) => self.remask_each(changes, &mut failed).await?,
        }
        if let Some((seq, why)) = failed.first() {
            let many = failed.len();
            let detail = format!(
                "{many} old turns could not be masked again and stay as they are, such as turn {seq}: {why}"
            );
            tracing::error!("{detail}");
            let kind = "not_masked".to_owned();
            self.note_event(MaintenanceEvent { at: Timestamp::now(), kind, detail }).await?;
        }
        skipped.extend(failed.into_iter().map(|(seq, _)| seq));
        Ok(count)
    }

    /// Masks turns one by one. Those that take too long or cannot be masked are left out and added to `failed`.
    async fn remasked_each(
        &self,
        deadline: Duration,
        old: Vec<Record>,
        failed: &mut Vec<(i64, String)>,
    ) -> Vec<Remask> {
        let (mut changes, mut hanging) = (Vec::new(), 0);
        for record in old {
            let seq = record.seq;
            // Masking that takes too long goes on, on a thread of its own.
            if hanging >= MAX_HANGING_TURNS {
                failed.push((seq, "too many others of its page take too long".to_owned()));
                continue;
            }
            match self.remasked_within(deadline, vec![record]).await {
                Ok(change) => changes.extend(change),
                Err(why) => {
                    hanging += 1;
                    failed.push((seq, why));
                }
            }
        }
        changes
    }

    /// Masks turns, or returns why that failed.
    async fn remasked_within(
        &self,
        deadline: Duration,
        old: Vec<Record>,
    ) -> Result<Vec<Remask>, String> {
        let engine = self.clone();
        // Masking takes a processor for a while.
        let masking = tokio::task::spawn_blocking(move || {
            old.iter().map(|record| engine.remasked(record, engine.unseal(record))).collect()
        });
        match tokio::time::timeout(deadline, masking).await {
            Ok(masked) => masked.map_err(|error| error.to_string()),
            Err(_) => Err("it takes too long".to_owned()),
        }
    }

    /// Stores changes one by one, so that one which the store refuses does not keep the others back.
    async fn remask_each(
        &self,
        changes: Vec<Remask>,
        failed: &mut Vec<(i64, String)>,
    ) -> Result<(), StoreError> {
        for change in changes {
            let seq = change.seq;
            match self.inner.store.remask(vec![change]).await {
                Ok(()) => {}
                Err(error) if error.is_of_the_store() => return Err(error),
                Err(error) => failed.push((seq, error.to_string())),
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hob_domain::DataKey;
    use hob_domain::memory::{ProjectLocation, RecordId, Tier, TurnRole, TurnSource};
    use hob_testkit::SteeredMemory;

    use super::*;
    use crate::capture::seal::OpeningKeys;

    fn old(seq: i64, text: &str) -> Record {
        Record {
            id: RecordId::new(seq.to_string()),
            seq,
            session: "s".to_owned(),
            place: ProjectLocation { project: "/p".to_owned(), worktree: "/p".to_owned() },
            role: TurnRole::User,
            tier: Tier::Episodic,
            text: text.to_owned(),
            sealed: None,
            cue: None,
            ts: Timestamp::UNIX_EPOCH,
            client: "claude".to_owned(),
            source: TurnSource::Session,
            superseded_by: None,
            supersedes: None,
        }
    }

    fn engine(memory: &Arc<SteeredMemory>) -> Engine {
        let keys = OpeningKeys::from(OpeningKey::of(&DataKey::from_bytes([3; 32])));
        Engine::new(memory.clone(), keys, Duration::ZERO)
    }

    async fn rescan_all(memory: &Arc<SteeredMemory>, times: &RescanTimes) -> Vec<i64> {
        let (engine, mut skipped) = (engine(memory), Vec::new());
        while engine.rescan_within(times, &mut skipped).await.unwrap() > 0 {}
        skipped
    }

    #[tokio::test]
    async fn rescan_skips_turns_that_the_store_refuses() {
        let memory = Arc::new(SteeredMemory::default());
        // The turns of the first page all fail.
        let page = PAGE_TURNS as i64;
        memory.add_old((0..page).map(|seq| old(seq, "[[refuse]]")).collect());
        memory.add_old(vec![old(page, "one"), old(page + 1, "[[refuse]]"), old(page + 2, "two")]);
        let skipped = rescan_all(&memory, &RescanTimes::default()).await;
        assert_eq!(skipped, (0..page).chain([page + 1]).collect::<Vec<_>>());
        assert_eq!(memory.stored(), ["one", "two"]);
        let events = memory.events_of("not_masked");
        assert_eq!(events.len(), 2);
        assert!(events[0].starts_with("200 old turns") && events[0].contains("refused"));
        assert!(events[1].starts_with("1 old turns") && events[1].contains("turn 201"));
    }

    #[tokio::test]
    async fn rescan_skips_turns_that_take_too_long() {
        let memory = Arc::new(SteeredMemory::default());
        let long = "word ".repeat(60_000);
        memory.add_old((0..9).map(|seq| old(seq, &long)).collect());
        let times = RescanTimes { page: Duration::ZERO, turn: Duration::ZERO };
        assert_eq!(rescan_all(&memory, &times).await, (0..9).collect::<Vec<_>>());
        assert_eq!(memory.stored(), [""; 0]);
        assert!(memory.events_of("not_masked")[0].contains("takes too long"));
    }
}
