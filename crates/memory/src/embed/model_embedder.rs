//! Embedding with the configured sentence model, in addition to the built-in table.
//!
//! A query is embedded before it is sent to the store. Turns are embedded in the background, the
//! newest first, while the memory has no other work.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hob_domain::StoreError;
use hob_domain::memory::{Embedded, KindVector, MemoryStore, Unembedded, VectorKind};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::embed::model::SentenceModel;
use crate::text::analyse::truncated;
use crate::text::indexed_text::indexed_text;

/// How many query vectors are cached.
const QUERY_CACHE_ENTRIES: usize = 64;
/// How many queries are embedded at the same time.
const MAX_CONCURRENT_QUERIES: usize = 2;
/// The most turns and bytes of text in one batch. A batch takes about a tenth of a second, and
/// shutdown may have to wait for it.
const MAX_BATCH_TURNS: usize = 16;
const MAX_BATCH_BYTES: usize = 1600;
/// How many bytes of a turn are embedded. No supported model takes more tokens than they give.
const MAX_TURN_BYTES: usize = 1600;
/// How many turns are read from the store at a time.
const PAGE_TURNS: usize = 64;
/// How many vectors of other models are removed in one transaction.
const DROP_BATCH_VECTORS: usize = 200;
/// How long the memory must have been idle before the next batch.
const IDLE_TIME: Duration = Duration::from_millis(100);
/// How long to wait for idleness before the next batch runs all the same.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(1);
/// How often to look for turns that another process has stored.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How long to wait after the store has failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often progress is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The progress of the configured model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelProgress {
    /// The model's folder.
    pub folder: PathBuf,
    pub state: ModelState,
}

/// The state of the configured model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelState {
    Loading,
    /// The model cannot be used, for this reason. Recall uses the table alone.
    Failed(String),
    Ready(Embedded),
}

/// The engine's side of the configured model, if there is one.
pub(crate) struct ModelEmbedder {
    slot: RwLock<ModelSlot>,
    /// Recent queries with their vectors, the latest first.
    query_cache: Mutex<VecDeque<(String, Vec<i8>)>>,
    query_permits: Semaphore,
    /// How many recalls and captures are running.
    foreground: AtomicUsize,
    last_foreground: Mutex<Option<Instant>>,
    has_new_turns: AtomicBool,
    new_turns: Notify,
}

enum ModelSlot {
    None,
    Loading(PathBuf),
    Failed(PathBuf, String),
    Ready(Arc<LoadedModel>),
}

struct LoadedModel {
    folder: PathBuf,
    model: SentenceModel,
    kind: VectorKind,
}

impl Default for ModelEmbedder {
    fn default() -> ModelEmbedder {
        ModelEmbedder {
            slot: RwLock::new(ModelSlot::None),
            query_cache: Mutex::default(),
            query_permits: Semaphore::new(MAX_CONCURRENT_QUERIES),
            foreground: AtomicUsize::default(),
            last_foreground: Mutex::default(),
            has_new_turns: AtomicBool::default(),
            new_turns: Notify::new(),
        }
    }
}

/// Marks a recall or capture as running until it is dropped. Background embedding waits for it.
pub(crate) struct ForegroundGuard<'a>(&'a ModelEmbedder);

impl Drop for ForegroundGuard<'_> {
    fn drop(&mut self) {
        *self.0.last_foreground.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Instant::now());
        self.0.foreground.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ModelEmbedder {
    pub(crate) fn enter_foreground(&self) -> ForegroundGuard<'_> {
        self.foreground.fetch_add(1, Ordering::SeqCst);
        ForegroundGuard(self)
    }

    /// Wakes the background task: turns have been stored.
    pub(crate) fn notify_new_turns(&self) {
        self.has_new_turns.store(true, Ordering::SeqCst);
        self.new_turns.notify_one();
    }

    /// Returns the model's vector of a query; `None` without a loaded model. The closure runs only
    /// if there is a model. Embedding runs on a blocking thread.
    pub(crate) async fn embed_query(&self, query: impl FnOnce() -> String) -> Option<KindVector> {
        let loaded = self.loaded()?;
        let (kind, query) = (loaded.kind, query());
        if let Some(vector) = self.cached(&query) {
            return Some(KindVector { kind, vector });
        }
        let _permit = self.query_permits.acquire().await.ok()?;
        let text = query.clone();
        let embed = move || loaded.model.embed(&[&text]).pop();
        let vector = tokio::task::spawn_blocking(embed).await.ok().flatten()?;
        let mut cache = self.query_cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.push_front((query, vector.clone()));
        cache.truncate(QUERY_CACHE_ENTRIES);
        Some(KindVector { kind, vector })
    }

    /// Looks a query up in the cache and moves it to the front.
    fn cached(&self, query: &str) -> Option<Vec<i8>> {
        let mut cache = self.query_cache.lock().unwrap_or_else(PoisonError::into_inner);
        let index = cache.iter().position(|(cached, _)| cached == query)?;
        let entry = cache.remove(index)?;
        let vector = entry.1.clone();
        cache.push_front(entry);
        Some(vector)
    }

    fn loaded(&self) -> Option<Arc<LoadedModel>> {
        match &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
            ModelSlot::Ready(loaded) => Some(loaded.clone()),
            _ => None,
        }
    }

    fn set_slot(&self, slot: ModelSlot) {
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = slot;
    }

    /// Returns the model's progress; `None` if no model is configured.
    pub(crate) async fn progress(
        &self,
        store: &dyn MemoryStore,
    ) -> Result<Option<ModelProgress>, StoreError> {
        let loaded = match &*self.slot.read().unwrap_or_else(PoisonError::into_inner) {
            ModelSlot::None => return Ok(None),
            ModelSlot::Loading(folder) => Err((folder.clone(), ModelState::Loading)),
            ModelSlot::Failed(folder, reason) => {
                Err((folder.clone(), ModelState::Failed(reason.clone())))
            }
            ModelSlot::Ready(loaded) => Ok(loaded.clone()),
        };
        let (folder, state) = match loaded {
            Ok(loaded) => {
                let embedded = store.embedded(loaded.kind).await?;
                (loaded.folder.clone(), ModelState::Ready(embedded))
            }
            Err(other) => other,
        };
        Ok(Some(ModelProgress { folder, state }))
    }

    /// Loads the model, then embeds every turn that has no vector of it, until `stopping` is
    /// cancelled. Sleeps while all turns are embedded.
    pub(crate) async fn run(
        &self,
        store: &dyn MemoryStore,
        folder: PathBuf,
        stopping: CancellationToken,
    ) {
        let work = async {
            let Some(loaded) = self.load(store, folder).await else { return };
            let mut pending = PendingTurns::default();
            loop {
                match self.embed_pending(store, &loaded, &mut pending).await {
                    Ok(()) => {
                        let notified = self.new_turns.notified();
                        let notified = tokio::time::timeout(POLL_INTERVAL, notified).await;
                        if notified.is_err() {
                            self.has_new_turns.store(true, Ordering::SeqCst);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to embed turns; retrying");
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = stopping.cancelled() => {}
        }
    }

    async fn load(&self, store: &dyn MemoryStore, folder: PathBuf) -> Option<Arc<LoadedModel>> {
        self.set_slot(ModelSlot::Loading(folder.clone()));
        let from = folder.clone();
        let loaded = tokio::task::spawn_blocking(move || SentenceModel::load(&from)).await;
        let loaded = match loaded {
            Ok(Ok(model)) => match vector_kind(store, &model).await {
                Ok(kind) => Ok(Arc::new(LoadedModel { folder: folder.clone(), model, kind })),
                Err(error) => Err(error.to_string()),
            },
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match loaded {
            Ok(loaded) => {
                self.set_slot(ModelSlot::Ready(loaded.clone()));
                Some(loaded)
            }
            Err(reason) => {
                tracing::error!(
                    "failed to load memory.model: {reason}; recall uses the built-in table alone"
                );
                self.set_slot(ModelSlot::Failed(folder, reason));
                None
            }
        }
    }

    /// Embeds all pending turns, those that arrive meanwhile first. Then removes the vectors of
    /// other models.
    async fn embed_pending(
        &self,
        store: &dyn MemoryStore,
        loaded: &Arc<LoadedModel>,
        pending: &mut PendingTurns,
    ) -> Result<(), StoreError> {
        let mut logged: Option<Instant> = None;
        loop {
            if self.has_new_turns.swap(false, Ordering::SeqCst) || pending.newest.is_none() {
                let all = store.embedded(loaded.kind).await?;
                pending.extend(&all);
                let left = all.turns.saturating_sub(all.done);
                if left > 0 && logged.is_none_or(|logged| logged.elapsed() > LOG_INTERVAL) {
                    logged = Some(Instant::now());
                    let (folder, done) = (loaded.folder.display(), all.done);
                    tracing::info!(%folder, done, left, "embedding turns in the background");
                }
            }
            let Some((above, below)) = pending.ranges.last().copied() else { break };
            self.wait_until_idle().await;
            let page = store.without_vector(loaded.kind, below, above, PAGE_TURNS).await?;
            self.embed_turns(store, loaded, page.turns).await?;
            pending.done_down_to(page.below);
        }
        if !pending.other_models_dropped {
            while store.drop_other_vectors(loaded.kind, DROP_BATCH_VECTORS).await? > 0 {
                self.wait_until_idle().await;
            }
            pending.other_models_dropped = true;
            let folder = loaded.folder.display();
            tracing::info!(%folder, "all turns have vectors of the configured model");
        }
        Ok(())
    }

    async fn embed_turns(
        &self,
        store: &dyn MemoryStore,
        loaded: &Arc<LoadedModel>,
        turns: Vec<Unembedded>,
    ) -> Result<(), StoreError> {
        let mut turns: VecDeque<(i64, String)> =
            turns.into_iter().map(|turn| (turn.seq, embedded_text(&turn))).collect();
        while !turns.is_empty() {
            let mut bytes = 0;
            let fits = turns.iter().take(MAX_BATCH_TURNS).take_while(|(_, text)| {
                bytes += text.len();
                bytes <= MAX_BATCH_BYTES
            });
            let count = fits.count().max(1);
            let batch: Vec<(i64, String)> = turns.drain(..count).collect();
            self.wait_until_idle().await;
            let loaded = loaded.clone();
            let kind = loaded.kind;
            let embed = move || {
                let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
                let vectors = loaded.model.embed(&texts);
                batch.iter().map(|(seq, _)| *seq).zip(vectors).collect()
            };
            let vectors = tokio::task::spawn_blocking(embed)
                .await
                .map_err(|error| StoreError::Failed(error.to_string()))?;
            store.save_vectors(kind, vectors).await?;
        }
        Ok(())
    }

    /// Waits until no recall or capture has run for [`IDLE_TIME`], at most [`MAX_IDLE_WAIT`].
    async fn wait_until_idle(&self) {
        let deadline = Instant::now() + MAX_IDLE_WAIT;
        while Instant::now() < deadline {
            let last = *self.last_foreground.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = last.map_or(IDLE_TIME, |last| last.elapsed());
            if self.foreground.load(Ordering::SeqCst) == 0 && idle >= IDLE_TIME {
                return;
            }
            tokio::time::sleep(IDLE_TIME.saturating_sub(idle).max(IDLE_TIME / 10)).await;
        }
    }
}

/// The turns that may still need a vector, as ranges of their sequence numbers.
#[derive(Default)]
struct PendingTurns {
    /// The newest turn that was ever in a range.
    newest: Option<i64>,
    /// Ranges between two exclusive bounds. The last one is worked on, from its upper end down.
    ranges: Vec<(i64, i64)>,
    /// Whether the vectors of other models are removed.
    other_models_dropped: bool,
}

impl PendingTurns {
    /// Adds the turns that are newer than all seen before, to be done first.
    fn extend(&mut self, all: &Embedded) {
        let complete = self.newest.is_none() && all.done >= all.turns;
        let from = self.newest.unwrap_or_default();
        if all.newest > from && !complete {
            self.ranges.push((from, all.newest + 1));
        }
        self.newest = Some(all.newest.max(from));
    }

    /// Lowers the upper bound of the current range; `None` ends the range.
    fn done_down_to(&mut self, below: Option<i64>) {
        let range = self.ranges.pop();
        if let (Some((above, _)), Some(below)) = (range, below) {
            self.ranges.push((above, below));
        }
    }
}

/// Returns the part of a turn's indexed text that is embedded.
fn embedded_text(turn: &Unembedded) -> String {
    let text = indexed_text(&turn.text, turn.cue.as_deref());
    truncated(&text, MAX_TURN_BYTES).to_owned()
}

/// Returns the store's number for a model's vectors. Retries while the store is busy.
async fn vector_kind(
    store: &dyn MemoryStore,
    model: &SentenceModel,
) -> Result<VectorKind, StoreError> {
    loop {
        match store.vector_kind(model.name(), model.width()).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(RETRY_DELAY).await,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_turns_are_embedded_first() {
        let mut pending = PendingTurns::default();
        pending.extend(&Embedded { done: 0, turns: 50, newest: 50 });
        assert_eq!(pending.ranges, [(0, 51)]);
        pending.done_down_to(Some(40));
        pending.extend(&Embedded { done: 11, turns: 53, newest: 53 });
        assert_eq!(pending.ranges, [(0, 40), (50, 54)]);
        pending.done_down_to(None);
        pending.extend(&Embedded { done: 14, turns: 53, newest: 53 });
        assert_eq!(pending.ranges, [(0, 40)]);
        pending.done_down_to(None);
        assert!(pending.ranges.is_empty());
        let mut again = PendingTurns::default();
        again.extend(&Embedded { done: 53, turns: 53, newest: 53 });
        assert!(again.ranges.is_empty() && again.newest == Some(53));
        again.extend(&Embedded { done: 53, turns: 54, newest: 60 });
        assert_eq!(again.ranges, [(53, 61)]);
    }
}
