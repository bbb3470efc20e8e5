//! The memory as its callers use it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use hob_domain::memory::{
    Counts, Facets, Forget, Identity, ImportMark, MaintenanceEvent, MemoryStore, NewTurn,
    Principal, ProjectLocation, Record, RecordId, Remask, Scope, Stored, Superseded, Tier,
    TurnRole, TurnSelection, TurnSource, Window,
};
use hob_domain::{StoreError, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::capture::batch::{CaptureBatch, RawTurn};
use crate::capture::prepare::{Preparer, RULES_VERSION};
use crate::capture::seal::{OpeningKey, OpeningKeys};
use crate::capture::sealed_text::{SealedText, restore_secrets, seal_secrets};
use crate::embed::embedder::Embedder;
use crate::embed::upgrade::{Upgrade, UpgradeProgress};
use crate::recall::pack::{Ranked, pack};
use crate::recall::rank::{Scored, score};
use crate::recall::recurring;
use crate::recall::rerank::look_again;
use crate::recall::search::{Search, without_any_names};
use crate::recall::session_start;
use crate::redact;
use crate::text::analyse::Analyser;
use crate::text::indexed_text::indexed_text;

/// How many more hits than asked for are read.
const SPARE: usize = 20;
/// How many turns a rescan takes at a time.
const RESCAN: usize = 200;

/// The memory of one home. Cloning shares it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn MemoryStore>,
    preparer: Preparer,
    opening: OpeningKeys,
    upgrade: Upgrade,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub cue: String,
    pub budget_tokens: usize,
    pub limit: usize,
    pub scope: Scope,
    /// The project whose turns come first where the scope has several.
    pub first: Option<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recall {
    pub hits: Vec<Found>,
    pub budget_used: usize,
    /// Matches that are not shown: they did not fit, or say the same as a hit.
    pub omitted: usize,
}

/// Turns that are ready to be stored.
pub struct Prepared(Vec<NewTurn>);

/// One turn that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub record: Record,
    /// From 0 to 1.
    pub score: f64,
    /// Why it is here, in words.
    pub reason: String,
}

/// Something to be remembered as such, not as a turn of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    pub text: String,
    pub cue: Option<String>,
    pub role: TurnRole,
    pub tier: Tier,
    pub place: ProjectLocation,
}

impl Engine {
    pub fn new(
        store: Arc<dyn MemoryStore>,
        embedder: Box<dyn Embedder>,
        opening: OpeningKeys,
    ) -> Engine {
        let preparer =
            Preparer { analyser: Analyser::default(), embedder, sealing: opening.sealing_key() };
        Engine { inner: Arc::new(Inner { store, preparer, opening, upgrade: Upgrade::default() }) }
    }

    /// Takes the model of a folder into use, and has it embed all turns in the background, until told
    /// to stop. Where it can't be used, the built-in embedder stays alone.
    pub async fn upgrade(&self, folder: PathBuf, stopping: CancellationToken) {
        self.inner.upgrade.run(self.inner.store.as_ref(), folder, stopping).await;
    }

    /// How far that is; `None` where no model was chosen.
    pub async fn upgrade_progress(&self) -> Result<Option<UpgradeProgress>, StoreError> {
        self.inner.upgrade.progress(self.inner.store.as_ref()).await
    }

    pub fn opening_keys(&self) -> &OpeningKeys {
        &self.inner.opening
    }

    /// Stores turns, each once, and marks imports as done with them.
    pub async fn capture(
        &self,
        principal: &Principal,
        batch: CaptureBatch,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        self.capture_all(principal, vec![batch], marks).await
    }

    /// The same for several sessions, in one transaction.
    pub async fn capture_all(
        &self,
        principal: &Principal,
        batches: Vec<CaptureBatch>,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let _work = self.inner.upgrade.work();
        let prepared = self.prepare(batches).await?;
        self.store(principal, prepared, marks).await
    }

    /// Masks, analyses and embeds turns: the first half of a capture, which needs no store.
    pub async fn prepare(&self, batches: Vec<CaptureBatch>) -> Result<Prepared, StoreError> {
        let engine = self.clone();
        let prepare = move || {
            let prepare = |batch| engine.inner.preparer.prepare(batch);
            Prepared(batches.iter().flat_map(prepare).collect())
        };
        tokio::task::spawn_blocking(prepare)
            .await
            .map_err(|error| StoreError::Failed(error.to_string()))
    }

    /// The second half.
    pub async fn store(
        &self,
        principal: &Principal,
        turns: Prepared,
        marks: Vec<ImportMark>,
    ) -> Result<Stored, StoreError> {
        let _work = self.inner.upgrade.work();
        let stored = self.inner.store.store_turns(principal, turns.0, marks).await?;
        self.inner.upgrade.tell();
        Ok(stored)
    }

    /// Remembers a note. Returns its name, and whether it was there already.
    pub async fn note(
        &self,
        principal: &Principal,
        note: Note,
        now: Timestamp,
    ) -> Result<(RecordId, bool), StoreError> {
        // A note that was forgotten once may be made again on purpose: as another one.
        for attempt in 0..100 {
            let batch = note_batch(&note, format!("note-{attempt}"), now);
            let turn = self.inner.preparer.prepare(&batch).remove(0);
            let id = record_id(&turn.identity);
            let stored = self.inner.store.store_turns(principal, vec![turn], Vec::new()).await?;
            if stored.forgotten == 0 {
                self.inner.upgrade.tell();
                return Ok((id, stored.duplicates > 0));
            }
        }
        Err(StoreError::Failed("this note was forgotten too often".to_owned()))
    }

    /// Remembers what is right instead of a record, which stays and ranks below. `None` when there is
    /// no such record.
    pub async fn correct(
        &self,
        principal: &Principal,
        old: &RecordId,
        text: &str,
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
        };
        // Said again it is the same correction, since a bridge may have to repeat a call; one that was
        // forgotten may be made again on purpose.
        for attempt in 0..100 {
            let batch = note_batch(&note, format!("correction-{old}-{attempt}"), now);
            let turn = self.inner.preparer.prepare(&batch).remove(0);
            match self.inner.store.supersede(principal, old, turn).await? {
                Superseded::By(id) => {
                    self.inner.upgrade.tell();
                    return Ok(Some(id));
                }
                Superseded::Missing => return Ok(None),
                Superseded::Forgotten => {}
            }
        }
        Err(StoreError::Failed("this correction was forgotten too often".to_owned()))
    }

    /// Removes everything of a principal.
    pub async fn forget_principal(&self, principal: &Principal) -> Result<usize, StoreError> {
        self.inner.store.forget(principal, &Forget::Everything, Timestamp::now()).await
    }

    pub async fn forget(
        &self,
        principal: &Principal,
        what: &Forget,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        self.inner.store.forget(principal, what, now).await
    }

    /// Looks for what a cue is about. Reads only.
    pub async fn recall(
        &self,
        principal: &Principal,
        question: &Question,
    ) -> Result<Recall, StoreError> {
        self.recall_at(principal, question, Timestamp::now()).await
    }

    /// The same at a time of the caller's: for one store and time the answer is always the same.
    pub async fn recall_at(
        &self,
        principal: &Principal,
        question: &Question,
        now: Timestamp,
    ) -> Result<Recall, StoreError> {
        let preparer = &self.inner.preparer;
        let _work = self.inner.upgrade.work();
        // A secret in the question is looked for as what is stored of it.
        let cue = redact::mask(&question.cue).text;
        let upgrade = &self.inner.upgrade;
        let finer = upgrade.question(|| without_any_names(&cue)).await;
        let search = Search::new(preparer, &cue, finer, question.limit, now);
        let store = &self.inner.store;
        let mut scopes = vec![question.scope.clone()];
        // What comes first is looked for by itself: among many others it might not be proposed.
        if let (None, Some(first)) = (&question.scope.project, &question.first) {
            scopes.insert(0, Scope { project: Some(first.clone()), ..question.scope.clone() });
        }
        let mut scored = Vec::new();
        let mut known = HashSet::new();
        // Some of them say the same, or are passed over: a few more than asked for are read.
        let shown = question.limit.saturating_mul(2).saturating_add(SPARE);
        for scope in &scopes {
            let proposal = store.candidates(principal, scope, search.probe()).await?;
            let without_names = || search.without_common_names(preparer, &proposal);
            let finer = upgrade.question(without_names).await;
            let ranked = search.rank(preparer, &proposal, finer.as_ref(), shown);
            scored.extend(ranked.into_iter().filter(|one| known.insert(one.seq)));
        }
        let shown = shown.min(scored.len());
        let unread = scored.len() - shown;
        scored.truncate(shown);
        let seqs = scored.iter().map(|one| one.seq).collect();
        let records = store.turns(principal, TurnSelection::Numbers(seqs)).await?;
        let mut by_seq: HashMap<i64, Record> =
            records.into_iter().map(|record| (record.seq, record)).collect();
        let hit = |one: Scored| {
            let record = by_seq.remove(&one.seq)?;
            Some(Ranked { record, sum: one.sum, why: one.why })
        };
        let mut ranked: Vec<Ranked> = scored.into_iter().filter_map(hit).collect();
        look_again(&cue, &mut ranked);
        if let Some(first) = &question.first {
            ranked.sort_by_key(|hit| hit.record.place.project != *first);
        }
        let packed = pack(ranked, question.budget_tokens, question.limit);
        let hits = packed.hits.into_iter().map(|hit| {
            let reason = search.reason(&hit);
            Found { record: hit.record, score: score(hit.sum), reason }
        });
        Ok(Recall {
            hits: hits.collect(),
            budget_used: packed.budget_used,
            omitted: packed.omitted + unread,
        })
    }

    pub async fn record(
        &self,
        principal: &Principal,
        id: &RecordId,
    ) -> Result<Option<Record>, StoreError> {
        let selection = TurnSelection::Id(id.clone());
        Ok(self.inner.store.turns(principal, selection).await?.pop())
    }

    pub async fn timeline(
        &self,
        principal: &Principal,
        window: &Window,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner.store.turns(principal, TurnSelection::Window(window.clone())).await
    }

    pub async fn counts(&self, principal: &Principal) -> Result<Counts, StoreError> {
        self.inner.store.counts(principal).await
    }

    pub async fn facets(&self, principal: &Principal) -> Result<Facets, StoreError> {
        self.inner.store.facets(principal).await
    }

    pub async fn projects_named(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        self.inner.store.projects_named(principal, name).await
    }

    pub async fn page(
        &self,
        principal: &Principal,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner.store.page(Some(principal), after, limit).await
    }

    pub async fn imported(&self, marks: Vec<ImportMark>) -> Result<Vec<ImportMark>, StoreError> {
        self.inner.store.imported(marks).await
    }

    pub async fn note_event(&self, event: MaintenanceEvent) -> Result<(), StoreError> {
        self.inner.store.note_event(event).await
    }

    pub async fn events(&self, limit: usize) -> Result<Vec<MaintenanceEvent>, StoreError> {
        self.inner.store.events(limit).await
    }

    /// What a colleague would want to know first about a project; nothing when nothing is known.
    pub async fn session_start(
        &self,
        principal: &Principal,
        project: &str,
        session: Option<&str>,
        budget_tokens: usize,
    ) -> Result<String, StoreError> {
        let store = &self.inner.store;
        let facts =
            TurnSelection::Facts { project: project.to_owned(), limit: session_start::FACTS };
        let standing = store.turns(principal, facts).await?;
        let sessions =
            store.latest_sessions(principal, project, session, session_start::SESSIONS).await?;
        let limit = recurring::PROMPTS;
        let prompts = TurnSelection::LatestPrompts { project: project.to_owned(), limit };
        let prompts = store.turns(principal, prompts).await?;
        let recurring = recurring::recurring(&prompts, &self.inner.preparer.analyser);
        Ok(session_start::compose(&standing, &recurring, &sessions, budget_tokens))
    }

    /// A record's text as it was said, byte for byte. `None` when its seal does not open.
    pub fn unseal(&self, record: &Record) -> Option<String> {
        match &record.sealed {
            None => Some(record.text.clone()),
            Some(sealed) => restore_secrets(&record.text, &self.inner.opening.open(sealed)?),
        }
    }

    /// Masks again what was masked by older rules. Returns how many turns it looked at; call it until
    /// that is 0.
    pub async fn rescan(&self) -> Result<usize, StoreError> {
        let old = self.inner.store.masked_before(RULES_VERSION, RESCAN).await?;
        let count = old.len();
        let changes = old.iter().map(|record| self.remasked(record, self.unseal(record))).collect();
        if count > 0 {
            self.inner.store.remask(changes).await?;
        }
        Ok(count)
    }

    /// Seals with this home's key what was sealed to an earlier one. Returns how many turns it was.
    pub async fn reseal(&self, earlier: &OpeningKey) -> Result<usize, StoreError> {
        let (mut after, mut count) = (0, 0);
        loop {
            let page = self.inner.store.page(None, after, RESCAN).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = last.seq;
            let mut changes = Vec::new();
            for record in &page {
                let Some(clear) = record.sealed.as_deref().and_then(|s| earlier.open(s)) else {
                    continue;
                };
                // What does not fit its text can't be sealed anew; it stays as it is.
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

    /// The row of a record made anew from its original; where the seal does not open, from what is
    /// there.
    fn remasked(&self, record: &Record, original: Option<String>) -> Remask {
        let preparer = &self.inner.preparer;
        let SealedText { text, sealed } = match &original {
            Some(original) => seal_secrets(original, &preparer.sealing),
            // New rules may find more in what is there; the old seal keeps what it has.
            None => {
                SealedText { text: redact::mask(&record.text).text, sealed: record.sealed.clone() }
            }
        };
        let cue = record.cue.as_ref().map(|cue| redact::mask(cue).text);
        let indexed = indexed_text(&text, cue.as_deref());
        Remask {
            seq: record.seq,
            terms: preparer.index_terms(&indexed),
            vector: preparer.embedder.embed(&indexed),
            text,
            sealed,
            cue,
            rules: RULES_VERSION,
        }
    }
}

fn note_batch(note: &Note, id: String, now: Timestamp) -> CaptureBatch {
    CaptureBatch {
        session: format!("note:{}", note.place.project),
        place: note.place.clone(),
        client: "mcp".to_owned(),
        source: TurnSource::Mcp,
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
