//! The chosen model beside the table. A question gets its vector before it is asked; turns get theirs in
//! the background, the newest first, whenever there is nothing else to do.

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
use crate::text::indexed_text::indexed_text;

/// How many questions are remembered with their vectors.
const QUESTIONS: usize = 64;
/// How many questions the model looks at at once.
const AT_ONCE: usize = 2;
/// What is embedded in one go: so many turns, and about so many letters. It takes about a tenth of a
/// second, which is also what stopping may have to wait for.
const BATCH: usize = 16;
const BATCH_LETTERS: usize = 1600;
/// Letters behind these are not looked at by any model.
const LETTERS: usize = 1600;
/// How many turns are read at a time, and removed where a model is no longer used.
const PAGE: usize = 64;
const DROPPED: usize = 200;
/// Nobody must have asked or captured anything for so long, but after so long it goes on all the same.
const QUIET: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it looks for turns that came without its being told, by a command that ran by itself.
const LOOK: Duration = Duration::from_secs(10);
/// How long it waits when the store fails, and how often it says how far it is.
const RETRY: Duration = Duration::from_secs(5);
const SAID: Duration = Duration::from_secs(30);

/// How far the model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeProgress {
    /// The folder it comes from.
    pub folder: PathBuf,
    pub state: UpgradeState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeState {
    Loading,
    /// It can't be used, and why; the table is used alone.
    Failed(String),
    Ready(Embedded),
}

/// What an engine knows of the chosen model.
pub(crate) struct Upgrade {
    state: RwLock<State>,
    questions: Mutex<VecDeque<(String, Vec<i8>)>>,
    asking: Semaphore,
    work: AtomicUsize,
    last_work: Mutex<Option<Instant>>,
    news: AtomicBool,
    woken: Notify,
}

enum State {
    None,
    Loading(PathBuf),
    Failed(PathBuf, String),
    Ready(Arc<Chosen>),
}

struct Chosen {
    folder: PathBuf,
    model: SentenceModel,
    kind: VectorKind,
}

impl Default for Upgrade {
    fn default() -> Upgrade {
        Upgrade {
            state: RwLock::new(State::None),
            questions: Mutex::default(),
            asking: Semaphore::new(AT_ONCE),
            work: AtomicUsize::default(),
            last_work: Mutex::default(),
            news: AtomicBool::default(),
            woken: Notify::new(),
        }
    }
}

/// Somebody waits for something, for as long as this lives.
pub(crate) struct Work<'a>(&'a Upgrade);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        *self.0.last_work.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.work.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Upgrade {
    pub(crate) fn work(&self) -> Work<'_> {
        self.work.fetch_add(1, Ordering::SeqCst);
        Work(self)
    }

    /// Turns have come.
    pub(crate) fn tell(&self) {
        self.news.store(true, Ordering::SeqCst);
        self.woken.notify_one();
    }

    /// A question's vector by the model, where there is one. It is made on a thread of its own.
    pub(crate) async fn question(&self, cue: impl FnOnce() -> String) -> Option<KindVector> {
        let chosen = self.chosen()?;
        let (kind, cue) = (chosen.kind, cue());
        if let Some(vector) = self.known(&cue) {
            return Some(KindVector { kind, vector });
        }
        let _place = self.asking.acquire().await.ok()?;
        let text = cue.clone();
        let embed = move || chosen.model.embed(&[&text]).pop();
        let vector = tokio::task::spawn_blocking(embed).await.ok().flatten()?;
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        questions.push_front((cue, vector.clone()));
        questions.truncate(QUESTIONS);
        Some(KindVector { kind, vector })
    }

    fn known(&self, cue: &str) -> Option<Vec<i8>> {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let place = questions.iter().position(|(known, _)| known == cue)?;
        let found = questions.remove(place)?;
        let vector = found.1.clone();
        questions.push_front(found);
        Some(vector)
    }

    fn chosen(&self) -> Option<Arc<Chosen>> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Ready(chosen) => Some(chosen.clone()),
            _ => None,
        }
    }

    fn set(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    pub(crate) async fn progress(
        &self,
        store: &dyn MemoryStore,
    ) -> Result<Option<UpgradeProgress>, StoreError> {
        let chosen = match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::None => return Ok(None),
            State::Loading(folder) => Err((folder.clone(), UpgradeState::Loading)),
            State::Failed(folder, why) => Err((folder.clone(), UpgradeState::Failed(why.clone()))),
            State::Ready(chosen) => Ok(chosen.clone()),
        };
        let (folder, state) = match chosen {
            Ok(chosen) => {
                let embedded = store.embedded(chosen.kind).await?;
                (chosen.folder.clone(), UpgradeState::Ready(embedded))
            }
            Err(other) => other,
        };
        Ok(Some(UpgradeProgress { folder, state }))
    }

    /// Reads the model, and then has every turn embedded that is not yet, until told to stop. Costs
    /// nothing while there is nothing to do.
    pub(crate) async fn run(
        &self,
        store: &dyn MemoryStore,
        folder: PathBuf,
        stopping: CancellationToken,
    ) {
        let work = async {
            let Some(chosen) = self.load(store, folder).await else { return };
            let mut way = Way::default();
            loop {
                match self.go(store, &chosen, &mut way).await {
                    Ok(()) => {
                        let told = tokio::time::timeout(LOOK, self.woken.notified()).await;
                        if told.is_err() {
                            self.news.store(true, Ordering::SeqCst);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "turns could not be embedded; trying again");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = stopping.cancelled() => {}
        }
    }

    async fn load(&self, store: &dyn MemoryStore, folder: PathBuf) -> Option<Arc<Chosen>> {
        self.set(State::Loading(folder.clone()));
        let from = folder.clone();
        let loaded = tokio::task::spawn_blocking(move || SentenceModel::load(&from)).await;
        let chosen = match loaded {
            Ok(Ok(model)) => match kind_of(store, &model).await {
                Ok(kind) => Ok(Arc::new(Chosen { folder: folder.clone(), model, kind })),
                Err(error) => Err(error.to_string()),
            },
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match chosen {
            Ok(chosen) => {
                self.set(State::Ready(chosen.clone()));
                Some(chosen)
            }
            Err(why) => {
                tracing::error!(
                    "memory.model can't be used: {why}; the built-in table is used alone"
                );
                self.set(State::Failed(folder, why));
                None
            }
        }
    }

    /// Goes the way to its end, and whatever comes meanwhile first.
    async fn go(
        &self,
        store: &dyn MemoryStore,
        chosen: &Arc<Chosen>,
        way: &mut Way,
    ) -> Result<(), StoreError> {
        let mut said: Option<Instant> = None;
        loop {
            if self.news.swap(false, Ordering::SeqCst) || way.top.is_none() {
                let all = store.embedded(chosen.kind).await?;
                way.extend(&all);
                let left = all.turns.saturating_sub(all.done);
                if left > 0 && said.is_none_or(|said| said.elapsed() > SAID) {
                    said = Some(Instant::now());
                    let (folder, done) = (chosen.folder.display(), all.done);
                    tracing::info!(%folder, done, left, "embedding turns in the background");
                }
            }
            let Some((above, below)) = way.parts.last().copied() else { break };
            self.quiet().await;
            let page = store.without_vector(chosen.kind, below, above, PAGE).await?;
            self.embed(store, chosen, page.turns).await?;
            way.done_to(page.below);
        }
        if !way.alone {
            while store.drop_other_vectors(chosen.kind, DROPPED).await? > 0 {
                self.quiet().await;
            }
            way.alone = true;
            let folder = chosen.folder.display();
            tracing::info!(%folder, "all turns have vectors of the chosen model");
        }
        Ok(())
    }

    async fn embed(
        &self,
        store: &dyn MemoryStore,
        chosen: &Arc<Chosen>,
        turns: Vec<Unembedded>,
    ) -> Result<(), StoreError> {
        let mut turns: VecDeque<(i64, String)> =
            turns.into_iter().map(|turn| (turn.seq, words(&turn))).collect();
        while !turns.is_empty() {
            let mut letters = 0;
            let fits = turns.iter().take(BATCH).take_while(|(_, words)| {
                letters += words.len();
                letters <= BATCH_LETTERS
            });
            let count = fits.count().max(1);
            let batch: Vec<(i64, String)> = turns.drain(..count).collect();
            self.quiet().await;
            let chosen = chosen.clone();
            let kind = chosen.kind;
            let embed = move || {
                let words: Vec<&str> = batch.iter().map(|(_, words)| words.as_str()).collect();
                let vectors = chosen.model.embed(&words);
                batch.iter().map(|(seq, _)| *seq).zip(vectors).collect()
            };
            let vectors = tokio::task::spawn_blocking(embed)
                .await
                .map_err(|error| StoreError::Failed(error.to_string()))?;
            store.save_vectors(kind, vectors).await?;
        }
        Ok(())
    }

    /// Waits until nobody else is at work, though not for ever.
    async fn quiet(&self) {
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            let last = *self.last_work.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = last.map_or(QUIET, |last| last.elapsed());
            if self.work.load(Ordering::SeqCst) == 0 && rest >= QUIET {
                return;
            }
            tokio::time::sleep(QUIET.saturating_sub(rest).max(QUIET / 10)).await;
        }
    }
}

/// What is still to be looked at: parts of the numbers, the one to go on with last.
#[derive(Default)]
struct Way {
    /// The newest turn that is in a part, or behind us.
    top: Option<i64>,
    /// Each above one number and below another.
    parts: Vec<(i64, i64)>,
    /// Whether no other model has vectors any more.
    alone: bool,
}

impl Way {
    /// Adds what is new, to be done first.
    fn extend(&mut self, all: &Embedded) {
        let whole = self.top.is_none() && all.done >= all.turns;
        let from = self.top.unwrap_or_default();
        if all.newest > from && !whole {
            self.parts.push((from, all.newest + 1));
        }
        self.top = Some(all.newest.max(from));
    }

    fn done_to(&mut self, below: Option<i64>) {
        let part = self.parts.pop();
        if let (Some((above, _)), Some(below)) = (part, below) {
            self.parts.push((above, below));
        }
    }
}

/// What a turn is found by, as far as a model looks at it.
fn words(turn: &Unembedded) -> String {
    let words = indexed_text(&turn.text, turn.cue.as_deref());
    crate::text::analyse::beginning(&words, LETTERS).to_owned()
}

/// The kind of a model's vectors. A store that is busy is asked again.
async fn kind_of(store: &dyn MemoryStore, model: &SentenceModel) -> Result<VectorKind, StoreError> {
    loop {
        match store.vector_kind(model.name(), model.width()).await {
            Err(error) if error.is_temporary() => tokio::time::sleep(RETRY).await,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first() {
        let mut way = Way::default();
        way.extend(&Embedded { done: 0, turns: 50, newest: 50 });
        assert_eq!(way.parts, [(0, 51)]);
        way.done_to(Some(40));
        way.extend(&Embedded { done: 11, turns: 53, newest: 53 });
        assert_eq!(way.parts, [(0, 40), (50, 54)]);
        way.done_to(None);
        way.extend(&Embedded { done: 14, turns: 53, newest: 53 });
        assert_eq!(way.parts, [(0, 40)]);
        way.done_to(None);
        assert!(way.parts.is_empty());
        let mut again = Way::default();
        again.extend(&Embedded { done: 53, turns: 53, newest: 53 });
        assert!(again.parts.is_empty() && again.top == Some(53));
        again.extend(&Embedded { done: 53, turns: 54, newest: 60 });
        assert_eq!(again.parts, [(53, 61)]);
    }
}
