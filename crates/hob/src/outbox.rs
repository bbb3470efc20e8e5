//! What sessions left for the memory: taken once, in order, and only then crossed off.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::memory::{Principal, Tier, TurnSource};
use hob_domain::session::OutboxItem;
use hob_domain::{AppName, LedgerStore, Role, StoreError};
use hob_memory::{CaptureBatch, Engine, RawTurn, locate_project};
use tokio_util::sync::CancellationToken;

/// How often it is looked at.
const INTERVAL: Duration = Duration::from_millis(200);
/// After trouble, how long to wait.
const TROUBLE: Duration = Duration::from_secs(5);
/// How many are taken at a time.
const TOGETHER: usize = 100;

/// How long the last turns may take to be remembered.
const LAST: Duration = Duration::from_secs(2);

/// Drains until told to stop.
pub async fn drain(ledger: Arc<dyn LedgerStore>, engine: Engine, stopping: CancellationToken) {
    loop {
        let pause = match drain_once(&*ledger, &engine).await {
            Ok(TOGETHER) => Duration::ZERO,
            Ok(_) => INTERVAL,
            Err(error) => {
                tracing::error!(%error, "turns of sessions did not reach the memory");
                TROUBLE
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopping.cancelled() => return,
        }
    }
}

/// What has ended meanwhile is remembered before hob ends; what is not waits for the next start.
pub async fn drain_last(ledger: &dyn LedgerStore, engine: &Engine) {
    let all = async { while let Ok(TOGETHER) = drain_once(ledger, engine).await {} };
    if tokio::time::timeout(LAST, all).await.is_err() {
        tracing::warn!("turns wait for the next start to be remembered");
    }
}

async fn drain_once(ledger: &dyn LedgerStore, engine: &Engine) -> Result<usize, StoreError> {
    let items = ledger.outbox(TOGETHER).await?;
    // Those of one principal go together: a transaction costs more than a turn.
    let mut by_principal: Vec<(Principal, Vec<CaptureBatch>)> = Vec::new();
    let ids: Vec<i64> = items.iter().map(|item| item.id).collect();
    for item in items {
        let id = item.id;
        let Some((principal, batch)) = batch(item) else {
            tracing::error!(item = id, "something for the memory can't be read");
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
            // One that the memory refuses must not keep the others from it.
            Err(_) => {
                for batch in batches {
                    let session = batch.session.clone();
                    let captured = engine.capture(&principal, batch, Vec::new()).await;
                    if let Err(error @ StoreError::Unavailable(_)) = captured {
                        return Err(error);
                    }
                    if let Err(error) = captured {
                        tracing::error!(%error, session, "a turn can't be remembered");
                    }
                }
            }
        }
    }
    // Killed before this, they are captured again, and stored once all the same.
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
