//! Brings the turns of sessions from the ledger's outbox into the memory, in order. A turn leaves
//! the outbox only once the memory has stored it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::memory::{MaintenanceEvent, Principal, Tier, TurnSource};
use hob_domain::session::OutboxItem;
use hob_domain::{AppName, LedgerStore, Role, StoreError, Timestamp};
use hob_memory::{CaptureBatch, Engine, RawTurn, locate_project};
use tokio_util::sync::CancellationToken;

/// The pause between two reads of the outbox.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of items that one read takes.
const MAX_BATCH_ITEMS: usize = 100;
/// How long one step may take.
const ITEM_DEADLINE: Duration = Duration::from_secs(60);
/// An item that was not stored in time this often is set aside.
const MAX_TIMEOUTS: u32 = 3;
const HANGING_FOLDER: &str = "the folder of its project does not answer";
/// How long the last drain before the server ends may take.
const LAST_DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// Brings turns from the outbox into the memory.
pub struct Outbox {
    ledger: Arc<dyn LedgerStore>,
    engine: Engine,
    /// Items that the memory refused. They stay in the outbox, and the next server tries them again.
    set_aside: Vec<i64>,
    /// How often an item by itself was not stored in time.
    timeouts: HashMap<i64, u32>,
    /// Folders of projects that do not answer. Each of them occupies a thread.
    hanging: HashSet<String>,
}

impl Outbox {
    pub fn new(ledger: Arc<dyn LedgerStore>, engine: Engine) -> Outbox {
        let (timeouts, hanging) = (HashMap::new(), HashSet::new());
        Outbox { ledger, engine, set_aside: Vec::new(), timeouts, hanging }
    }

    /// Drains until `stopping` is cancelled.
    pub async fn drain(mut self, stopping: CancellationToken) {
        loop {
            let pause = match self.drain_once().await {
                Ok(MAX_BATCH_ITEMS) => Duration::ZERO,
                Ok(_) => POLL_INTERVAL,
                Err(error) => {
                    tracing::error!(%error, "failed to store turns of sessions in the memory");
                    RETRY_INTERVAL
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopping.cancelled() => return,
            }
        }
    }

    /// Stores the turns that ended during shutdown. The next start stores those that are left.
    pub async fn drain_last(mut self) {
        let all = async { while let Ok(MAX_BATCH_ITEMS) = self.drain_once().await {} };
        if tokio::time::timeout(LAST_DRAIN_DEADLINE, all).await.is_err() {
            tracing::warn!("some turns were not stored in the memory; the next start stores them");
        }
    }

    async fn drain_once(&mut self) -> Result<usize, StoreError> {
        let items = self.ledger.outbox(MAX_BATCH_ITEMS, &self.set_aside).await?;
        let count = items.len();
        // One transaction per principal, because a transaction costs more than a turn.
        let mut by_principal: Vec<(Principal, Vec<(i64, CaptureBatch)>)> = Vec::new();
        for item in items {
            let id = item.id;
            let folder = item.turn.as_ref().map(|turn| turn.cwd.clone()).unwrap_or_default();
            if self.hanging.contains(&folder) {
                self.put_aside(id, HANGING_FOLDER).await;
                continue;
            }
            let batch = tokio::task::spawn_blocking(move || batch(item));
            let Ok(batch) = tokio::time::timeout(ITEM_DEADLINE, batch).await else {
                self.hanging.insert(folder);
                self.put_aside(id, HANGING_FOLDER).await;
                continue;
            };
            let Some((principal, batch)) = batch.ok().flatten() else {
                self.put_aside(id, "it cannot be read").await;
                continue;
            };
            match by_principal.iter_mut().find(|(known, _)| *known == principal) {
                Some((_, batches)) => batches.push((id, batch)),
                None => by_principal.push((principal, vec![(id, batch)])),
            }
        }
        for (principal, items) in by_principal {
            let (ids, batches): (Vec<i64>, Vec<CaptureBatch>) = items.iter().cloned().unzip();
            let stored = self.engine.capture_all(&principal, batches, Vec::new());
            match tokio::time::timeout(ITEM_DEADLINE, stored).await {
                // If the process is killed before this, the next start captures the turns again; the memory
                // drops duplicates.
                Ok(Ok(_)) => self.ledger.outbox_done(ids).await?,
                Ok(Err(error)) if error.is_temporary() => return Err(error),
                // A turn that the memory refuses, or that takes too long, must not block the others.
                Ok(Err(_)) | Err(_) => self.store_each(&principal, items).await?,
            }
        }
        Ok(count)
    }

    /// Stores items one by one, and sets aside those that the memory refuses.
    async fn store_each(
        &mut self,
        principal: &Principal,
        items: Vec<(i64, CaptureBatch)>,
    ) -> Result<(), StoreError> {
        for (id, batch) in items {
            let stored = self.engine.capture(principal, batch, Vec::new());
            match tokio::time::timeout(ITEM_DEADLINE, stored).await {
                Ok(Ok(_)) => self.ledger.outbox_done(vec![id]).await?,
                Ok(Err(error)) if error.is_temporary() => return Err(error),
                Ok(Err(error)) => self.put_aside(id, &error.to_string()).await,
                Err(_) => self.note_timeout(id).await?,
            }
        }
        Ok(())
    }

    /// Sets an item aside that was not stored in time again and again. Before that, the store may be at fault.
    async fn note_timeout(&mut self, id: i64) -> Result<(), StoreError> {
        let count = self.timeouts.entry(id).or_default();
        *count += 1;
        if *count < MAX_TIMEOUTS {
            return Err(StoreError::Unavailable("it did not answer in time".to_owned()));
        }
        self.put_aside(id, "it takes too long").await;
        Ok(())
    }

    async fn put_aside(&mut self, id: i64, why: &str) {
        self.set_aside.push(id);
        let detail = format!("turn {id} of the outbox could not be stored and waits there: {why}");
        tracing::error!("{detail}");
        let event = MaintenanceEvent { at: Timestamp::now(), kind: "set_aside".to_owned(), detail };
        if let Err(error) = self.engine.note_event(event).await {
            tracing::error!(%error, "failed to record that a turn was set aside");
        }
    }
}

/// Returns the turn as the memory captures it, and the principal whose memory it is.
fn batch(item: OutboxItem) -> Option<(Principal, CaptureBatch)> {
    let remembered = item.turn?;
    let app = AppName::stored(item.app.as_str()).ok()?;
    let principal = match app.is_owner() {
        true => Principal::Owner,
        false => Principal::App(item.app),
    };
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
        turns.push(turn(format!("turn-{n}-{index}"), Role::Assistant, answer, remembered.ended_at));
    }
    let batch = CaptureBatch {
        session: remembered.session_id,
        place: locate_project(Path::new(&remembered.cwd)),
        client: remembered.agent,
        source: TurnSource::Session,
        turns,
    };
    Some((principal, batch))
}
