//! A store of the memory that is steered by words in the texts of turns: `[[refuse]]` is refused, `[[hang]]` is never
//! answered, `[[busy]]` is refused for now, `[[damaged]]` finds the file damaged, `[[panic]]` panics. It keeps the texts of
//! all others. What a test does not need is refused.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hob_domain::StoreError;
use hob_domain::memory::{
    CandidateQuery, CandidateSet, Counts, Embedded, Facets, Forgetting, ImportMark,
    MaintenanceEvent, MemoryStore, NewTurn, PageFilter, Principal, Record, RecordId, Remask, Scope,
    SessionOutline, Stored, Superseded, TurnSelection, UnembeddedPage, VectorKind, VectorStore,
};

#[derive(Default)]
pub struct SteeredMemory {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    stored: Vec<String>,
    calls: Vec<usize>,
    events: Vec<MaintenanceEvent>,
    old: Vec<Record>,
}

impl SteeredMemory {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The texts of the turns that were stored or masked again, in order.
    pub fn stored(&self) -> Vec<String> {
        self.kept().stored.clone()
    }

    /// How many turns each call had that stored or was to store some.
    pub fn calls(&self) -> Vec<usize> {
        self.kept().calls.clone()
    }

    /// The details of the maintenance events of a kind, in order.
    pub fn events_of(&self, kind: &str) -> Vec<String> {
        let kept = self.kept();
        let of_kind = kept.events.iter().filter(|event| event.kind == kind);
        of_kind.map(|event| event.detail.clone()).collect()
    }

    /// Adds turns that older rules have masked.
    pub fn add_old(&self, records: Vec<Record>) {
        self.kept().old.extend(records);
    }

    async fn take(&self, texts: Vec<String>) -> Result<usize, StoreError> {
        self.kept().calls.push(texts.len());
        let has = |word: &str| texts.iter().any(|text| text.contains(word));
        if has("[[hang]]") {
            std::future::pending::<()>().await;
        }
        if has("[[busy]]") {
            return Err(StoreError::Unavailable("busy".to_owned()));
        }
        if has("[[damaged]]") {
            return Err(StoreError::Damaged("damaged".to_owned()));
        }
        assert!(!has("[[panic]]"), "a turn asks for a panic");
        if has("[[refuse]]") {
            return Err(StoreError::Failed("refused".to_owned()));
        }
        let count = texts.len();
        self.kept().stored.extend(texts);
        Ok(count)
    }
}

fn not_needed<T>() -> Result<T, StoreError> {
    Err(StoreError::Failed("the steered memory does not do this".to_owned()))
}

#[async_trait]
impl MemoryStore for SteeredMemory {
    async fn store_turns(
        &self,
        _: &Principal,
        turns: Vec<NewTurn>,
        _: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let inserted = self.take(turns.into_iter().map(|turn| turn.text).collect()).await?;
        Ok(Stored { inserted, ..Stored::default() })
    }

    async fn page(&self, filter: &PageFilter, limit: usize) -> Result<Vec<Record>, StoreError> {
        let PageFilter::MaskedBefore { without, .. } = filter else { return not_needed() };
        let kept = self.kept();
        let old = kept.old.iter().filter(|record| !without.contains(&record.seq));
        Ok(old.take(limit).cloned().collect())
    }

    async fn remask(&self, changes: Vec<Remask>) -> Result<(), StoreError> {
        let seqs: Vec<i64> = changes.iter().map(|change| change.seq).collect();
        self.take(changes.into_iter().map(|change| change.text).collect()).await?;
        self.kept().old.retain(|record| !seqs.contains(&record.seq));
        Ok(())
    }

    async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError> {
        self.kept().events.push(event);
        Ok(())
    }

    async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError> {
        Ok(self.kept().events.iter().rev().take(limit).cloned().collect())
    }

    async fn supersede(
        &self,
        _: &Principal,
        _: &RecordId,
        _: NewTurn,
    ) -> Result<Superseded, StoreError> {
        not_needed()
    }

    async fn forget(&self, _: Forgetting) -> Result<usize, StoreError> {
        not_needed()
    }

    async fn candidates(
        &self,
        _: &Principal,
        _: &Scope,
        _: CandidateQuery,
    ) -> Result<CandidateSet, StoreError> {
        not_needed()
    }

    async fn turns(&self, _: &Principal, _: TurnSelection) -> Result<Vec<Record>, StoreError> {
        not_needed()
    }

    async fn latest_sessions(
        &self,
        _: &Principal,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<SessionOutline>, StoreError> {
        not_needed()
    }

    async fn projects_named(&self, _: &Principal, _: &str) -> Result<Vec<String>, StoreError> {
        not_needed()
    }

    async fn counts(&self, _: &Principal) -> Result<Counts, StoreError> {
        not_needed()
    }

    async fn facets(&self, _: &Principal) -> Result<Facets, StoreError> {
        not_needed()
    }

    async fn imported(&self, _: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError> {
        not_needed()
    }
}

#[async_trait]
impl VectorStore for SteeredMemory {
    async fn vector_kind(&self, _: &str, _: usize) -> Result<VectorKind, StoreError> {
        not_needed()
    }

    async fn without_vector(
        &self,
        _: VectorKind,
        _: i64,
        _: i64,
        _: usize,
    ) -> Result<UnembeddedPage, StoreError> {
        not_needed()
    }

    async fn save_vectors(&self, _: VectorKind, _: Vec<(i64, Vec<i8>)>) -> Result<(), StoreError> {
        not_needed()
    }

    async fn embedded(&self, _: VectorKind) -> Result<Embedded, StoreError> {
        not_needed()
    }

    async fn drop_other_vectors(&self, _: VectorKind, _: usize) -> Result<usize, StoreError> {
        not_needed()
    }
}
