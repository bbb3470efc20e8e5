//! Brings the turns of sessions from the ledger's outbox into the memory, in order. A turn leaves
//! the outbox only once the memory has stored it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::memory::{Principal, Tier, TurnSource};
use hob_domain::session::OutboxItem;
use hob_domain::{AppName, LedgerStore, Role, StoreError};
use hob_memory::{CaptureBatch, Engine, RawTurn, locate_project};
use tokio_util::sync::CancellationToken;

/// The pause between two reads of the outbox.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of items that one read takes.
const MAX_BATCH_ITEMS: usize = 100;
/// How long the last drain before the server ends may take.
const LAST_DRAIN_DEADLINE: Duration = Duration::from_secs(2);

/// Drains the outbox until `stopping` is cancelled.
pub async fn drain(ledger: Arc<dyn LedgerStore>, engine: Engine, stopping: CancellationToken) {
    loop {
        let pause = match drain_once(&*ledger, &engine).await {
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
pub async fn drain_last(ledger: &dyn LedgerStore, engine: &Engine) {
    let all = async { while let Ok(MAX_BATCH_ITEMS) = drain_once(ledger, engine).await {} };
    if tokio::time::timeout(LAST_DRAIN_DEADLINE, all).await.is_err() {
        tracing::warn!("some turns were not stored in the memory; the next start stores them");
    }
}

async fn drain_once(ledger: &dyn LedgerStore, engine: &Engine) -> Result<usize, StoreError> {
    let items = ledger.outbox(MAX_BATCH_ITEMS).await?;
    // One transaction per principal, because a transaction costs more than a turn.
    let mut by_principal: Vec<(Principal, Vec<CaptureBatch>)> = Vec::new();
    let ids: Vec<i64> = items.iter().map(|item| item.id).collect();
    for item in items {
        let id = item.id;
        let Some((principal, batch)) = batch(item) else {
            tracing::error!(item = id, "dropped an unreadable outbox item");
            continue;
        };
        match by_principal.iter_mut().find(|(known, _)| *known == principal) {
            Some((_, batches)) => batches.push(batch),
            None => by_principal.push((principal, vec![batch])),
        }
    }
    for (principal, batches) in by_principal {
        match engine.capture_all(&principal, batches.clone(), Vec::new()).await {
            Ok(_) => {}
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            // A turn that the memory refuses must not block the others.
            Err(_) => {
                for batch in batches {
                    let session = batch.session.clone();
                    let captured = engine.capture(&principal, batch, Vec::new()).await;
                    if let Err(error @ StoreError::Unavailable(_)) = captured {
                        return Err(error);
                    }
                    if let Err(error) = captured {
                        tracing::error!(%error, session, "failed to store a turn in the memory");
                    }
                }
            }
        }
    }
    // If the process is killed before this, the next start captures the turns again; the memory
    // drops duplicates.
    let count = ids.len();
    if count > 0 {
        ledger.outbox_done(ids).await?;
    }
    Ok(count)
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
