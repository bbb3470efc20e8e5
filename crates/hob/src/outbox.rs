//! What sessions left for the memory: taken once, in order, and only then crossed off.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::memory::{Principal, Tier, TurnSource};
use hob_domain::session::OutboxItem;
use hob_domain::{AppName, LedgerStore, Role, StoreError, Timestamp};
use hob_memory::{CaptureBatch, Engine, RawTurn, locate_project};
use serde::Deserialize;
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
    for item in &items {
        let Some((principal, batch)) = batch(item) else {
            tracing::error!(item = item.id, "something for the memory can't be read");
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
    if !items.is_empty() {
        ledger.outbox_done(items.iter().map(|item| item.id).collect()).await?;
    }
    Ok(items.len())
}

/// A turn as a session writes it down.
#[derive(Deserialize)]
struct Ended {
    session_id: String,
    turn_index: u32,
    cwd: String,
    agent: String,
    prompt: String,
    answers: Vec<String>,
    asked_at: Timestamp,
    ended_at: Timestamp,
}

fn batch(item: &OutboxItem) -> Option<(Principal, CaptureBatch)> {
    let ended: Ended = serde_json::from_str(&item.body).ok()?;
    let app = AppName::stored(item.app.as_str()).ok()?;
    let principal = match app.is_owner() {
        true => Principal::Owner,
        false => Principal::App(item.app.clone()),
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
    let n = ended.turn_index;
    let mut turns = vec![turn(format!("turn-{n}"), Role::User, ended.prompt, ended.asked_at)];
    for (index, answer) in ended.answers.into_iter().enumerate() {
        turns.push(turn(format!("turn-{n}-{index}"), Role::Assistant, answer, ended.ended_at));
    }
    let batch = CaptureBatch {
        session: ended.session_id,
        place: locate_project(Path::new(&ended.cwd)),
        client: ended.agent,
        source: TurnSource::Session,
        turns,
    };
    Some((principal, batch))
}
