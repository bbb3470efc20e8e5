//! Brings the turns of sessions from the ledger's outbox into the memory. A turn leaves the outbox only once the memory
//! has stored it.
//!
//! New turns are stored together. A turn whose storing failed, or at whose storing an earlier server may have ended, is
//! tried alone, next to the others. Each such attempt is noted in the ledger before it begins. After the last one the
//! turn is set aside for good. A turn that may have ended a server is not tried right after the next start, so that a
//! server which is killed often for other reasons does not count attempts.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use hob_domain::memory::{MaintenanceEvent, Principal, ProjectLocation, Tier, TurnSource};
use hob_domain::session::{OutboxChange, OutboxItem};
use hob_domain::{AppName, LedgerStore, Role, StoreError, Timestamp};
use hob_memory::{CaptureBatch, Engine, RawTurn, locate_project};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The pause between two reads of the outbox.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum number of items that one read takes.
const MAX_BATCH_ITEMS: usize = 100;
/// The maximum number of items that are tried alone at a time.
const MAX_ALONE: usize = 4;
/// An item is set aside after this many attempts.
const MAX_ATTEMPTS: u32 = 5;
/// How long the last drain before the server ends may take.
const LAST_DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// How long the steps of the outbox may take.
#[derive(Clone, Copy)]
pub struct OutboxTimes {
    /// How long finding the project of a turn may take.
    locate: Duration,
    /// How long storing new turns together may take.
    together: Duration,
    /// How long the first attempt to store an item alone may take. Later ones may take longer.
    alone: Duration,
    /// The pause after an error. Items that failed again wait longer.
    retry: Duration,
}

impl Default for OutboxTimes {
    fn default() -> OutboxTimes {
        OutboxTimes {
            locate: Duration::from_secs(5),
            together: Duration::from_secs(10),
            alone: Duration::from_secs(20),
            retry: Duration::from_secs(5),
        }
    }
}

/// Brings turns from the outbox into the memory.
pub struct Outbox {
    ledger: Arc<dyn LedgerStore>,
    engine: Engine,
    times: OutboxTimes,
    /// The items that have to be tried alone.
    failed: HashMap<i64, FailedItem>,
    attempts: JoinSet<Attempt>,
    /// Folders of projects that do not answer. Each of them occupies a thread.
    hanging: HashSet<String>,
    /// Whether the items may have been left by a server that ended while it stored them.
    are_left: bool,
}

/// What is known of an item that has to be tried alone.
struct FailedItem {
    state: FailedState,
    why: String,
}

enum FailedState {
    WaitsUntil(Instant),
    /// The attempts that were noted before this one.
    IsTried {
        earlier: u32,
    },
}

/// An attempt to store an item alone that has ended.
struct Attempt {
    id: i64,
    /// The attempts that were noted before this one.
    earlier: u32,
    result: Result<(), AttemptError>,
}

enum AttemptError {
    /// The store cannot be used at the moment, which says nothing about the item.
    Store(StoreError),
    Item(String),
}

impl Outbox {
    pub fn new(ledger: Arc<dyn LedgerStore>, engine: Engine, times: OutboxTimes) -> Outbox {
        Outbox {
            ledger,
            engine,
            times,
            failed: HashMap::new(),
            attempts: JoinSet::new(),
            hanging: HashSet::new(),
            are_left: false,
        }
    }

    /// Drains until `stopping` is cancelled.
    pub async fn drain(mut self, stopping: CancellationToken) {
        self.are_left = true;
        loop {
            let pause = match self.drain_once().await {
                Ok(MAX_BATCH_ITEMS) => Duration::ZERO,
                Ok(_) => POLL_INTERVAL,
                Err(error) => {
                    tracing::error!(%error, "failed to store turns of sessions in the memory");
                    self.times.retry
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(attempt) = self.attempts.join_next() => self.finish(attempt).await,
                () = stopping.cancelled() => return self.end_attempts().await,
            }
        }
    }

    /// Stores the turns that ended during shutdown. The next start stores those that are left.
    pub async fn drain_last(mut self) {
        let all = async {
            while let Ok(MAX_BATCH_ITEMS) = self.drain_once().await {}
            while let Some(attempt) = self.attempts.join_next().await {
                self.finish(attempt).await;
            }
        };
        if tokio::time::timeout(LAST_DRAIN_DEADLINE, all).await.is_err() {
            tracing::warn!("some turns were not stored in the memory; the next start stores them");
        }
        self.end_attempts().await;
    }

    /// Ends the attempts that are going on. They do not count: the server ends, whatever the turns are.
    async fn end_attempts(&mut self) {
        self.attempts.abort_all();
        while let Some(attempt) = self.attempts.join_next().await {
            // An attempt that failed by itself counts.
            if let Ok(Attempt { id, result: Ok(()) | Err(AttemptError::Item(_)), .. }) = attempt {
                self.failed.remove(&id);
            }
        }
        let (ledger, failed) = (&self.ledger, &self.failed);
        let notes = async {
            for (id, item) in failed {
                if let FailedState::IsTried { earlier } = item.state {
                    lower_attempts(ledger.as_ref(), vec![*id], earlier).await;
                }
            }
        };
        if tokio::time::timeout(LAST_DRAIN_DEADLINE, notes).await.is_err() {
            tracing::warn!("attempts to store turns that ended with the server count as failed");
        }
    }

    /// Stores what is new, and begins attempts with what is due. Returns the number of items.
    async fn drain_once(&mut self) -> Result<usize, StoreError> {
        let now = Instant::now();
        let is_waiting = |(_, item): &(&i64, &FailedItem)| match item.state {
            FailedState::WaitsUntil(due) => due > now,
            FailedState::IsTried { .. } => true,
        };
        let waiting: Vec<i64> = self.failed.iter().filter(is_waiting).map(|(id, _)| *id).collect();
        let items = self.ledger.outbox(MAX_BATCH_ITEMS, &waiting).await?;
        let is_new = |item: &OutboxItem| item.attempts == 0 && !self.failed.contains_key(&item.id);
        let (new, tried): (Vec<_>, Vec<_>) = items.into_iter().partition(is_new);
        let mut count = new.len();
        for item in tried {
            if !self.failed.contains_key(&item.id) {
                let state = FailedState::WaitsUntil(now + self.times.retry * item.attempts);
                self.failed.insert(item.id, FailedItem { state, why: String::new() });
            } else if self.attempts.len() < MAX_ALONE {
                self.try_alone(item).await?;
            } else {
                continue;
            }
            count += 1;
        }
        self.store_new(new).await?;
        self.are_left &= count == MAX_BATCH_ITEMS;
        Ok(count)
    }

    /// Stores items together.
    async fn store_new(&mut self, items: Vec<OutboxItem>) -> Result<(), StoreError> {
        // One transaction per principal, because a transaction costs more than a turn.
        let mut by_principal: Vec<(Principal, Vec<i64>, Vec<CaptureBatch>)> = Vec::new();
        for item in items {
            let id = item.id;
            let Some((principal, batch)) = self.batch(item).await else {
                self.set_aside(id, "it cannot be read").await;
                continue;
            };
            match by_principal.iter_mut().find(|(known, ..)| *known == principal) {
                Some((_, ids, batches)) => {
                    ids.push(id);
                    batches.push(batch);
                }
                None => by_principal.push((principal, vec![id], vec![batch])),
            }
        }
        for (principal, ids, batches) in by_principal {
            if self.are_left {
                self.ledger.change_outbox(ids.clone(), OutboxChange::Attempts(1)).await?;
            }
            let stored = self.engine.capture_all(&principal, batches, Vec::new());
            match tokio::time::timeout(self.times.together, stored).await {
                // If the process is killed before this, the next start captures the turns again; the memory
                // drops duplicates.
                Ok(Ok(_)) => self.ledger.change_outbox(ids, OutboxChange::Stored).await?,
                Ok(Err(error)) if error.is_of_the_store() => {
                    if self.are_left {
                        lower_attempts(self.ledger.as_ref(), ids, 0).await;
                    }
                    return Err(error);
                }
                // One of them is refused, or takes too long. It must not block the others.
                Ok(Err(_)) | Err(_) => {
                    let state = || FailedState::WaitsUntil(Instant::now());
                    self.failed.extend(
                        ids.into_iter()
                            .map(|id| (id, FailedItem { state: state(), why: String::new() })),
                    );
                }
            }
        }
        Ok(())
    }

    /// Begins an attempt to store one item, or sets it aside if there were enough.
    async fn try_alone(&mut self, item: OutboxItem) -> Result<(), StoreError> {
        let (id, earlier) = (item.id, item.attempts);
        if earlier >= MAX_ATTEMPTS {
            let why = self.failed.get(&id).map(|item| item.why.clone()).unwrap_or_default();
            let unknown = "the server ended before it was stored";
            self.set_aside(id, if why.is_empty() { unknown } else { &why }).await;
            return Ok(());
        }
        let Some((principal, batch)) = self.batch(item).await else {
            self.set_aside(id, "it cannot be read").await;
            return Ok(());
        };
        self.ledger.change_outbox(vec![id], OutboxChange::Attempts(earlier + 1)).await?;
        let why = self.failed.remove(&id).map(|item| item.why).unwrap_or_default();
        self.failed.insert(id, FailedItem { state: FailedState::IsTried { earlier }, why });
        let (ledger, engine) = (self.ledger.clone(), self.engine.clone());
        let (deadline, together) = (self.times.alone * (earlier + 1), self.times.together);
        self.attempts.spawn(async move {
            let stored = AssertUnwindSafe(engine.capture(&principal, batch, Vec::new()));
            let result = match tokio::time::timeout(deadline, stored.catch_unwind()).await {
                Ok(Err(_)) => Err(AttemptError::Item("it ends with a panic".to_owned())),
                Ok(Ok(Ok(_))) => {
                    let done = ledger.change_outbox(vec![id], OutboxChange::Stored).await;
                    done.map_err(AttemptError::Store)
                }
                Ok(Ok(Err(error))) if error.is_of_the_store() => Err(AttemptError::Store(error)),
                Ok(Ok(Err(error))) => Err(blame(&engine, together, id, error.to_string()).await),
                Err(_) => Err(blame(&engine, together, id, "it takes too long".to_owned()).await),
            };
            Attempt { id, earlier, result }
        });
        Ok(())
    }

    /// Takes note of how an attempt ended.
    async fn finish(&mut self, attempt: Result<Attempt, JoinError>) {
        let Ok(Attempt { id, earlier, result }) = attempt else { return };
        let (attempts, why) = match result {
            Ok(()) => {
                self.failed.remove(&id);
                return;
            }
            Err(AttemptError::Store(error)) => {
                lower_attempts(self.ledger.as_ref(), vec![id], earlier).await;
                (earlier, error.to_string())
            }
            Err(AttemptError::Item(why)) => (earlier + 1, why),
        };
        tracing::warn!(id, attempts, "a turn of the outbox was not stored: {why}");
        if attempts >= MAX_ATTEMPTS {
            self.set_aside(id, &why).await;
            return;
        }
        let due = Instant::now() + self.times.retry * attempts.max(1);
        self.failed.insert(id, FailedItem { state: FailedState::WaitsUntil(due), why });
    }

    /// Sets an item aside for good. If that cannot be recorded, it is tried again later.
    async fn set_aside(&mut self, id: i64, why: &str) {
        let detail =
            format!("turn {id} of the outbox could not be stored and was set aside: {why}");
        tracing::error!("{detail}");
        let noted = match note(&self.engine, self.times.together, "set_aside", detail).await {
            Ok(()) => self.ledger.change_outbox(vec![id], OutboxChange::SetAside).await,
            Err(error) => Err(error),
        };
        match noted {
            Ok(()) => {
                self.failed.remove(&id);
            }
            Err(error) => {
                tracing::error!(%error, "failed to record that a turn was set aside");
                let state = FailedState::WaitsUntil(Instant::now() + self.times.retry);
                self.failed.insert(id, FailedItem { state, why: why.to_owned() });
            }
        }
    }

    /// Returns the turn as the memory captures it, and the principal whose memory it is.
    async fn batch(&mut self, item: OutboxItem) -> Option<(Principal, CaptureBatch)> {
        let app = AppName::stored(item.app.as_str()).ok()?;
        let principal = match app.is_owner() {
            true => Principal::Owner,
            false => Principal::App(item.app),
        };
        let remembered = item.turn?;
        let place = self.locate(&remembered.cwd).await;
        let turn = |id: String, role, text: String, ts| RawTurn {
            id: Some(id),
            role,
            text,
            ts,
            at: None,
            n: 1,
            answer: None,
            tier: Tier::default(),
            cue: None,
        };
        let n = remembered.turn_index;
        let mut turns =
            vec![turn(format!("turn-{n}"), Role::User, remembered.prompt, remembered.asked_at)];
        for (index, answer) in remembered.answers.into_iter().enumerate() {
            let id = format!("turn-{n}-{index}");
            turns.push(turn(id, Role::Assistant, answer, remembered.ended_at));
        }
        let batch = CaptureBatch {
            session: remembered.session_id,
            place,
            client: remembered.agent,
            source: TurnSource::Session,
            turns,
        };
        Some((principal, batch))
    }

    /// Returns the project of a folder. A folder that does not answer, such as one on a network drive that is gone, counts
    /// as its own project.
    async fn locate(&mut self, cwd: &str) -> ProjectLocation {
        let alone = || ProjectLocation { project: cwd.to_owned(), worktree: cwd.to_owned() };
        if self.hanging.contains(cwd) {
            return alone();
        }
        let folder = cwd.to_owned();
        let locating = tokio::task::spawn_blocking(move || locate_project(Path::new(&folder)));
        match tokio::time::timeout(self.times.locate, locating).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => alone(),
            Err(_) => {
                tracing::warn!("the folder of a session does not answer; its project is unknown");
                self.hanging.insert(cwd.to_owned());
                alone()
            }
        }
    }
}

/// Notes the number of attempts without those that say nothing about the items.
async fn lower_attempts(ledger: &dyn LedgerStore, ids: Vec<i64>, attempts: u32) {
    if let Err(error) = ledger.change_outbox(ids, OutboxChange::Attempts(attempts)).await {
        tracing::error!(%error, "failed to note the attempts to store turns");
    }
}

/// Returns who is at fault that a turn was not stored: the turn, if the memory stores something else.
async fn blame(engine: &Engine, within: Duration, id: i64, why: String) -> AttemptError {
    let detail = format!("turn {id} of the outbox was not stored: {why}");
    match note(engine, within, "not_stored", detail).await {
        Ok(()) => AttemptError::Item(why),
        Err(error) => AttemptError::Store(error),
    }
}

/// Notes an event in the memory.
async fn note(
    engine: &Engine,
    within: Duration,
    kind: &str,
    detail: String,
) -> Result<(), StoreError> {
    let event = MaintenanceEvent { at: Timestamp::now(), kind: kind.to_owned(), detail };
    let noted = tokio::time::timeout(within, engine.note_event(event)).await;
    let late = || StoreError::Unavailable("the memory did not answer in time".to_owned());
    noted.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
