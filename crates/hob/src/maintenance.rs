//! Background maintenance of the memory: erases forgotten turns, masks secrets in old turns, then
//! embeds all turns with the sentence model.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hob_domain::Timestamp;
use hob_memory::Engine;
use hob_sessions::SteadyClock;
use tokio_util::sync::CancellationToken;

/// The pause between two steps, for other users of the store.
const STEP_PAUSE: Duration = Duration::from_millis(50);

/// The pause after an error.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Forgotten turns are erased at most this long after the time they can be restored.
const MAX_ERASE_INTERVAL: Duration = Duration::from_secs(600);
const MIN_ERASE_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until `stopping` is cancelled. `clock` decides what is erased.
pub async fn run(
    engine: Engine,
    model: Option<PathBuf>,
    clock: SteadyClock,
    stopping: CancellationToken,
) {
    let improve = async {
        rescan(engine.clone(), stopping.clone()).await;
        if let Some(folder) = model {
            engine.run_model(folder, stopping.clone()).await;
        }
    };
    tokio::join!(erase_forgotten(&engine, clock, &stopping), improve);
}

/// Erases forgotten turns that can no longer be restored.
async fn erase_forgotten(engine: &Engine, mut clock: SteadyClock, stopping: &CancellationToken) {
    let interval = match engine.undo_period() {
        // They are erased when they are forgotten.
        Duration::ZERO => MAX_ERASE_INTERVAL,
        period => period.clamp(MIN_ERASE_INTERVAL, MAX_ERASE_INTERVAL),
    };
    loop {
        let now = clock.now(Timestamp::now(), Instant::now());
        match engine.erase_forgotten(now).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "erased forgotten turns"),
            Err(error) => tracing::error!(%error, "failed to erase forgotten turns"),
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = stopping.cancelled() => return,
        }
    }
}

/// Masks secrets that earlier rules did not recognise, in small steps.
async fn rescan(engine: Engine, stopping: CancellationToken) {
    let mut skipped = Vec::new();
    loop {
        tokio::select! {
            scanned = engine.rescan(&mut skipped) => match scanned {
                Ok(0) => return,
                Ok(_) => tokio::time::sleep(STEP_PAUSE).await,
                Err(error) => {
                    tracing::error!(%error, "failed to scan old turns for secrets");
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            },
            () = stopping.cancelled() => return,
        }
    }
}
